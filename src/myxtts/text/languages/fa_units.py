"""Persian names of months, units and currencies."""

from __future__ import annotations

from typing import NamedTuple

from myxtts.text.languages.unicode_cleanup import ZWNJ

SOLAR_MONTHS = "فروردین اردیبهشت خرداد تیر مرداد شهریور مهر آبان آذر دی بهمن اسفند".split()
SOLAR_DAYS_IN_MONTH = (31, 31, 31, 31, 31, 31, 30, 30, 30, 30, 30, 30)
GREGORIAN_MONTHS = "ژانویه فوریه مارس آوریل مه ژوئن ژوئیه اوت سپتامبر اکتبر نوامبر دسامبر".split()
GREGORIAN_DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_CENTIMETRE = f"سانتی{ZWNJ}متر"
_MILLIMETRE = f"میلی{ZWNJ}متر"
_CELSIUS = f"درجه سانتی{ZWNJ}گراد"

UNITS: dict[str, str] = {
    **dict.fromkeys(("km", "Km", "KM"), "کیلومتر"),
    "m": "متر",
    "cm": _CENTIMETRE,
    "mm": _MILLIMETRE,
    "km²": "کیلومتر مربع",
    "m²": "متر مربع",
    "cm²": f"{_CENTIMETRE} مربع",
    "m³": "متر مکعب",
    "cm³": f"{_CENTIMETRE} مکعب",
    "km/h": "کیلومتر بر ساعت",
    "m/s": "متر بر ثانیه",
    **dict.fromkeys(("kg", "Kg", "KG"), "کیلوگرم"),
    "g": "گرم",
    "gr": "گرم",
    "mg": f"میلی{ZWNJ}گرم",
    "l": "لیتر",
    "L": "لیتر",
    **dict.fromkeys(("ml", "mL"), f"میلی{ZWNJ}لیتر"),
    "cc": f"سی{ZWNJ}سی",
    "KB": "کیلوبایت",
    "MB": "مگابایت",
    "GB": "گیگابایت",
    "TB": "ترابایت",
    "Hz": "هرتز",
    "kHz": "کیلوهرتز",
    "MHz": "مگاهرتز",
    "GHz": "گیگاهرتز",
    "V": "ولت",
    "W": "وات",
    "kW": "کیلووات",
    "MW": "مگاوات",
    "kWh": "کیلووات ساعت",
    "ms": f"میلی{ZWNJ}ثانیه",
    "s": "ثانیه",
    "min": "دقیقه",
    "h": "ساعت",
    **dict.fromkeys(("°C", "° C"), _CELSIUS),
    **dict.fromkeys(("°F", "° F"), "درجه فارنهایت"),
    "°": "درجه",
    "%": "درصد",
    "USD": "دلار",
    "EUR": "یورو",
}


class Currency(NamedTuple):
    name: str
    cent: str = "سنت"


CURRENCIES: dict[str, Currency] = {
    "$": Currency("دلار"),
    "€": Currency("یورو"),
    "£": Currency("پوند", "پنی"),
    "¥": Currency("ین"),
    "₺": Currency("لیر", "قروش"),
    "₽": Currency("روبل", "کوپک"),
    "₹": Currency("روپیه", "پیسه"),
}

SCALES = ("هزار", "میلیون", "میلیارد", "تریلیون")
