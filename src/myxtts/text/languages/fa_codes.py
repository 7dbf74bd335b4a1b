"""Persian numbers and signs that are read by what stands beside them: telephone numbers, cards, codes, prices, scores.

These readings came after the first models. A front end notes whether it has them (`rules` in frontend.json), so that
older models read as they did. Each rule rewrites text, either to words or to a form that `fa` reads rightly, and leaves
its own output unchanged. Digits are ASCII here. Quantifiers are bounded, so that time stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from myxtts.text.languages.fa_letters import WORD_CHAR
from myxtts.text.languages.fa_numbers import SOLAR_MONTHS, TABLE, spell_cardinal, spell_digits
from myxtts.text.languages.generic import say
from myxtts.text.languages.unicode_cleanup import ZWNJ

_NOT_IN_WORD, _WORD_ENDS = rf"(?<!{WORD_CHAR})", rf"(?!{WORD_CHAR})"
_MONEY = "تومان|تومن|ریال|درهم|دینار|افغانی"

_HONORIFICS: dict[str, str] = TABLE["honorifics"]
"""Letters in brackets behind a name. The half-spaces make one word of each phrase, which the lexicon has."""
_HONORIFIC = re.compile(rf"{_NOT_IN_WORD}(?P<name>{WORD_CHAR}{{2,40}}) ?\((?P<letters>ص|عج|ع|س|ره|رض)\)")
_NO_NAMES = frozenset("حرف حروف گزینه بند مورد شکل ضلع زاویه نقطه یا به از با که در".split())
_GAP = f"[ {ZWNJ}]"
_SPELT_HONORIFIC = re.compile(
    rf"{_NOT_IN_WORD}(?:صلی{_GAP}الله{_GAP}علیه(?:{_GAP}و{_GAP}?آله)?|علیه(?:م)?{_GAP}السلام|سلام{_GAP}الله{_GAP}علیها"
    rf"|رحمت{_GAP}الله{_GAP}علیه|رضی{_GAP}الله{_GAP}عنه){_WORD_ENDS}"
)

# Codes of which every digit is read. A short number is read as one: تلفن ۱۱۰; so is an amount: تلفن ۲۵۰۰۰ نفر.
_DIGITS = r"\d{1,12}(?:[ -]\d{2,12}){0,6}"
_PHONE_WORDS = (
    "شماره (?:تماس|همراه)|تماس با(?: شماره)?|(?:شماره )?(?:تلفن|موبایل|فکس|نمابر|دورنگار|واتساپ)"
    "(?: (?:همراه|ثابت|تماس|منزل|خانه|محل کار|مستقیم))?"
)
_CODE_WORDS = (
    "کد ملی|شماره ملی|شناسه ملی|کد پستی|کدپستی|کد رهگیری|کد پیگیری|شماره پیگیری|کد تایید|کد تأیید|شماره حساب|"
    "شماره کارت|شماره شناسنامه|رمز عبور|رمز دوم|شماره پرونده|شماره سریال"
)
_COUNTED = "نفر|هزار|میلیون|میلیارد|دستگاه|خط|عدد|مشترک|واحد|بار|مورد|درصد"
_OWNER = "(?:م|ت|ش|مان|تان|شان)?(?: (?:من|ما|شما|او|ایشان|آن‌ها))?"
_LABELLED = re.compile(
    rf"{_NOT_IN_WORD}(?P<label>(?:{_PHONE_WORDS}|{_CODE_WORDS}){_OWNER} ?:? ?)(?P<digits>{_DIGITS})"
    rf"(?![\d/٫:]|[.-]\d| ?(?:{_MONEY}|{_COUNTED}){_WORD_ENDS})"
)
_MIN_CODE_DIGITS = 4
_MOBILE = re.compile(r"(?<![\w.٫-])09\d{2}(?:[ -]\d{2,4}){2,3}(?![\w-])")
_MOBILE_DIGITS = 11
_CARD = re.compile(r"(?<![\d.٫/-])\d{4}(?:[ -]\d{4}){3}(?![\d-])")
_IBAN = re.compile(r"(?<![A-Za-z])IR ?\d{2}(?:[ -]?\d{4}){5}[ -]?\d{2}(?!\d)", re.IGNORECASE)

# Prices: a slash or a full stop groups digits where tomans or rials follow, which have no thousandths in prices.
_SLASH_GROUPS = re.compile(rf"(?<![\d/.٫])\d{{1,3}}(?:/\d{{3}}){{1,5}}(?![\d/.٫])(?= ?(?:{_MONEY}){_WORD_ENDS})")
_MANY_SLASH_GROUPS = re.compile(r"(?<![\d/.٫])[1-9]\d{0,2}(?:/\d{3}){2,5}(?![\d/.٫])")
_DOT_GROUP = re.compile(rf"(?<![\d/.٫])[1-9]\d{{0,2}}\.\d{{3}}(?![\d/.٫])(?= ?(?:{_MONEY}){_WORD_ENDS})")
_RIAL_FIRST = re.compile(rf"{_NOT_IN_WORD}ریال ?(?P<number>\d{{1,3}}(?:[٬،,]\d{{3}}){{1,5}}|\d{{1,15}})(?![\d٬،,./٫])")

_CLOCK = re.compile(r"(?<=ساعت )(?P<hour>[01]?\d|2[0-4])[./](?P<minute>[0-5]\d)(?![\d./:٫])")
_MIXED_FRACTION = re.compile(r"(?<![\d٫./])(?P<whole>\d{1,3}) (?P<fraction>1/2|1/3|2/3|1/4|3/4)(?![\d./٫])")
_PERCENT_RANGE = re.compile(r"(?<![\d./٫])(?P<first>\d{1,3}(?:[./٫]\d{1,3})?) ?% ?(?:-|تا) ?(?P<second>\d{1,3}) ?%")
_MONTH = re.compile(r"(?<![\d/.-])(?P<year>1[34]\d\d)/0(?P<month>[1-9])(?![\d/.-])")
_AGE = re.compile(r"(?<![\d.٫/+])(?P<number>\d{1,3})\+(?! ?[\d=])")

_ERAS = {"ش": "شمسی", "ق": "قمری", "م": "میلادی"}
_SPACED_ERA = re.compile(rf"(?<=\d) ?ه (?P<era>[شق])(?!{WORD_CHAR})")
_SHORT_ERA = re.compile(
    rf"(?<=سال )(?P<year>\d{{1,4}}) ?(?P<era>[شقم])(?!{WORD_CHAR})\.?|(?<!\d)(?P<full>\d{{4}}) (?P<mark>[شق])\."
)

_SPORT = re.compile(
    rf"{_NOT_IN_WORD}(?:نتیجه|بازی|مسابقه|دیدار|گل|تیم|برد|بردیم|باخت|باختیم|شکست|پیروز|پیروزی|مساوی|فوتبال|والیبال|"
    rf"استقلال|پرسپولیس|سپاهان|تراکتور|لیگ){_WORD_ENDS}"
)
_SCORE = re.compile(r"(?<![\d./٫-])(?P<first>\d) ?- ?(?P<second>\d)(?![\d./٫%-]| ?-)")


def read_codes(text: str) -> str:
    """Returns text of clean letters with its codes spelt out, and prices, times and scores in their plain form."""
    for pattern, rewrite in _RULES:
        text = pattern.sub(rewrite, text)
    return _SCORE.sub(r"\g<first> بر \g<second>", text) if _SPORT.search(text) else text


def _read_honorific(match: re.Match[str]) -> str:
    is_name = match["name"] not in _NO_NAMES
    return f"{match['name']} {_HONORIFICS[match['letters']]}" if is_name else match[0]


def _spell_groups(digits: str) -> str:
    return "، ".join(spell_digits(group) for group in re.findall(r"\d+", digits))


def _read_labelled(match: re.Match[str]) -> str:
    if sum(map(str.isdigit, match["digits"])) < _MIN_CODE_DIGITS:
        return match[0]
    return match["label"] + say(_spell_groups(match["digits"]))


def _read_mobile(match: re.Match[str]) -> str:
    is_whole = sum(map(str.isdigit, match[0])) == _MOBILE_DIGITS
    return say(_spell_groups(match[0])) if is_whole else match[0]


def _read_iban(match: re.Match[str]) -> str:
    digits = re.sub(r"\D", "", match[0])
    groups = [digits[:2], *(digits[start : start + 4] for start in range(2, len(digits), 4))]
    return say(f"آی آر {'، '.join(map(spell_digits, groups))}")


def _read_era(match: re.Match[str]) -> str:
    year, era = (match["year"], match["era"]) if match["year"] else (match["full"], match["mark"])
    return f"{year} {_ERAS[era]}"


_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_HONORIFIC, _read_honorific),
    (_SPELT_HONORIFIC, lambda match: re.sub(f"و{ZWNJ}آ", "وآ", match[0].replace(" ", ZWNJ))),
    (_IBAN, _read_iban),
    (_LABELLED, _read_labelled),
    (_MOBILE, _read_mobile),
    (_CARD, lambda match: say(_spell_groups(match[0]))),
    (_CLOCK, r"\g<hour>:\g<minute>"),
    (_SLASH_GROUPS, lambda match: match[0].replace("/", "٬")),
    (_MANY_SLASH_GROUPS, lambda match: match[0].replace("/", "٬")),
    (_DOT_GROUP, lambda match: match[0].replace(".", "٬")),
    (_RIAL_FIRST, r"\g<number> ریال"),
    (_MONTH, lambda match: f"{SOLAR_MONTHS[int(match['month']) - 1]} {match['year']}"),
    (_MIXED_FRACTION, lambda match: f"{match['whole']} {match['fraction'].replace('/', chr(0x2044))}"),
    (_PERCENT_RANGE, r"\g<first> تا \g<second>%"),
    (_AGE, lambda match: say(f"مثبت {spell_cardinal(int(match['number']))}")),
    (_SPACED_ERA, lambda match: say(f"هجری {_ERAS[match['era']]}")),
    (_SHORT_ERA, _read_era),
)
