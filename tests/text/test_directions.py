"""Pauses and [[IPA]] inside a text are read exactly; whatever else looks like a direction is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.text.directions import MAX_PAUSE_S, read_directions
from myxtts.text.languages import LANGUAGES
from myxtts.text.normalize import normalize_text
from myxtts.text.phonemes import split_clauses


def test_pauses_split_a_text_and_add_up() -> None:
    directed = read_directions("One. [pause 0.8s] <break time=\"200ms\"/> Two [pause 50 ms]<break time='1s'>")
    assert [(passage.text.strip(), passage.silence_s) for passage in directed.passages] == [
        ("One.", 0.0),
        ("Two", 1.0),
        ("", 1.05),
    ]


def test_text_without_directions_is_left_as_it_is() -> None:
    text = "As shown in [1], 3 < 5 and x[2] > 0 — (laughs) <3"
    (passage,) = read_directions(text).passages
    assert passage.text == text


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("Well [laughs] yes", "Line 1, character 6", "[laughs]"),
        ("One\ntwo <emphasis>three</emphasis>", "Line 2, character 5", "<emphasis>"),
        ("[pause]", "Line 1, character 1", "[pause]"),
        ("[pause 3]", "Line 1, character 1", "no length"),
        ('<break time="-1s"/>', "Line 1, character 1", "no length"),
        ("<break/>", "Line 1, character 1", "<break/>"),
        (f"[pause {MAX_PAUSE_S + 1:g}s]", "Line 1, character 1", "longer than"),
        ("a [[b", "Line 1, character 3", "[["),
        ("a b]]", "Line 1, character 4", "]]"),
        ("[[]]", "Line 1, character 1", "empty"),
        ("[[a9]]", "Line 1, character 1", "not known IPA: 9"),
        ("[[a. b]]", "Line 1, character 1", "punctuation"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(DataError) as caught:
        read_directions(text)
    assert place in caught.value.problem
    assert problem in caught.value.problem
    assert "[pause 0.8s]" in caught.value.next_step or "shorter" in caught.value.next_step


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_names_of_written_words_pass_through_every_normaliser(language: str) -> None:
    directed = read_directions("Hello [[a]][[b]], 25 [[ɹˈeɪzə]]. " + "[[o]] " * 900)
    words = [
        word
        for part in split_clauses(normalize_text(directed.passages[0].text, language)).parts
        for word in part.split()
    ]
    assert [word for word in words if word in directed.written] == list(directed.written)
    assert directed.restore("hi " + next(iter(directed.written))) == "hi [[a]]"


@given(st.text(alphabet="ab [<>]/=\"'pause0.8sm\nbrekt1", max_size=60))
def test_any_text_is_read_or_refused_and_no_word_is_lost(text: str) -> None:
    try:
        directed = read_directions(text)
    except DataError:
        return
    assert all(passage.silence_s >= 0 for passage in directed.passages)
    if not directed.written and len(directed.passages) == 1 and not directed.passages[0].silence_s:
        assert directed.passages[0].text == text
