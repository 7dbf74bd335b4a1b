"""English names of the units, currencies, scales and months that stand beside a number.

A unit is found by its written sign; singular or plural is chosen by the number. The patterns of `en_quantities` and
`en_dates` are built from these tables.
"""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """Spoken names of a unit."""

    singular: str
    plural: str


class Currency(NamedTuple):
    """Spoken names of a currency and of its hundredth."""

    singular: str
    plural: str
    cent: str = "cent"
    cents: str = "cents"


def _name_unit(singular: str, plural: str = "") -> Unit:
    """Makes a unit; the plural ends in s unless it is given."""
    return Unit(singular, plural or f"{singular}s")


_PER_HOUR = "per hour"

# Left out on purpose: "in" and "a" are words, "M" and "B" are millions and billions more often than units.
UNITS: dict[str, Unit] = {
    **dict.fromkeys(("km", "Km", "KM"), _name_unit("kilometer")),
    "m": _name_unit("meter"),
    "cm": _name_unit("centimeter"),
    "mm": _name_unit("millimeter"),
    "μm": _name_unit("micrometer"),
    "nm": _name_unit("nanometer"),
    "ft": _name_unit("foot", "feet"),
    "yd": _name_unit("yard"),
    "yds": _name_unit("yard"),
    "mi": _name_unit("mile"),
    **dict.fromkeys(("kg", "Kg", "KG"), _name_unit("kilogram")),
    "g": _name_unit("gram"),
    "mg": _name_unit("milligram"),
    "μg": _name_unit("microgram"),
    "mcg": _name_unit("microgram"),
    "lb": _name_unit("pound"),
    "lbs": _name_unit("pound"),
    "oz": _name_unit("ounce"),
    "l": _name_unit("liter"),
    "L": _name_unit("liter"),
    "ml": _name_unit("milliliter"),
    "mL": _name_unit("milliliter"),
    "gal": _name_unit("gallon"),
    "tsp": _name_unit("teaspoon"),
    "tbsp": _name_unit("tablespoon"),
    "ha": _name_unit("hectare"),
    "sq ft": _name_unit("square foot", "square feet"),
    "sq km": _name_unit("square kilometer"),
    "sq m": _name_unit("square meter"),
    "sq mi": _name_unit("square mile"),
    "mph": _name_unit(f"mile {_PER_HOUR}", f"miles {_PER_HOUR}"),
    **dict.fromkeys(("km/h", "kph", "kmh"), Unit(f"kilometer {_PER_HOUR}", f"kilometers {_PER_HOUR}")),
    "m/s": Unit("meter per second", "meters per second"),
    "rpm": Unit("revolution per minute", "revolutions per minute"),
    "bpm": Unit("beat per minute", "beats per minute"),
    "fps": Unit("frame per second", "frames per second"),
    "Hz": Unit("hertz", "hertz"),
    "kHz": Unit("kilohertz", "kilohertz"),
    "MHz": Unit("megahertz", "megahertz"),
    "GHz": Unit("gigahertz", "gigahertz"),
    "KB": _name_unit("kilobyte"),
    "kB": _name_unit("kilobyte"),
    "MB": _name_unit("megabyte"),
    "GB": _name_unit("gigabyte"),
    "TB": _name_unit("terabyte"),
    "kbps": Unit("kilobit per second", "kilobits per second"),
    "Mbps": Unit("megabit per second", "megabits per second"),
    "Gbps": Unit("gigabit per second", "gigabits per second"),
    "dB": _name_unit("decibel"),
    "V": _name_unit("volt"),
    "W": _name_unit("watt"),
    "kW": _name_unit("kilowatt"),
    "MW": _name_unit("megawatt"),
    "GW": _name_unit("gigawatt"),
    "kWh": _name_unit("kilowatt hour"),
    "mAh": _name_unit("milliamp hour"),
    "kJ": _name_unit("kilojoule"),
    "cal": _name_unit("calorie"),
    "kcal": _name_unit("kilocalorie"),
    "kPa": _name_unit("kilopascal"),
    "psi": Unit("pound per square inch", "pounds per square inch"),
    "ns": _name_unit("nanosecond"),
    "μs": _name_unit("microsecond"),
    "ms": _name_unit("millisecond"),
    "s": _name_unit("second"),
    **dict.fromkeys(("sec", "secs"), _name_unit("second")),
    **dict.fromkeys(("min", "mins"), _name_unit("minute")),
    **dict.fromkeys(("h", "hr", "hrs"), _name_unit("hour")),
    **dict.fromkeys(("yr", "yrs"), _name_unit("year")),
    **dict.fromkeys(("°C", "° C"), Unit("degree Celsius", "degrees Celsius")),
    **dict.fromkeys(("°F", "° F"), Unit("degree Fahrenheit", "degrees Fahrenheit")),
    "°": _name_unit("degree"),
    "%": Unit("percent", "percent"),
    "¢": _name_unit("cent"),
    "USD": Unit("US dollar", "US dollars"),
    "EUR": _name_unit("euro"),
    "GBP": Unit("British pound", "British pounds"),
    "JPY": Unit("Japanese yen", "Japanese yen"),
}

DOTTED_UNITS = frozenset(
    {"ft", "yd", "mi", "lb", "lbs", "oz", "gal", "tsp", "tbsp", "sec", "min", "hr", "hrs", "yr", "yrs"}
)
"""Units that are often written with a full stop of their own."""

AREA_UNITS: dict[str, Unit] = {
    "km": UNITS["km"],
    "m": UNITS["m"],
    "cm": UNITS["cm"],
    "mm": UNITS["mm"],
    "ft": UNITS["ft"],
    "mi": UNITS["mi"],
    "in": _name_unit("inch", "inches"),
}
"""Units that are written with a raised two or three."""

CURRENCIES: dict[str, Currency] = {
    "$": Currency("dollar", "dollars"),
    "US$": Currency("US dollar", "US dollars"),
    "C$": Currency("Canadian dollar", "Canadian dollars"),
    "CA$": Currency("Canadian dollar", "Canadian dollars"),
    "A$": Currency("Australian dollar", "Australian dollars"),
    "HK$": Currency("Hong Kong dollar", "Hong Kong dollars"),
    "£": Currency("pound", "pounds", "penny", "pence"),
    "€": Currency("euro", "euros"),
    "¥": Currency("yen", "yen", "sen", "sen"),
    "₹": Currency("rupee", "rupees", "paisa", "paise"),
    "₽": Currency("ruble", "rubles", "kopeck", "kopecks"),
    "₩": Currency("won", "won"),
    "₺": Currency("lira", "liras", "kurush", "kurush"),
    "₿": Currency("bitcoin", "bitcoins"),
}

SCALES: dict[str, str] = {
    "hundred": "hundred",
    "thousand": "thousand",
    "million": "million",
    "billion": "billion",
    "trillion": "trillion",
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "mn": "million",
    "b": "billion",
    "B": "billion",
    "bn": "billion",
    "tn": "trillion",
}
"""Words and abbreviations for powers of ten in amounts of money: $5m, £2bn."""

WORD_SCALES = frozenset({"thousand", "million", "billion", "trillion", "mn", "bn", "tn"})
"""Scales that are read without a currency, too: "5 million", "3 bn", but not "5 m", which is meters."""

MONTHS = ("January February March April May June July August September October November December").split()
