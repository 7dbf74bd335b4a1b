"""Where recordings are cut: in pauses, into clips of the wanted length, with nothing left out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.tools.collect.activity import LEVELS_PER_RECORD, RECORD_S, Activity
from myxtts.tools.collect.borders import TimedText, snap_to_pauses
from myxtts.tools.collect.cuts import Pause, Phrase, find_pauses, make_phrases, plan_clips, plan_pieces

LOUD_DB, QUIET_DB = -20.0, -60.0


def make_activity(*runs: tuple[float, float, float]) -> Activity:
    """Runs of (seconds, probability of speech, level)."""
    counts = [round(seconds / RECORD_S) for seconds, _, _ in runs]
    speech = np.repeat([probability for _, probability, _ in runs], counts).astype(np.float32)
    levels = np.repeat([level for _, _, level in runs], np.array(counts) * LEVELS_PER_RECORD).astype(np.float32)
    return Activity(speech, levels, np.zeros(len(speech)))


def test_a_pause_is_cut_at_its_quietest_place() -> None:
    breath = [(0.3, 0.0, -35.0), (0.2, 0.0, QUIET_DB)]
    pauses = find_pauses(make_activity((1, 0, QUIET_DB), (3, 1, LOUD_DB), *breath, (3, 1, LOUD_DB), (1, 0, QUIET_DB)))
    assert len(pauses) == 3
    assert pauses[1].start_s == pytest.approx(4, abs=RECORD_S)
    assert pauses[1].cut_s > pauses[1].start_s + 0.3


def test_a_syllable_that_the_detector_missed_is_not_in_the_pause() -> None:
    """It is as loud as speech, and only the closure of a consonant is between them."""
    missed = [(0.7, 0.0, QUIET_DB), (0.16, 0.2, LOUD_DB), (0.064, 0.1, QUIET_DB)]
    first, last = find_pauses(make_activity(*missed, (3, 1, LOUD_DB), (1, 0, QUIET_DB)))
    assert first.end_s == pytest.approx(0.7, abs=RECORD_S)
    assert last.length_s == pytest.approx(1, abs=RECORD_S)
    assert first.start_s == 0.0


def test_neither_a_short_drop_nor_a_loud_one_is_a_pause() -> None:
    """The detector fails for a moment inside words, and where music goes on."""
    drops = [(0.1, 0.0, QUIET_DB), (2, 1, LOUD_DB), (0.5, 0.1, LOUD_DB - 3)]
    assert len(find_pauses(make_activity((1, 0, QUIET_DB), (2, 1, LOUD_DB), *drops, (2, 1, LOUD_DB)))) == 2


def test_a_click_is_no_speech() -> None:
    assert len(find_pauses(make_activity((2, 0, QUIET_DB), (0.06, 0.9, LOUD_DB), (2, 0, QUIET_DB)))) == 1


def test_speech_without_a_pause_stays_whole() -> None:
    pauses = find_pauses(make_activity((1, 0, QUIET_DB), (20, 1, LOUD_DB), (1, 0, QUIET_DB)))
    (span,) = plan_clips(make_phrases(pauses), 2, 12)
    assert span.duration_s > 20


def test_a_short_phrase_gets_wider_margins() -> None:
    pauses = find_pauses(make_activity((3, 0, QUIET_DB), (1.2, 1, LOUD_DB), (3, 0, QUIET_DB)))
    (span,) = plan_clips(make_phrases(pauses), 2, 12)
    assert 2.0 <= span.duration_s <= 2.1


def make_pauses(lengths: list[tuple[float, float]]) -> list[Pause]:
    """Pauses from pairs of their length and that of the speech behind them."""
    pauses, position = [], 0.0
    for pause_s, speech_s in lengths:
        pauses.append(Pause(position, position + pause_s, position + pause_s / 2))
        position += pause_s + speech_s
    return pauses


LENGTHS = st.lists(st.tuples(st.floats(0.15, 4.0), st.floats(0.1, 15.0)), min_size=2, max_size=40)


@given(LENGTHS, st.floats(1.0, 4.0), st.floats(6.0, 15.0))
def test_every_phrase_is_in_one_clip_and_every_cut_in_a_pause(
    lengths: list[tuple[float, float]], min_s: float, max_s: float
) -> None:
    pauses = make_pauses(lengths)
    phrases = make_phrases(pauses)
    spans = plan_clips(phrases, min_s, max_s)
    assert [phrase for span in spans for phrase in span.phrases] == phrases
    for span in spans:
        for place in (span.start_s, span.end_s):
            assert any(pause.start_s <= place <= pause.end_s for pause in pauses)
        assert len(span.phrases) == 1 or span.duration_s <= max_s
    assert all(first.end_s <= second.start_s + 1e-6 for first, second in pairwise(spans))


def test_a_doubtful_phrase_does_not_spoil_its_neighbours() -> None:
    pauses = make_pauses([(0.5, 2.0)] * 4)
    phrases = [Phrase(*pair, text="a", doubt="x" * (number == 1)) for number, pair in enumerate(pairwise(pauses))]
    assert [span.doubt for span in plan_clips(phrases, 2, 12)].count("x") == 1


def test_another_voice_has_clips_of_its_own() -> None:
    pauses = make_pauses([(0.5, 2.0)] * 4)
    phrases = [Phrase(*pair, strangeness=1.5 * (number == 2)) for number, pair in enumerate(pairwise(pauses))]
    spans = plan_clips(phrases, 2, 12)
    assert [len(span.phrases) for span in spans if span.strangeness > 1] == [1]
    assert sum(len(span.phrases) for span in spans) == len(phrases)


def test_voices_are_compared_in_pieces_without_a_longer_pause() -> None:
    phrases = make_phrases(make_pauses([(0.5, 1.0), (0.2, 0.8), (0.5, 3.0), (0.2, 3.0), (0.6, 0.3), (0.5, 0.1)]))
    assert [len(piece.phrases) for piece in plan_pieces(phrases)] == [2, 1, 1]


def test_texts_without_a_pause_between_are_joined() -> None:
    pauses = make_pauses([(0.5, 4.0), (0.5, 3.0), (0.5, 0.1)])
    texts = [TimedText("one", 0.6, 2.5), TimedText("two", 2.5, 4.4), TimedText("three", 5.1, 7.9)]
    snapped = snap_to_pauses(texts, pauses, 0.6)
    assert [(phrase.text, phrase.start_s, phrase.doubt) for phrase in snapped.phrases] == [
        ("one two", 0.5, ""),
        ("three", 5.0, ""),
    ]
    assert snapped.silent == []


def test_speech_that_belongs_to_no_text_is_left_out() -> None:
    pauses = make_pauses([(0.5, 3.0)] * 4)
    texts = [TimedText("one", 0.5, 3.5, is_alone=True), TimedText("three", 7.5, 10.5)]
    phrases = snap_to_pauses(texts, pauses, 0.6).phrases
    assert [(phrase.start_s, phrase.end_s) for phrase in phrases] == [(0.5, 3.5), (7.5, 10.5)]
    assert len(plan_clips(phrases, 2, 12)) == 2


def test_a_text_whose_borders_fall_into_one_pause_stays_with_its_neighbour() -> None:
    """A short sentence must not vanish from the text of the clip that it is spoken in."""
    pauses = make_pauses([(0.5, 4.0), (0.5, 3.0), (0.5, 0.1)])
    texts = [TimedText("one", 0.6, 3.7), TimedText("short", 3.9, 4.5), TimedText("two", 5.0, 8.0)]
    assert [phrase.text for phrase in snap_to_pauses(texts, pauses, 0.8).phrases] == ["one short", "two"]


def test_a_text_far_from_any_pause_is_in_doubt() -> None:
    pauses = make_pauses([(0.5, 20.0), (0.5, 3.0)])
    snapped = snap_to_pauses([TimedText("middle", 9.0, 12.0)], pauses, 0.6)
    assert [phrase.doubt for phrase in snapped.phrases] == ["no pause is near its start"]
