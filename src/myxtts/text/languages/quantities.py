"""Reads numbers, dates, times, money, measures, fractions and ordinals in any language that has a table of words.

One engine for all of them; <code>.json beside this module has the words, and `by_table` is the normaliser. A noun is
written `gender:singular|plural`, in Arabic `gender:singular|dual|plural|accusative`; a `{}` is the place of the number,
which otherwise comes first. A currency is two nouns, the second its hundredth; `l|L` as a key stands for two signs.
Quantifiers are possessive or bounded, so that a hostile text takes linear time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from myxtts.text.languages import generic
from myxtts.text.languages.number_words import MAX_SPELLED, count_arabic, spell_cardinal
from myxtts.text.languages.ordinals import Ordinals, name_arabic_day, name_arabic_hour, name_german_ordinal

_ENDS = rf"(?!{generic.LETTER})"
FRACTION_BAR = "\u2044"
_MAX_NUMBER_DECIMALS = 3
"""Longer decimals are read digit by digit in every language."""
_DASH = r"(?P<dash>-| - | ?— ?)"
_ISO_DATE = re.compile(r"(?<![\d./-])(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?!\d|[./-]\d)")
_DATE = re.compile(
    r"(?<![\d./-])(?P<d>\d{1,2})(?P<bar>\.|/|-)(?: (?=\d{1,2}\. \d{4}))?(?P<m>\d{1,2})(?P=bar) ?"
    r"(?P<y>\d{4}|(?<=[./])\d{2})(?!\d|[./-]\d)"
)
_DAY_AND_MONTH = re.compile(r"(?<![\d.,:/-])(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?!\d| ?-)")
_TIME = r"(?<![\d.:,])(?P<h>[01]?\d|2[0-4])"
_PHONE = re.compile(
    r"(?<![\w.,+])(?=\+?(?:[ /-]?\d){7,20}(?!\d))(?:\+\d{1,3}|0\d{1,5})(?:[ /-]\d{2,8}){1,5}(?!\w|[.,:]\d)"
)


class Noun(NamedTuple):
    """A counted noun: its gender ("" where the number does not agree with it) and its forms."""

    gender: str
    forms: tuple[str, ...]


def read_nouns(table: dict[str, str]) -> dict[str, Noun]:
    pairs = {sign: words.partition(":") for sign, words in generic.split_keys(table).items()}
    return {sign: Noun(gender, tuple(forms.split("|"))) for sign, (gender, _, forms) in pairs.items()}


class Quantities:
    """Reads the written amounts of one language; its rules are applied in order, the more specific first."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.table: dict[str, Any] = generic.load_table(language)
        self._style = generic.NUMBER_STYLES[language]
        self.units = read_nouns(self.table["units"])
        parts = {sign: words.partition(";") for sign, words in generic.split_keys(self.table["currencies"]).items()}
        self._currencies = read_nouns({sign: main for sign, (main, _, _) in parts.items()})
        self._cents = read_nouns({sign: cent for sign, (_, _, cent) in parts.items() if cent})
        named = [(noun.forms, self._cents[sign]) for sign, noun in self._currencies.items() if sign in self._cents]
        self._cents |= {form: cent for forms, cent in named for form in forms}
        self._add_names(self._currencies)
        self._add_names(self.units)
        self._scales = read_nouns(self.table["scales"])
        self._fractions = read_nouns(self.table["fractions"])
        self._months = self.table["months"].split()
        short = dict(zip(self.table["short_months"].split(), self._months, strict=True))
        self._month_names = {name: name for name in self._months}
        self._month_names |= {f"{name}.": month for name, month in short.items() if name != month}
        self._grouped, decimals = self._style.grouped, re.escape(self._style.decimal_signs)
        self._numeral = rf"(?:{self._grouped}|\d++)(?:[{decimals}]\d++)?"
        self._split = re.compile(rf"(?P<whole>{self._grouped}|\d++)(?:[{decimals}](?P<fraction>\d++))?")
        self.rules = self._make_rules()

    def _add_names(self, nouns: dict[str, Noun]) -> None:
        """Adds the names themselves as signs, so that numbers agree with them too: 1 Stunde is "eine Stunde"."""
        for noun in list(nouns.values()):
            for form in noun.forms:
                if "{}" not in form and form not in self.table.get("ambiguous", ""):
                    nouns.setdefault(form, noun)

    def _make_rules(self) -> tuple[generic.Rule, ...]:
        """The rules in order; the last one takes every digit that is left."""
        counted = generic.either([*self.units, *self._currencies])
        signs = generic.either([*(sign for sign in self._currencies if not sign[-1].isalpha() or sign.isascii())])
        dotted = r"{1,}+" if "." not in self._style.decimal_signs else r"{2,}+"
        scale = rf"(?: ?(?P<scale>{generic.either(self._scales)}){_ENDS})?"
        measure = (
            rf"{generic.MINUS}(?:(?P<prefix>{signs}) ?)?(?P<number>{self._numeral})"
            rf"(?:{_DASH}(?P<number_to>{self._numeral}))?{scale}"
            rf"(?: ?(?P<unit>{counted})(?![^\W_])(?:/(?P<per>{generic.either(self.units)}){_ENDS})?)?"
        )
        fraction = (
            rf"(?<![\d/.,])(?:(?P<whole>\d{{1,6}}+) )?(?P<n>\d{{1,3}}+)[/{FRACTION_BAR}]"
            rf"(?P<d>\d{{1,4}}+)(?![\d/]|[.,]\d)(?: ?(?P<unit>{counted})(?![^\W_]))?"
        )
        percent = rf"(?<!\d)(?<!\d )(?P<unit>%) ?(?P<number>{self._numeral})"
        version = rf"(?<![\d.])(?!{self._grouped})\d++(?:\.\d++){dotted}"
        rules: list[generic.Rule] = [(_ISO_DATE, self._read_date), (_DATE, self._read_date), *self._list_time_rules()]
        rules += [(re.compile(self._month_pattern()), self._read_day)] if self._names_days else []
        rules += [(_DAY_AND_MONTH, self._read_day_and_month)] if self.language == "de" else []
        rules += [
            (_PHONE, self._read_phone),
            (re.compile(version), self._read_version),
            *Ordinals(self.language).list_rules(),
        ]
        rules.append((re.compile(fraction), self._read_fraction))
        if self.table.get("percent_first"):
            rules.append((re.compile(percent), lambda match: self._count(match["number"], self.units["%"])))
        rules.append((re.compile(r"(?<![\d:.])\d{1,3}+:\d{1,3}+(?!\d|:\d)"), self._read_score))
        rules.append((re.compile(measure), self._read_measure))
        return tuple(rules)

    # --- dates and times --------------------------------------------------------------------------------------------

    @property
    def _names_days(self) -> bool:
        """Whether the day before a month is more than a number: an ordinal, or a word for the first."""
        return "{ordinal}" in self.table["date"] or "first_day" in self.table

    def _month_pattern(self) -> str:
        dot = r"\." if self.language == "de" else r"(?:er|º|°|o)?"
        days = rf"(?:(?P<first>\d{{1,2}}){dot} ?[-—] ?)?(?P<d>\d{{1,2}}){dot}"
        gap = " ?" if self.language == "de" else " "
        return rf"(?<![\d.,:/-]){days}{gap}(?P<month>{generic.either(self._month_names)}){_ENDS}"

    def _read_day(self, match: re.Match[str]) -> str:
        """Reads a day and the name of its month; the year behind it is a number like others."""
        day, month = int(match["d"]), self._month_names[match["month"]]
        if not 1 <= day <= 31:
            return f"{self._spell(match['d'])} {month}"
        words = self._name_day(day, month, match)
        if match["first"]:
            words = f"{self._name_day(int(match['first']), month, match)} {self.table['range']} {words}"
        ends_text = match["month"].endswith(".") and match.end() == len(match.string)
        month = f"{month}." if ends_text else month
        return f"{words} من {month}" if self.language == "ar" else f"{words} {month}"

    def _name_day(self, day: int, noun: str, match: re.Match[str]) -> str:
        if self.language == "de":
            return name_german_ordinal(day, noun, match.string, match.start())
        if self.language == "ar":
            return name_arabic_day(day)
        if day == 1 and "first_day" in self.table:
            return str(self.table["first_day"])
        return self._spell(str(day))

    def _read_date(self, match: re.Match[str]) -> str:
        """Reads a date in figures; one that does not exist is read as plain numbers."""
        day, month, year = int(match["d"]), int(match["m"]), match["y"]
        if not (1 <= month <= 12 and 1 <= day <= generic.DAYS_IN_MONTH[month - 1]):
            return " ".join(self._spell(part) for part in re.findall(r"\d+", match[0]))
        name = self._months[month - 1]
        day_words = self._name_day(day, name, match)
        form: str = self.table["date"]
        return form.format(
            ordinal=day_words, day=day_words, month=name, year=self._spell(generic.complete_year(year), as_year=True)
        )

    def _read_day_and_month(self, match: re.Match[str]) -> str:
        """Reads a German date without a year: am 3.5. is "am dritten Mai"; its full stop may end the sentence."""
        day, month = int(match["d"]), int(match["m"])
        stop = "." if match.end() == len(match.string) else ""
        if not (1 <= month <= 12 and 1 <= day <= generic.DAYS_IN_MONTH[month - 1]):
            return f"{self._spell(match['d'])} {self.table['dot']} {self._spell(match['m'])}{stop}"
        name = self._months[month - 1]
        return f"{self._name_day(day, name, match)} {name}{stop}"

    def _list_time_rules(self) -> list[generic.Rule]:
        words = self.table["time_word"]
        suffix = rf"(?: ?(?P<word>{generic.either(words.split('|'))}){_ENDS})" if words else "(?P<word>(?!))"
        label = r"(?P<label>الساعة )?" if self.language == "ar" else ""
        colon = rf"{label}{_TIME}:(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?(?!\d|[.:,]\d){suffix}?"
        patterns = [colon, rf"{_TIME}\.(?P<m>[0-5]\d){suffix}"] if words else [colon]
        patterns.append(rf"{_TIME} ?h ?(?P<m>[0-5]\d)(?!\d|{generic.LETTER}| ?min)")
        return [(re.compile(pattern), self._read_time) for pattern in patterns]

    def _read_time(self, match: re.Match[str]) -> str:
        hour, minute, groups = int(match["h"]), int(match["m"]), match.groupdict()
        if self.language == "ar":
            return name_arabic_hour(hour, minute)
        form: str = self.table["time"][1 if minute else 0]
        hours = self.units["h"]
        words = form.format(
            h=spell_cardinal(hour, self.language, self.table["time_gender"]),
            m=spell_cardinal(minute, self.language),
            hours=self._choose_form(hours, hour),
        )
        if groups.get("word") and self.table.get("time_keeps_word"):
            # a las 14:30 is "catorce y treinta"; 14:30 horas adds "horas".
            words = f"{words} {self._choose_form(hours, 2)}"
        if int(groups.get("s") or 0):
            words = f"{words}{self.table['and']}{self._count(str(int(match['s'])), self.units['s'])}"
        return words

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _spell(self, digits: str, gender: str = "", *, as_year: bool = False) -> str:
        """Spells a whole number; one with a leading zero, or too long to name, digit by digit."""
        if (len(digits) > 1 and digits[0] == "0") or len(digits) > len(str(MAX_SPELLED)):
            return self._spell_digits(digits)
        number, hundred = int(digits), self.table["year_hundred"]
        if as_year and hundred and 1100 <= number < 2000:
            # 1984 is nineteen hundred eighty-four, in one word.
            rest = spell_cardinal(number % 100, self.language) if number % 100 else ""
            return f"{spell_cardinal(number // 100, self.language)}{hundred}{rest}"
        return spell_cardinal(number, self.language, gender)

    def _spell_digits(self, digits: str) -> str:
        return " ".join(spell_cardinal(int(digit), self.language) for digit in digits)

    def _spell_numeral(self, numeral: str, gender: str = "", *, as_year: bool = False) -> str:
        """Spells a number with decimals; years are four digits without a separator."""
        whole, fraction = self._split_numeral(numeral)
        if fraction is None:
            is_year = as_year and len(numeral) == 4 and numeral.isdecimal()
            return self._spell(whole, gender, as_year=is_year)
        digits: list[str] = [*fraction]
        if self.table["decimals"] == "number" and len(fraction) <= _MAX_NUMBER_DECIMALS and fraction.strip("0"):
            # Zeros come one by one, the rest is one number.
            rest = fraction.lstrip("0")
            digits = [*fraction[: len(fraction) - len(rest)], rest]
        decimals = " ".join(spell_cardinal(int(part), self.language) for part in digits)
        return f"{self._spell(whole)} {self._style.point} {decimals}"

    def _split_numeral(self, numeral: str) -> tuple[str, str | None]:
        match = self._split.fullmatch(numeral)
        assert match is not None, numeral
        return re.sub(r"\D", "", match["whole"]), match["fraction"]

    def _choose_form(self, noun: Noun, number: int) -> str:
        """Singular or plural; French has the singular below two."""
        is_singular = number < self.table["plural_from"] if "plural_from" in self.table else number == 1
        return noun.forms[0] if is_singular else noun.forms[-1]

    def _count(self, numeral: str, noun: Noun) -> str:
        """Returns the number and the noun in the form that it takes with it."""
        whole, fraction = self._split_numeral(numeral)
        is_long = len(whole) > len(str(MAX_SPELLED))
        if "{}" in noun.forms[0]:
            return noun.forms[0].format(self._spell_numeral(numeral))
        if self.language == "ar":
            if fraction is not None or is_long or whole[0] == "0":
                return f"{self._spell_numeral(numeral)} {noun.forms[0]}"
            return count_arabic(int(whole), noun.forms, noun.gender)
        number = 2 if is_long or (fraction is not None and "plural_from" not in self.table) else int(whole)
        form = self._choose_form(noun, number)
        if fraction is None and not is_long and int(whole) and int(whole) % 10**6 == 0:
            form = self._link_to_million(form)
        return f"{self._spell_numeral(numeral, noun.gender)} {form}"

    def _read_measure(self, match: re.Match[str]) -> str:
        """Reads a number or a range with its sign, scale, unit and currency: -3,5 km/h, 10-20 %, 12,50 €, 3 Mio. €."""
        unit = match["prefix"] or match["unit"]
        noun = self._currencies.get(unit or "") or self.units.get(unit or "")
        number, number_to, scale = match["number"], match["number_to"], match["scale"]
        last = number_to or number
        if scale:
            words = self._count(last, self._scales[scale])
            if noun:
                # The n of the Arabic dual is dropped before a noun.
                words = words.removesuffix("ن") if self.language == "ar" and last == "2" else words
                words = f"{words} {self._link_scale(self._scales[scale], noun)}".rstrip()
        elif noun is None:
            words = self._spell_numeral(last, as_year=not match["minus"])
        elif unit in self._cents and not number_to:
            words = self._read_money(number, unit)
        else:
            words = self._count(last, noun)
        if number_to:
            words = f"{self._spell_numeral(number, as_year=noun is None)} {self._name_dash(match)} {words}"
        if match["prefix"] and match["unit"]:
            words = f"{words} {match['unit']}"
        if match["per"]:
            words = f"{words} {self.table['per']} {self.units[match['per']].forms[0]}"
        return f"{self._style.minus} {words}" if match["minus"] else words

    def _link_scale(self, scale: Noun, noun: Noun) -> str:
        """Returns the noun behind a million: three million euros, trois millions d'euros, tres millones de euros."""
        form = noun.forms[0] if self.language == "ar" or "{}" in noun.forms[0] else noun.forms[-1]
        if "{}" in form:
            return form.replace("{}", "").strip()
        return self._link_to_million(form) if len(scale.forms) > 1 else form

    def _link_to_million(self, form: str) -> str:
        """Romance languages have a preposition between a million and what is counted."""
        link = self.table["scale_of"]
        if self.language == "fr" and form[0] in "aeiouhéè":
            return f"d'{form}"
        return f"{link} {form}".lstrip()

    def _name_dash(self, match: re.Match[str]) -> str:
        """A dash between spaces is a minus where the first number is larger; otherwise it makes a range."""
        first, second = (self._split_numeral(match[name])[0] for name in ("number", "number_to"))
        subtracts = match["dash"] == " - " and (len(first), first) > (len(second), second)
        return self._style.minus if subtracts else str(self.table["range"])

    def _read_money(self, number: str, sign: str) -> str:
        """12,50 € is twelve euros fifty; other numbers of decimals are read as such."""
        whole, cents = self._split_numeral(number)
        if cents is None or len(cents) != 2:
            return self._count(number, self._currencies[sign])
        counted = self._count(str(int(cents)), self._cents[sign])
        if not int(cents):
            return self._count(whole, self._currencies[sign])
        if not whole.strip("0"):
            return counted
        form: str = self.table["money"]
        amount = self._count(whole, self._currencies[sign])
        return form.format(amount=amount, cents=spell_cardinal(int(cents), self.language), counted=counted)

    def _read_phone(self, match: re.Match[str]) -> str:
        plus = f"{self.table['signs']['+']} " if match[0][0] == "+" else ""
        return plus + ", ".join(map(self._spell_digits, re.findall(r"\d+", match[0])))

    def _read_version(self, match: re.Match[str]) -> str:
        return f" {self.table['dot']} ".join(self._spell(part) for part in match[0].split("."))

    def _read_score(self, match: re.Match[str]) -> str:
        return f" {self.table['score']} ".join(self._spell(part) for part in match[0].split(":")).replace("  ", " ")

    # --- fractions and ordinals -------------------------------------------------------------------------------------

    def _read_fraction(self, match: re.Match[str]) -> str:
        """Reads ½, 3/4 and 2 1/2, alone or before a unit; a fraction without a name is one number over the other."""
        whole, unit = match["whole"], match["unit"]
        noun = self._currencies.get(unit or "") or self.units.get(unit or "")
        numerator, denominator = int(match["n"]), int(match["d"])
        if (numerator, denominator) == (1, 2):
            return self._read_half(whole, noun)
        part = self._fractions.get(match["d"])
        if part is None or not 0 < numerator < denominator:
            words = f"{self._spell(match['n'])} {self.table['over']} {self._spell(match['d'])}"
            words = f"{self._spell(whole)} {words}" if whole else words
            return f"{words} {noun.forms[-1]}" if noun else words
        words = self._name_fraction(numerator, part)
        if whole:
            words = f"{self._spell(whole)}{self.table['and']}{words}"
        if noun is None or "{}" in noun.forms[0]:
            return noun.forms[0].format(words) if noun else words
        link = f"{self.table['of']} " if self.table["of"] else ""
        return f"{words} {link}{noun.forms[0]}"

    def _name_fraction(self, numerator: int, part: Noun) -> str:
        if self.language == "ar":
            return count_arabic(numerator, part.forms, part.gender, names_one=False)
        number = spell_cardinal(numerator, self.language, part.gender)
        form: str = self.table.get("fraction_form", "{n} {d}")
        return form.format(n=number, d=self._choose_form(part, numerator))

    def _read_half(self, whole: str | None, noun: Noun | None) -> str:
        half: dict[str, str] = self.table["half"]
        counts = noun is not None and "{}" not in noun.forms[0]
        if whole is None:
            words = f"{half.get(noun.gender, half['m'])} {noun.forms[0]}" if noun and counts else half["alone"]
        elif noun and counts and "unit" in half:
            after = half.get("unit_f") if noun.gender == "f" else None
            words = (after or half["unit"]).format(counted=self._count(whole, noun))
        else:
            one = half.get("one") if whole == "1" else None
            words = one or half["after"].format(n=self._spell(whole, "m" if self.language == "de" else ""))
            words = f"{words} {noun.forms[-1]}" if noun and counts else words
        return noun.forms[0].format(words) if noun and not counts else words
