"""`explain` shows every word of a text with its IPA and where that comes from, and agrees with what is encoded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.myxtts_process import run_myxtts

from myxtts.errors import ConfigError
from myxtts.text.frontend import FrontEnd
from myxtts.text.tokenizer import PhonemeTokenizer
from myxtts.text.word_cuts import cut_at_words

pytest.importorskip("espeakng_loader")
WORDS = ["some", "of", "the", "people", "it", "is", "a", "going", "to", "book", "one", "that", "was", "in"]


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> FrontEnd:
    lexicon = tmp_path_factory.mktemp("lexicon") / "words.tsv"
    lexicon.write_text("tomato\ttəmˈɑːtoʊ\n", encoding="utf-8")
    return FrontEnd.create("phonemes", str(lexicon))


def test_words_come_with_their_ipa_and_its_origin(frontend: FrontEnd) -> None:
    explained = frontend.explain("Dr. Lee ate some of the 3 tomato [[zˈuːmi]] [pause 1s] 🙂.", "en")
    assert explained.normalized == "Doctor Lee ate some of the three tomato [[zˈuːmi]] 🙂."
    found = {word.word: (word.ipa, word.source) for word in explained.words}
    assert list(found) == ["Doctor", "Lee", "ate", "some", "of", "the", "three", "tomato", "[[zˈuːmi]]"]
    assert found["of"] == ("ʌv", "espeak")
    assert found["the"] == ("ðə", "espeak")
    assert found["tomato"] == ("təmˈɑːtoʊ", "lexicon")
    assert found["[[zˈuːmi]]"] == ("zˈuːmi", "written")
    assert explained.unknown == ("🙂",)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
def test_the_words_together_are_what_is_encoded(frontend: FrontEnd, words: list[str]) -> None:
    explained = frontend.explain(" ".join(words), "en")
    assert [word.word for word in explained.words] == words
    encoded = frontend.encode(" ".join(words), "en")
    together = PhonemeTokenizer().encode("".join(word.ipa for word in explained.words).replace(" ", ""))
    spoken = PhonemeTokenizer().encode(frontend.tokenizer.decode(encoded.ids).replace(" ", ""))
    assert together.ids.tolist() == spoken.ids.tolist()
    assert all(word.ipa for word in explained.words)


def test_joined_words_are_cut_where_they_meet() -> None:
    assert cut_at_words("ʌvðə bˈɛst", ["ʌv", "ðə", "bˈɛst"]) == ["ʌv", "ðə", "bˈɛst"]
    assert cut_at_words("dˌʌbəl juː", ["dˌʌbəljˈuː"]) == ["dˌʌbəl juː"]


def test_a_model_of_characters_has_words_and_no_ipa() -> None:
    frontend = FrontEnd.create("characters", texts=[("the quick fox 3", "en")])
    explained = frontend.explain("The fox", "en")
    assert [(word.word, word.ipa, word.source) for word in explained.words] == [
        ("The", "", "characters"),
        ("fox", "", "characters"),
    ]
    with pytest.raises(ConfigError, match="characters"):
        frontend.explain("The [[fɑks]]", "en")


def test_the_command_prints_one_object_for_each_line_and_names_a_bad_one(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("حال شما چطور است؟\n۲۵ کتاب\n", encoding="utf-8")
    done = run_myxtts("explain", "--file", texts, "--language", "fa", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == texts.read_text(encoding="utf-8").splitlines()
    assert rows[1]["normalized"] == "بیست و پنج کتاب"
    assert set(rows[0]["words"][0]) == {"word", "ipa", "source", "ezafe"}
    texts.write_text("one\ntwo [laughs]\n", encoding="utf-8")
    done = run_myxtts("explain", "--file", texts, "--language", "en")
    assert done.returncode != 0
    assert f"{texts}:2" in done.stderr
    done = run_myxtts("explain", "سلام دوست من", "--language", "en")
    assert "--language fa" in done.stderr or "--language ar" in done.stderr
