"""What holds for every string in every language, the generic languages, and sentence splitting."""

from __future__ import annotations

import sys
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import MissingExtraError
from myxtts.text.languages import LANGUAGES, en, en_abbreviations, en_dates, en_numbers, fa_numbers
from myxtts.text.languages.by_table import TABLE_LANGUAGES
from myxtts.text.languages.generic import NUMBER_STYLES
from myxtts.text.normalize import normalize_text, split_sentences

CODES = ("en", "fa", "de", "fr", "es", "it", "nl", "tr", "ar", "ja", "zh", "ru")

ENGLISH_PIECES = (
    "Mr ms. Dr St. Gen. Prof etc. e.g. a.m. p.m vs vs. et al. Co. Rd. No. no. fig. vol. p. Jan. May Henry World War "
    "Part II III IV V I VIII st nd th s km m m/s kg °C ° C $ US$ € £ % million bn k min. hr x × am pm com .com www. # "
    "~ < ^ = + - -- — – ' \" ( ) , . : ; ! ? … / 1 2 5 12 30 00 007 1984 2024 1,234 3.14 .5 1/2 ½ ² ₂ ① Ⅷ e5 & &amp; "
    "@ é Éa word Word"
).split(" ")
PERSIAN_PIECES = (
    "می نمی می‌ خواهم رفته گفته خانه خانهٔ ام ای اند اش ی ها های هایی هاست تر ترین ترها کار کتاب این و که سه سی ه ش "
    "ق م ص ه.ش ق.م ص. م. امین مین ساعت میلیون تومان ٪ $ ﷼ km °C ۱ ۵ ۱۲ ۳۰ ۰۹۱۲ ۱۴۰۳ ۰۵ ٫ ٬ ، ؛ ؟ , ; ? . : ! … / - « "
    "» ½ + = & ¬ \u200b \u200c \u200d ـ ي ى ك ة ۀ أ إ ئ ء آ ە ے ۓ \u0654 \u0655 \u0653 \u064e \u0651 ﻼ ﷺ میخواهم "
    "نمیدانم ا د ر ب"
).split(" ")
HOSTILE_PIECES = ["\x00", "\n", "\t", "\u00a0", "\u200f", "\ud800", "\udfff", "\ue000", "\ue001", "\ufeff", "\uffff"]
HOSTILE_PIECES += ["\u0301", "\u0338", "\ufe0f", "😀", "👨\u200d👩", "1e999", "9" * 400, "一", "ก", "ि", "\u2028", " "]

any_text = st.text(st.characters(), max_size=60)
pieces = st.sampled_from([*ENGLISH_PIECES, *PERSIAN_PIECES, *HOSTILE_PIECES, *[" "] * 60])
composed_text = st.lists(pieces, max_size=12).map("".join)


def assert_is_normal(text: str) -> None:
    assert unicodedata.is_normalized("NFC", text)
    assert text == " ".join(text.split())
    assert not {unicodedata.category(char) for char in text} & {"Cc", "Cs", "Co", "Zl", "Zp"}


@pytest.mark.parametrize("language", CODES)
@given(text=any_text | composed_text)
@settings(max_examples=300, deadline=None)
def test_any_text_reaches_its_normal_form_at_once(language: str, text: str) -> None:
    normal = normalize_text(text, language)
    assert_is_normal(normal)
    assert normalize_text(normal, language) == normal


@pytest.mark.parametrize(
    "text",
    [
        *("5Dr. X", "Mr mrs. X", "Mr.II", "Gen. 5/17/2024", "Gen. jan. 5", "Gen. ph.d.", "Mt. St. Helens", "Co.Hwy. 5"),
        *(
            "Co.vs",
            "Co.a.m.",
            "fig. IV5",
            "fig. %IV",
            "Henry VIII5",
            "Henry II III",
            "War I I II",
            "#%x",
            "#$5",
            "5ms.",
        ),
        *(
            "M.com5",
            "M.com½",
            "%.com",
            "www.5",
            "5%.com",
            "-–5",
            "5\u0301",
            "Mr.\u0301",
            "IV\u0301",
            "°\u200d°",
            "a²\u0301",
        ),
        *("می کار هاست", "می کار هایی", "می خانه ام", "می می خواهم", "خشک تر ها", "ی\u200cق.م", "ه.ش\u200cه", "ه . ش"),
        *(
            ". …",
            "می \u0653ی",
            "ا\u0655\u0655",
            "ا\u0655\u0654",
            "ی\u0654\u0654",
            "ب¬5",
            "ب¬\x00پ",
            "م۾ ها",
            "۵ .ش",
            "می‌5",
        ),
    ],
)
@pytest.mark.parametrize("language", ["en", "fa", "de", "xx"])
def test_rules_that_meet_leave_nothing_for_a_second_run(language: str, text: str) -> None:
    normal = normalize_text(text, language)
    assert_is_normal(normal)
    assert normalize_text(normal, language) == normal


@pytest.mark.parametrize("language", ["en", "fa", "de"])
@given(text=composed_text)
@settings(max_examples=150, deadline=None)
def test_no_digit_is_left_where_numbers_are_spoken(language: str, text: str) -> None:
    assert not any(char.isdecimal() for char in normalize_text(text, language))


@pytest.mark.parametrize("language", ["en", "fa", "xx"])
@pytest.mark.parametrize("first", range(0, 0x30000, 0x4000))
def test_every_character_is_stable(language: str, first: int) -> None:
    text = " ".join(f"a{chr(code)}b {chr(code)}" for code in range(first, first + 0x4000))
    normal = normalize_text(text, language)
    assert_is_normal(normal)
    assert normalize_text(normal, language) == normal


@pytest.mark.parametrize("language", ["en", "fa", "de", "zh"])
@pytest.mark.parametrize(
    "unit",
    ["7", "1 ", "1.", "1,", "1-", "1/", "$1", "1,234,", "a", ".", "-", "Mr.", "War II ", "می ", "ها ", "ب\u200c"],
)
def test_long_text_takes_linear_time(language: str, unit: str) -> None:
    text = (unit * 30_000)[:30_000]
    started = time.process_time()
    normalize_text(text, language)
    split_sentences(text, language)
    # Quadratic time would be minutes.
    assert time.process_time() - started < 3.0


def test_threads_do_not_disturb_each_other() -> None:
    texts = [f"{number} {number},5" for number in range(300)] * 2
    alone = [normalize_text(text, "ar") for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: normalize_text(text, "ar"), texts)) == alone


def test_english_persian_and_the_languages_with_a_table_have_rules_of_their_own() -> None:
    assert {code for code, language in LANGUAGES.items() if language.normalize} == {"en", "fa", *TABLE_LANGUAGES}


@pytest.mark.parametrize("code", ["en", "EN", "en-us", "en_GB", " En-Latn-US "])
def test_only_the_first_part_of_a_language_code_counts(code: str) -> None:
    assert normalize_text("5%", code) == "five percent"


@pytest.mark.parametrize(
    ("language", "written", "said"),
    [
        ("de", "Das kostet 1.234,50 Euro.", "Das kostet eintausendzweihundertvierunddreißig Euro fünfzig."),
        ("de", "-5 Grad um 14:30", "minus fünf Grad um vierzehn Uhr dreißig"),
        ("de", "am 12.05.2024", "am zwölften Mai zweitausendvierundzwanzig"),
        ("de", "007", "null null sieben"),
        (
            "fr",
            "1 234 567 euros, 3,5 %",
            "un million deux cent trente-quatre mille cinq cent soixante-sept euros, trois virgule cinq pour cent",
        ),
        ("fr", "« l’été »", '" l\'été "'),
        ("ru", "3,14 и −5", "три запятая один четыре и минус пять"),
        ("ar", "٢٠ و ٣٫٥", "عشرون و ثلاثة فاصلة خمسة"),
        ("it", "3,14", "tre virgola quattordici"),
        ("tr", "0,5", "sıfır virgül beş"),
        ("vi", "-3", "âm ba"),
        ("es", "1.234.567", "un millón doscientos treinta y cuatro mil quinientos sesenta y siete"),
        ("ja", "第5章は3.14", "第五章は三点一四"),
        ("pl", "-1", "minus jeden"),
        ("nb", "21", "tjueen"),
        ("zh-cn", "我有３本书，好！", "我有3本书,好!"),
        ("hi", "५ किताबें", "5 किताबें"),
        ("am", "1984", "1984"),
        ("pt", "1" * 20, " ".join(["um"] * 20)),
    ],
)
def test_other_languages_speak_numbers_where_they_can(language: str, written: str, said: str) -> None:
    assert normalize_text(written, language) == said


@pytest.mark.parametrize("language", sorted(NUMBER_STYLES))
def test_every_language_with_a_number_style_spells_digits_and_large_numbers(language: str) -> None:
    for number in (*range(101), 1984, 10**6, 10**15 - 1):
        words = normalize_text(str(number), language)
        assert words
        assert not any(char.isdecimal() for char in words)
        assert normalize_text(words, language) == words


def test_a_number_without_num2words_names_the_extra_and_other_texts_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(MissingExtraError, match=r"num2words.*pip install 'myxtts\[numbers\]'"):
        normalize_text("Drei oder 48151623 Katzen", "de")
    assert normalize_text("Drei  Katzen", "de") == "Drei Katzen"
    assert normalize_text("4 cats", "en") == "four cats"
    assert normalize_text("۴ گربه", "fa") == "چهار گربه"
    assert normalize_text("५ किताबें", "hi") == "5 किताबें"


@pytest.mark.parametrize(
    ("written", "cleaned"),
    [
        ("ﬁne ｆｕｌｌ", "fine full"),
        ("e\u0301", "é"),
        ("a\u00a0\u2003b\r\nc", "a b c"),
        ("zero\u200bwidth\ufeff\u2060", "zerowidth"),
        ("‘a’ “b” „c“", '\'a\' "b" "c"'),
        ("a–b – c -- d", "a-b — c — d"),
        ("wait...", "wait…"),
        ("soft\u00adhyphen", "softhyphen"),
        ("\u202bא\u202c", "א"),
        ("क्\u200dष", "क्\u200dष"),
        ("a\u200db", "ab"),
        ("👨\u200d👩\u200d👧 ❤\ufe0f", "👨\u200d👩\u200d👧 ❤\ufe0f"),
        ("5½", "5 1/2"),
        ("10²³", "10 23"),
        ("H₂O", "H2O"),
        ("น้ำ", "น้ำ"),
        ("ㅋㅋ", "ㅋㅋ"),
        ("№ 5 ™", "№ 5 ™"),
        ("a\ud800\ue000\x07b", "ab"),
        ("Groß KLEIN", "Groß KLEIN"),
        ("ｶﾞ", "ガ"),
    ],
)
def test_unicode_is_cleaned_and_symbols_are_kept(written: str, cleaned: str) -> None:
    assert normalize_text(written, "xx") == cleaned


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "Hello. How are you? Fine!", ["Hello.", "How are you?", "Fine!"]),
        ("en", "Dr. Smith paid $3.50 to J. K. Doe. He left.", ["Dr. Smith paid $3.50 to J. K. Doe.", "He left."]),
        ("en", "See no. 5. He said no. Then he left.", ["See no. 5.", "He said no.", "Then he left."]),
        ("en", "Cats, dogs etc. Then more, e.g. This.", ["Cats, dogs etc.", "Then more, e.g. This."]),
        ("en", '"Really?" he asked. "Yes."', ['"Really?" he asked.', '"Yes."']),
        ("en", "Wait… what? Oh… No.", ["Wait… what?", "Oh…", "No."]),
        ("en", "one\ntwo\r\n\r\nthree", ["one", "two", "three"]),
        ("en", "1. First. 2. Second.", ["1. First.", "2. Second."]),
        ("en", "example.com is v1.2.3", ["example.com is v1.2.3"]),
        ("fa", "سلام. حالت چطور است؟ خوبم! بله؛ خوب.", ["سلام.", "حالت چطور است؟", "خوبم!", "بله؛ خوب."]),
        ("fa", "سال ۱۳۵۷ ه. ش. بود. ص. ۵ را ببین.", ["سال ۱۳۵۷ ه. ش. بود.", "ص. ۵ را ببین."]),
        ("de", "Am 3. Mai z. B. kam er. Gut.", ["Am 3. Mai z. B. kam er.", "Gut."]),
        ("zh", "你好。我很好！真的吗？", ["你好。", "我很好！", "真的吗？"]),
        ("hi", "नमस्ते। कैसे हो?", ["नमस्ते।", "कैसे हो?"]),
        ("en", "  \n ", []),
        ("en", "", []),
    ],
)
def test_text_is_split_into_sentences(language: str, text: str, sentences: list[str]) -> None:
    assert split_sentences(text, language) == sentences


@pytest.mark.parametrize("language", CODES)
@given(text=any_text | composed_text)
@settings(max_examples=100, deadline=None)
def test_splitting_keeps_every_character_but_space(language: str, text: str) -> None:
    sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def list_examples() -> list[tuple[str, str, str]]:
    """Language, written and spoken text of each docstring of the form "written → spoken"."""
    modules = {"en": (en, en_abbreviations, en_dates, en_numbers), "fa": (fa_numbers,)}
    return [
        (language, *function.__doc__.split(" → "))
        for language, several in modules.items()
        for module in several
        for function in vars(module).values()
        if getattr(function, "__module__", "") == module.__name__ and " → " in (function.__doc__ or "")
    ]


@pytest.mark.parametrize(("language", "written", "spoken"), list_examples())
def test_the_examples_in_docstrings_are_right(language: str, written: str, spoken: str) -> None:
    assert normalize_text(written, language) == spoken


COSTLY = ["\u0301\u0316", "\u0651\u064e", ".", "….", "؟", "ب. ", "e\u0301"]


@pytest.mark.parametrize("unit", COSTLY)
@pytest.mark.parametrize("language", ["en", "fa", "de"])
def test_time_grows_with_the_length_of_a_text(unit: str, language: str) -> None:
    def measure(length: int) -> float:
        text = "a" + unit * (length // len(unit)) + "ب"
        started = time.process_time()
        normalize_text(text, language)
        split_sentences(text, language)
        return time.process_time() - started

    measure(2_000)
    # Quadratic time would be 100 times as much.
    assert measure(80_000) < 20 * max(measure(8_000), 0.02)


def test_runs_of_marks_are_cut_and_letters_with_a_few_marks_are_kept() -> None:
    assert normalize_text("e\u0301\u0323 a", "en") == "ẹ\u0301 a"
    assert len(normalize_text("a" + "\u0301" * 1000, "en")) < 40
    assert normalize_text("مُحَمَّد", "fa") == "مُحَمَّد"
