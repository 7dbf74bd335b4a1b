"""Doubts about clips: planted faults are the worst, each with its own reason, and each speaker has its own scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from myxtts.tools.clips.doubt import Reason, judge_clips, standardize_by_speaker
from myxtts.tools.clips.phones import NOT_SPEECH, PhoneClassifier, count_features, make_features
from myxtts.tools.clips.scores import ClipScores, measure_sound

NUM_CLIPS = 400


def make_clips(seed: int = 0) -> tuple[list[ClipScores], list[str]]:
    """Clips of two speakers with different levels, rates and voices, and ordinary variation."""
    generator = np.random.default_rng(seed)
    clips, speakers = [], []
    for number in range(NUM_CLIPS):
        speaker = ("anna", "omid")[number % 4 == 0]
        offset = 1.0 if speaker == "omid" else 0.0
        draw = generator.normal(size=13)
        voice = np.zeros(16)
        voice[int(offset)] = 1.0
        voice += 0.05 * generator.normal(size=16)
        clips.append(
            ClipScores(
                id=f"clip{number:03}",
                row=number,
                fit=0.2 + 0.02 * draw[0],
                length_ratio=0.08 * draw[3] + 0.3 * offset,
                tail_ratio=0.1 * draw[4],
                token_error=0.3 + 0.04 * draw[5],
                rate=12 + 2 * offset + draw[6],
                level_db=-20 - 10 * offset + draw[7],
                noise_db=-60 - 5 * offset + 2 * draw[8],
                end_db=-35 + 3 * draw[9],
                f0=3 * offset + 0.3 * draw[10],
                spectrum=(3 * generator.normal(size=20) + 10 * offset * np.arange(20) / 20).astype(np.float32),
                voice=(voice / np.linalg.norm(voice)).astype(np.float32),
                margin=0.4 - 0.15 * offset + 0.06 * draw[12],
                goodness=-2 - offset + 0.3 * draw[1],
                tail_goodness=-2 + 0.4 * draw[2],
            )
        )
        speakers.append(speaker)
    return clips, speakers


def harm(clip: ClipScores, reason: Reason, stranger: ClipScores) -> ClipScores:
    if reason == Reason.TEXT:
        return replace(clip, margin=0.0)
    if reason == Reason.CUT:
        return replace(
            clip, length_ratio=clip.length_ratio - 0.3, tail_ratio=clip.tail_ratio - 0.5, end_db=clip.end_db + 15
        )
    if reason == Reason.VOICE:
        return replace(clip, voice=stranger.voice, spectrum=stranger.spectrum, f0=stranger.f0)
    return replace(clip, noise_db=clip.noise_db + 35)


PLANTED = (Reason.TEXT, Reason.CUT, Reason.VOICE, Reason.NOISE)


def test_planted_faults_are_the_worst_with_their_reasons() -> None:
    clips, speakers = make_clips()
    generator = np.random.default_rng(1)
    faults = {int(place): PLANTED[kind % 4] for kind, place in enumerate(generator.permutation(NUM_CLIPS)[:20])}
    strangers = {"anna": clips[0], "omid": clips[1]}
    for place, reason in faults.items():
        clips[place] = harm(clips[place], reason, strangers[speakers[place]])
    findings = judge_clips(clips, speakers)
    order = np.argsort([-finding.doubt for finding in findings])
    worst = set(order[: round(0.06 * NUM_CLIPS)].tolist())
    assert len(worst & set(faults)) >= 0.9 * len(faults)
    assert all(findings[place].reasons[0] == reason for place, reason in faults.items() if place in worst)
    good = [finding.doubt for place, finding in enumerate(findings) if place not in faults]
    assert all(0 <= finding.doubt <= 1 for finding in findings)
    assert np.median(good) < 0.1


def test_unusual_speaker_is_no_fault() -> None:
    clips, speakers = make_clips()
    doubts = np.array([finding.doubt for finding in judge_clips(clips, speakers)])
    is_quieter = np.array(speakers) == "omid"
    assert np.median(doubts[is_quieter]) < 2 * np.median(doubts[~is_quieter]) + 0.02


@pytest.mark.parametrize(("usual", "is_found"), [(0.3, True), (0.01, False)])
def test_margins_of_a_model_that_cannot_tell_texts_apart_say_nothing(usual: float, is_found: bool) -> None:
    clips, speakers = make_clips()
    generator = np.random.default_rng(1)
    clips = [replace(clip, margin=usual + 0.05 * generator.normal()) for clip in clips]
    clips[7] = replace(clips[7], margin=-0.05)
    reasons = [finding.reasons[:1] for finding in judge_clips(clips, speakers)]
    assert (reasons[7] == (Reason.TEXT,)) == is_found
    assert reasons.count((Reason.TEXT,)) <= 4


def test_speaker_with_few_clips_borrows_the_spread_of_all() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=300), [5.0, 5.0, 5.2]])
    speakers = np.array([0] * 300 + [1] * 3)
    z_scores = standardize_by_speaker(values, speakers, 0.01)
    assert abs(z_scores[-1]) < 1, "0.2 is little beside the spread of the other speaker"
    assert judge_clips([], []) == []


def test_sound_is_measured_without_a_model() -> None:
    generator = np.random.default_rng(0)
    quiet, loud = np.full((40, 20), -9.0, np.float32), np.full((60, 20), -2.0, np.float32)
    noise = 0.1 * generator.normal(size=(140, 20))
    clean = measure_sound(np.asarray(np.concatenate([quiet, loud, quiet]) + noise, np.float32))
    cut = measure_sound(np.concatenate([quiet, loud]))
    noisy = measure_sound(np.maximum(np.concatenate([quiet, loud, quiet]), -4.0))
    assert clean.level_db == pytest.approx(20 / np.log(10) * -2.0, abs=2)
    assert clean.level_db - clean.noise_db > 50
    assert cut.end_db == pytest.approx(0, abs=1)
    assert clean.end_db < -50
    assert noisy.level_db - noisy.noise_db < 20


def test_phone_classifier_tells_a_wrong_text_from_the_right_one() -> None:
    generator = np.random.default_rng(0)
    means_CM = generator.normal(size=(6, 20)).astype(np.float32)
    classifier = PhoneClassifier(6, count_features(20))
    clips = []
    for _ in range(60):
        labels_T = np.repeat(generator.integers(0, 6, 12), 10).astype(np.int32)
        mel_TM = (means_CM[labels_T] + 0.8 * generator.normal(size=(120, 20))).astype(np.float32)
        clips.append((make_features(mel_TM, np.ones(120, bool)), labels_T))
    for features, labels in clips:
        classifier.add(features, labels)
    classifier.fit()
    everything = (slice(None),)
    right = [classifier.score(features, labels, everything)[0] for features, labels in clips]
    wrong = [
        classifier.score(features, clips[place - 1][1], everything)[0] for place, (features, _) in enumerate(clips)
    ]
    assert max(wrong) < min(right) <= 0
    silent = np.full(120, NOT_SPEECH, np.int32)
    assert classifier.score(clips[0][0], silent, everything) == [0.0]
