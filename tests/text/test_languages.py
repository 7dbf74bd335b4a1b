"""One code for every spelling of a language, and texts in a script that their language does not use."""

from __future__ import annotations

import pytest

from myxtts.config.languages import describe_language
from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.text.espeak import list_voices
from myxtts.text.languages import LANGUAGES, canonical_language
from myxtts.text.normalize import normalize_text
from myxtts.text.script import check_scripts, wrong_script

PERSIAN = "سلام دنیا، حال شما چطور است؟"


@pytest.mark.parametrize(
    ("code", "spellings"),
    [
        ("en", ["en", "EN", "En", "en-US", "en_us", "en_AU", "eng", "english", "English (US)", "en_US.UTF-8", " en "]),
        ("de", ["de", "DE", "de_DE", "de-AT", "deu", "ger", "german", "Deutsch", "DEUTSCH", "de_DE@euro"]),
        ("fa", ["fa", "fa_IR", "fa-AF", "fas", "per", "pes", "prs", "farsi", "Persian", "Dari", "فارسی", "فارسي"]),
        ("fr", ["fr", "fr-FR", "fr-CA", "fra", "fre", "French", "français", "francais"]),
        ("es", ["es", "es_ES", "spa", "Spanish", "español", "espanol", "castellano"]),
        ("tr", ["tr", "tur", "Turkish", "Türkçe", "TÜRKÇE", "turkce"]),
        ("ar", ["ar", "ar-EG", "ara", "arb", "Arabic", "العربية"]),
        ("zh", ["zh", "zh-CN", "zh-Hant-TW", "cmn", "zho", "Chinese", "Mandarin", "中文", "Chinese (Simplified)"]),
        ("nb", ["nb", "no", "nor", "Norwegian", "norsk"]),
        ("ja", ["ja", "jp", "jpn", "日本語"]),
        ("yue", ["yue", "zh-HK", "zh_yue", "Cantonese"]),
    ],
)
def test_every_spelling_of_a_language_gives_one_code(code: str, spellings: list[str]) -> None:
    assert {canonical_language(spelling) for spelling in spellings} == {code}
    assert canonical_language(code) == code


@pytest.mark.parametrize(
    ("spelling", "code"),
    [("pt-BR", "pt-br"), ("Portuguese (Brazil)", "pt-br"), ("pt_PT", "pt"), ("en-GB", "en-gb"), ("es-MX", "es-419")],
)
def test_a_region_with_a_voice_of_its_own_is_kept(spelling: str, code: str) -> None:
    assert canonical_language(spelling) == code


def test_a_code_of_a_language_that_is_not_in_the_table_is_kept() -> None:
    assert canonical_language("GSW") == "gsw"
    assert canonical_language("xx-YY") == "xx-yy"


@pytest.mark.parametrize(("wrong", "near"), [("germann", "de (German)"), ("farsii", "fa (Persian)"), ("englsh", "en")])
def test_an_unknown_name_is_refused_with_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(DataError, match=f"no language '{wrong}'") as caught:
        canonical_language(wrong)
    assert near in caught.value.next_step


@pytest.mark.parametrize("wrong", ["", "  ", "12", "\x00", "\ud800", "-", "x" * 10_000, "ضصثقفغ"])
def test_what_is_no_language_is_refused_in_words(wrong: str) -> None:
    with pytest.raises(DataError, match="There is no language") as caught:
        canonical_language(wrong)
    assert "code such as en" in caught.value.next_step


def test_every_voice_of_espeak_has_a_name_and_scripts() -> None:
    codes = {code for voice in list_voices() for code, _ in voice.languages if voice.name != "xex"}
    for code in codes:
        named = describe_language(code)
        assert named is not None, code
        assert named.scripts, code


def test_the_languages_with_rules_are_named_by_their_canonical_codes() -> None:
    assert [code for code in LANGUAGES if canonical_language(code) != code and code != "no"] == []


def test_the_setting_takes_any_spelling() -> None:
    assert XTTSConfig(language="Farsi").data.language == "fa"
    assert XTTSConfig(language="pt_BR").data.language == "pt-br"


def test_text_is_normalised_alike_in_every_spelling() -> None:
    spoken = {normalize_text("Am 3. Mai 12 Uhr", language) for language in ("de", "DE", "de_AT", "German", "Deutsch")}
    assert len(spoken) == 1
    assert normalize_text("5 km", "no language at all") == "5 km"


@pytest.mark.parametrize(
    ("text", "language", "words", "suggested"),
    [
        (PERSIAN, "en", ["Arabic script", "Latin script", "English (en)", "100%"], "fa"),
        ("Hello there, my friend", "farsi", ["Latin script", "Arabic script", "Persian (fa)"], "en"),
        ("مرحبا بكم في المدينة", "de_DE", ["Arabic script", "German (de)"], "ar"),
        ("یہ ایک کتاب ہے", "en", ["Arabic script"], "ur"),
        ("東京タワー", "en", ["script"], "ja"),
        ("Добрый день", "fr", ["Cyrillic script", "French (fr)"], "ru"),
        ("שלום עולם", "en", ["Hebrew script"], "he"),
        ("ភាសាខ្មែរ", "en", ["Khmer script"], "km"),
    ],
)
def test_a_text_in_a_foreign_script_is_found(text: str, language: str, words: list[str], suggested: str) -> None:
    found = wrong_script(text, language)
    assert found is not None
    assert all(word in found.problem for word in words), found.problem
    assert found.language == suggested
    assert f"--language {suggested}" in found.next_step


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("iPhone 15 Pro را خریدم", "fa"),
        ("He said سلام and left.", "en"),
        ("OK", "fa"),
        ("x²", "fa"),
        ("۱۲۳ ۴۵۶", "en"),
        ("", "en"),
        ("Здраво svete", "sr"),
        ("日本語のテキスト", "ja"),
        ("你好，世界", "zh"),
        ("ＨＥＬＬＯ ＷＯＲＬＤ", "en"),
        ("Ceci est déjà vu, naïve Œuvre", "fr"),
        ("anything at all", "gsw"),
        (PERSIAN, "no language at all"),
        ("\ud800\ud800\ud800\ud800\ud800", "en"),
    ],
)
def test_a_text_in_the_right_script_or_of_an_unknown_language_is_fine(text: str, language: str) -> None:
    assert wrong_script(text, language) is None


def test_a_corpus_is_refused_where_most_of_its_texts_are_in_another_script() -> None:
    rows = [(PERSIAN, "en", f"row {number}") for number in range(6)] + [("A word or two", "en", "row 9")] * 4
    with pytest.raises(DataError, match=r"6 of 10 texts in the language 'en'.*row 0.*Arabic script") as caught:
        check_scripts(rows)
    assert "--language fa" in caught.value.next_step
    check_scripts(rows[2:])
