"""Times of words and sentences come from the durations that are spoken; lengths are exact to a frame."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.errors import ConfigError, DataError, UsageError
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.timing import TimedSentence, TimedText, TimedWord, trim_silence, write_subtitles
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.text.frontend import FrontEnd

FRAME_S = DATA.hop_length / DATA.sample_rate
TEXT = "Some of the people, 25 of them. [pause 0.8s] It is a [[zˈuːmi]] day! Yes."
NOBODY = SpeakerEmbedding(np.zeros(8, np.float32), np.zeros((2, 8), np.float32))
SOMEBODY = SpeakerEmbedding(np.ones(8, np.float32), np.ones((2, 8), np.float32))


@pytest.fixture(scope="module", params=["phonemes", "characters"])
def speaker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Synthesizer:
    frontend = None
    if request.param == "phonemes":
        pytest.importorskip("espeakng_loader")
        frontend = FrontEnd.create("phonemes")
    return Synthesizer.load(write_small_bundle(tmp_path_factory.mktemp("timing") / "bundle", frontend=frontend))


def strip_ipa(speaker: Synthesizer, text: str) -> str:
    return text if speaker.loaded.frontend.kind == "phonemes" else text.replace("[[zˈuːmi]] ", "")


def test_words_follow_each_other_inside_their_sentences(speaker: Synthesizer) -> None:
    wave, sentences = speaker.say_timed(strip_ipa(speaker, TEXT), NOBODY, "en", num_steps=1)
    assert [item.text for item in sentences] == [
        "Some of the people, 25 of them.",
        strip_ipa(speaker, "It is a [[zˈuːmi]] day!"),
        "Yes.",
    ]
    spoken = [word.word for word in sentences[0].words]
    assert [
        word.strip(",.") for word in spoken
    ] == "Some of the people twenty five of them".split() or "twenty-five" in spoken
    last_s = 0.0
    for sentence in sentences:
        assert last_s <= sentence.start_s < sentence.end_s <= wave.duration_s + 1e-3
        for word in sentence.words:
            assert last_s <= word.start_s + 1e-6 <= word.end_s + 1e-6
            assert sentence.start_s - 1e-6 <= word.start_s
            assert word.end_s <= sentence.end_s + 1e-6
            last_s = word.end_s
    assert sentences[1].start_s - sentences[0].end_s == pytest.approx(0.8, abs=1e-3)


def test_words_without_a_mark_between_them_leave_no_gap(speaker: Synthesizer) -> None:
    _, (sentence,) = speaker.say_timed("Some of the people, most of them.", NOBODY, "en", num_steps=1)
    words = sentence.words
    gaps_s = [after.start_s - before.end_s for before, after in pairwise(words)]
    comma = next(place for place, word in enumerate(words) if word.word.startswith("people"))
    assert gaps_s.pop(comma) > 0
    assert gaps_s == pytest.approx([0.0] * len(gaps_s), abs=1e-6)


def test_pauses_that_are_asked_for_are_silent_and_as_long_at_any_speed(speaker: Synthesizer) -> None:
    for speed in (1.0, 2.0):
        wave, (first, second) = speaker.say_timed(
            "One two. [pause 0.8s] Three. [pause 0.5s]", NOBODY, "en", speed=speed, num_steps=1
        )
        pause = wave.samples[round(first.end_s * wave.rate) + 1 : round(second.start_s * wave.rate) - 1]
        assert len(pause) / wave.rate == pytest.approx(0.8, abs=2e-3)
        assert not pause.any()
        assert wave.duration_s - second.end_s == pytest.approx(0.5, abs=2e-3)


@pytest.mark.parametrize("scale", [0.6, 1.0, 2.5])
def test_a_text_lasts_as_long_as_asked_to_a_frame(speaker: Synthesizer, scale: float) -> None:
    text = "One two three. Four [pause 0.2s] five."
    seconds = round(scale * speaker.say(text, NOBODY, "en", num_steps=1).duration_s, 2)
    assert speaker.say(text, NOBODY, "en", seconds=seconds, num_steps=1).duration_s == pytest.approx(
        seconds, abs=FRAME_S
    )


def test_an_impossible_length_is_refused_with_what_is_possible(speaker: Synthesizer) -> None:
    with pytest.raises(DataError, match="at its own speed it takes") as caught:
        speaker.say("One two three four five six seven.", NOBODY, "en", seconds=0.1)
    assert "Give from" in caught.value.next_step
    with pytest.raises(ConfigError, match="speed and seconds"):
        speaker.say("One.", NOBODY, "en", seconds=2.0, speed=1.5)


def test_a_dialogue_is_each_voice_in_its_turn(speaker: Synthesizer) -> None:
    turns = [(NOBODY, "One two."), (SOMEBODY, "Three four. Five."), (NOBODY, "Six.")]
    wave, sentences = speaker.say_dialogue(turns, "en", num_steps=1)
    assert [item.text for item in sentences] == ["One two.", "Three four.", "Five.", "Six."]
    alone = speaker.say("One two.", NOBODY, "en", num_steps=1)
    np.testing.assert_array_equal(wave.samples[: len(alone.samples)], alone.samples)
    assert sentences[1].start_s - sentences[0].end_s > 0.4


def test_mixed_voices_are_between_their_parts(speaker: Synthesizer) -> None:
    loaded = speaker.loaded
    loaded.voices.save("one", NOBODY)
    loaded.voices.save("two", SOMEBODY)
    mixed = speaker.encode_voice({"one": 1.0, "two": 3.0})
    np.testing.assert_allclose(mixed.vector, 0.75, rtol=1e-6)
    with pytest.raises(UsageError, match="above 0"):
        speaker.encode_voice({"one": -1.0, "two": 3.0})


def test_stretching_keeps_the_order_and_gives_the_length() -> None:
    timed = TimedText((), np.array([3, 1, 0, 5, 2, 4, 0, 0], np.int32), 2, 3)
    for num_frames in (1, 7, 15, 44):
        stretched = timed.stretch(num_frames)
        assert stretched.num_frames == num_frames
        assert (stretched.state_frames >= 0).all()
        assert not stretched.state_frames[timed.state_frames == 0].any()
    assert timed.token_frames.tolist() == [4, 5, 6]


def test_subtitles_are_read_by_what_reads_subtitles(tmp_path: Path) -> None:
    words = (TimedWord("a<b", 0.25, 1.0), TimedWord("«سلام»", 1.0, 3661.5))
    sentences = [TimedSentence("a<b\n«سلام»", 0.25, 3661.5, words)]
    for ending in ("srt", "vtt", "json"):
        write_subtitles(tmp_path / f"x.{ending}", sentences)
    srt = (tmp_path / "x.srt").read_text(encoding="utf-8")
    assert srt == "1\n00:00:00,250 --> 01:01:01,500\na<b «سلام»\n\n"
    vtt = (tmp_path / "x.vtt").read_text(encoding="utf-8")
    assert vtt.startswith("WEBVTT\n\n00:00:00.250 --> 01:01:01.500\n<00:00:00.250><c>a&lt;b</c> <00:00:01.000>")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["sentences"][0]["words"][1]["end_s"] == 3661.5
    with pytest.raises(UsageError, match=r"\.srt"):
        write_subtitles(tmp_path / "x.txt", sentences)


def test_long_silence_at_the_ends_of_a_piece_is_cut_with_its_frames() -> None:
    mel_TM = np.full((100, 8), -11.0, np.float32)
    mel_TM[40:60] = -2.0
    timed = TimedText((), np.array([30, 0, 12, 18, 40, 0], np.int32), 2, 3)
    trimmed, short_TM = trim_silence(timed, mel_TM)
    assert len(short_TM) == trimmed.num_frames == 8 + 20 + 12
    np.testing.assert_array_equal(short_TM, mel_TM[32:72])
    # The border between the second and the third token is still behind frame 60.
    assert trimmed.token_frames.tolist() == [0, 28, 12]


def test_a_piece_without_silence_stays_as_it_is() -> None:
    mel_TM = np.random.default_rng(0).normal(-3.0, 0.1, (50, 8)).astype(np.float32)
    timed = TimedText((), np.array([10, 0, 20, 20], np.int32), 2, 2)
    trimmed, same_TM = trim_silence(timed, mel_TM)
    np.testing.assert_array_equal(same_TM, mel_TM)
    np.testing.assert_array_equal(trimmed.state_frames, timed.state_frames)
