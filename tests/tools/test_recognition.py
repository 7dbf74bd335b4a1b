"""Errors of a recogniser are counted as people count them, and a command that fails says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.errors import ConfigError, UsageError
from myxtts.tools.recognition import Mistakes, Recogniser, count_edits, count_mistakes

words = st.lists(st.sampled_from("abc"), max_size=8)


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("flaw", "lawn", 2)]
)
def test_edits_are_the_fewest(one: str, other: str, expected: int) -> None:
    assert count_edits(one, other) == expected


@given(words, words, words)
def test_edits_are_a_distance(one: list[str], other: list[str], third: list[str]) -> None:
    assert count_edits(one, other) == count_edits(other, one)
    assert (count_edits(one, other) == 0) == (one == other)
    assert count_edits(one, third) <= count_edits(one, other) + count_edits(other, third)
    assert abs(len(one) - len(other)) <= count_edits(one, other) <= max(len(one), len(other))


def test_case_and_punctuation_do_not_count() -> None:
    assert count_mistakes("Don't stop, Anna!", "dont stop anna") == Mistakes(0, 3, 0, 14)
    assert count_mistakes("می‌روم؟", "میروم").num_word_edits == 0
    assert count_mistakes("one two three", "one too").num_word_edits == 2


def test_a_command_hears_what_it_prints(tmp_path: Path) -> None:
    program = "import sys; print(sys.argv[1:])"
    heard = Recogniser(f"{sys.executable} -c '{program}' {{language}} '{{wav}};x'").hear(tmp_path / "a b.wav", "fa")
    assert heard.strip() == str(["fa", f"{tmp_path / 'a b.wav'};x"])


@pytest.mark.parametrize("command", ["asr", "asr '{wav}", ""])
def test_a_command_without_a_place_for_the_recording_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match="command"):
        Recogniser(command)


@pytest.mark.parametrize("command", ["/nowhere/asr {wav}", f"{sys.executable} -c 'raise SystemExit(3)' {{wav}}"])
def test_a_command_that_fails_is_named(tmp_path: Path, command: str) -> None:
    with pytest.raises(ConfigError, match="failed"):
        Recogniser(command).hear(tmp_path / "a.wav", "en")
