"""The whole model: sizes, names of weights, and synthesis that depends on what it should and on nothing else."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.models.toys import N_MELS, make_config, make_part, make_spec, stir_weights

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.models.layers import ModelLayer
from myxtts.models.modulation import filter_frames, make_neutral_taps
from myxtts.models.prosody import calibrate_length_factor, compute_frames, round_frames
from myxtts.models.reference_encoder import Voice
from myxtts.models.spec import ModelSpec
from myxtts.models.text_encoder import find_states, unpack_factors
from myxtts.models.xtts import XTTS
from myxtts.text.inventory import SPECIALS, STANDARD_INVENTORY, pack_factors

NUM_FRAMES = 160
SHARPENING = np.array([0, 0, 0, 0, 0, 0, -0.25, 1.5, -0.25, 0, 0, 0, 0, 0, 0], np.float32)


@cache
def make_model(block: str = "convolution") -> XTTS:
    model = XTTS(make_config(block), make_spec())
    stir_weights(model)
    # Short states, so that the toy says all of it within NUM_FRAMES.
    kernel = model.prosody_predictor.log_frames.kernel
    kernel.assign(0.1 * kernel)
    return model


def speak(model: XTTS, num_tokens: int = 8, num_frames: int = NUM_FRAMES, rows: int = 2, **options: Any) -> Any:
    part = make_part(model.spec, [30, 20][:rows], [8, 5][:rows], num_tokens=num_tokens)
    voice = model.encode_voice(part["reference"], part["reference_lengths"])
    return model.synthesize_mel(
        part["tokens"], part["token_lengths"], part["language"], voice, num_frames=num_frames, **options
    )


@pytest.mark.parametrize(("size", "num_millions"), [("tiny", 4), ("small", 18), ("normal", 80), ("big", 350)])
def test_sizes_are_what_they_are_called(size: str, num_millions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    # Counted, not made: the biggest would take more than a gigabyte.
    monkeypatch.setattr(ModelLayer, "make_weight", lambda _layer, shape, *_: counts.append(math.prod(shape)))
    spec = ModelSpec(
        STANDARD_INVENTORY.factor_sizes,
        len(SPECIALS),
        80,
        ("en",),
        ("ann", "bob"),
        (0.0,) * 80,
        1.0,
        86.1,
        tuple(range(80)),
    )
    XTTS(XTTSConfig(model_size=size).model, spec)
    assert sum(counts) == pytest.approx(num_millions * 1e6, rel=0.1)


def test_names_of_weights_are_complete_and_the_same_every_time() -> None:
    first, second = (XTTS(make_config(), make_spec()).named_weights() for _ in range(2))
    assert {name: weight.shape for name, weight in first.items()} == {n: w.shape for n, w in second.items()}
    assert len(first) == len(make_model().variables)
    assert {"length_factor", "modulation_taps"} <= set(first)
    assert "text_encoder.blocks.0.convolution.kernel" in first


def test_a_model_of_one_speaker_has_no_classifier() -> None:
    assert not [name for name in XTTS(make_config(), make_spec(1)).named_weights() if "classifier" in name]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=9))
def test_ids_are_parted_as_the_front_end_packs_them(factors: list[tuple[int, ...]]) -> None:
    sizes = (9, 2, 3)
    ids = tf.constant(pack_factors(np.asarray(factors), sizes)[None])
    found = np.stack([part.numpy()[0] for part in unpack_factors(ids, sizes)], axis=-1)
    assert found.tolist() == [list(row) for row in factors]


def test_phones_have_two_states_and_punctuation_one() -> None:
    tokens = tf.constant([[2 * 6, 3 * 6 + 5, 8 * 6, 4 * 6], [0, 0, 0, 0]])
    states = find_states(tokens, tf.constant([3, 0]), make_spec()).numpy().astype(int).tolist()
    assert states == [[1, 0, 1, 1, 1, 1, 0, 0], [0] * 8]


@pytest.mark.parametrize("block", ["convolution", "transformer"])
def test_padding_changes_no_speech(block: str) -> None:
    model = make_model(block)
    mel, lengths, durations = speak(model)
    longer_mel, longer_lengths, longer_durations = speak(model, num_tokens=13, num_frames=NUM_FRAMES + 7)
    np.testing.assert_array_equal(lengths, longer_lengths)
    np.testing.assert_array_equal(durations, longer_durations[:, :8])
    assert lengths.numpy().max() < NUM_FRAMES, "the toy speaks too slowly for this test"
    for row, length in enumerate(lengths.numpy()):
        np.testing.assert_allclose(mel[row, :length], longer_mel[row, :length], atol=1e-3)


def test_synthesis_follows_its_seed_and_says_what_it_made() -> None:
    model = make_model()
    (mel, lengths, durations), (again, *_), (other, *_) = (speak(model, seed=seed) for seed in (1, 1, 2))
    assert mel.shape == (2, NUM_FRAMES, N_MELS)
    np.testing.assert_array_equal(tf.reduce_sum(durations, axis=1), lengths)
    np.testing.assert_array_equal(mel, again)
    assert not np.allclose(mel, other)
    assert np.isfinite(mel).all()


def test_compiled_synthesis_says_the_same() -> None:
    model = make_model()
    # Without noise, because compiled graphs draw other numbers from the same seed.
    plain = speak(model, noise_scale=0.0)
    compiled = tf.function(lambda: speak(model, noise_scale=0.0), jit_compile=True, autograph=False)()
    np.testing.assert_array_equal(plain[1], compiled[1])
    np.testing.assert_allclose(plain[0], compiled[0], atol=1e-3)


def test_speed_shortens_and_the_length_factor_stretches() -> None:
    model = make_model()
    normal = speak(model)[1].numpy()
    assert (speak(model, speed=0.25)[1].numpy() > normal).all()
    model.set_length_factor(4.0)
    stretched = speak(model)[1].numpy()
    model.set_length_factor(1.0)
    np.testing.assert_array_equal(stretched, speak(model, speed=0.25)[1])


@pytest.mark.parametrize("block", ["convolution", "transformer"])
@pytest.mark.parametrize("context", [0, 2, 4, None])
def test_a_token_sounds_as_its_context_says_and_no_more(block: str, context: int | None) -> None:
    model = XTTS(make_config(block, text_context=context), make_spec())
    stir_weights(model)
    part = make_part(model.spec, [30], [8])
    voice = model.encode_voice(part["reference"], part["reference_lengths"])

    def encode(tokens: Any) -> Any:
        return model.encode_text(tokens, part["token_lengths"], part["language"], voice).features_BNW[0].numpy()

    tokens = part["tokens"].numpy()
    before = encode(part["tokens"])
    tokens[0, 0] = tokens[0, 0] % 50 + 1
    after = encode(tf.constant(tokens))
    changed = np.abs(after - before).max(axis=-1) > 1e-6
    reached = 7 if context is None else context
    assert changed[: reached + 1].all()
    assert not changed[reached + 1 :].any()


def test_a_spectrogram_passes_the_filter_of_the_model() -> None:
    model = make_model()
    mel, lengths, _ = speak(model)
    model.set_modulation_taps(SHARPENING)
    filtered, *_ = speak(model)
    model.set_modulation_taps(make_neutral_taps())
    for row, length in enumerate(lengths.numpy()):
        alone = filter_frames(mel[row : row + 1, :length], lengths[row : row + 1], SHARPENING)[0]
        np.testing.assert_allclose(filtered[row, :length], alone, atol=1e-4)
        assert not np.allclose(filtered[row, :length], mel[row, :length], atol=1e-2)


def test_guidance_leads_away_from_no_voice_only_where_there_are_many() -> None:
    many, one = make_model(), XTTS(make_config(), make_spec(1))
    stir_weights(one)
    assert not np.allclose(speak(many)[0], speak(many, guidance=2.0)[0])
    np.testing.assert_array_equal(speak(one)[0], speak(one, guidance=2.0)[0])


def test_another_voice_speaks_otherwise() -> None:
    model = make_model()
    part = make_part(model.spec, [30, 30], [8, 8])
    tokens, lengths = tf.tile(part["tokens"][:1], [2, 1]), tf.tile(part["token_lengths"][:1], [2])
    voice = model.encode_voice(part["reference"], part["reference_lengths"])
    states = model.encode_text(tokens, lengths, tf.zeros(2, tf.int32), voice)
    assert not np.allclose(states.means_BSM[0], states.means_BSM[1])
    in_languages = model.encode_text(tokens, lengths, tf.constant([0, 1]), Voice(*(v[:1] for v in voice)))
    assert not np.allclose(in_languages.means_BSM[0], in_languages.means_BSM[1])


def test_alignment_of_a_batch_fills_every_utterance() -> None:
    model = make_model()
    part = make_part(model.spec, [30, 20, 0, 2], [8, 5, 0, 8])
    found = model.align(part)
    assert found.is_aligned_B.numpy().tolist() == [True, True, False, False]
    np.testing.assert_array_equal(tf.reduce_sum(found.token_durations_BN, axis=1)[:2], [30, 20])
    assert (found.token_durations_BN[1, :5].numpy() > 0).all()


@given(st.lists(st.floats(1.0, 9.0, width=32), min_size=1, max_size=30))
def test_rounding_loses_no_time_and_no_state(frames: list[float]) -> None:
    rounded = round_frames(tf.constant([frames])).numpy()[0]
    assert (rounded >= 1).all()
    assert np.abs(np.cumsum(rounded) - np.cumsum(frames)).max() <= 0.51


def test_states_last_at_least_a_frame_and_never_for_ever() -> None:
    log_frames = tf.constant([[-9.0, 2.0, 99.0, 1.0]])
    frames = compute_frames(log_frames, tf.constant([[True, True, True, False]]), 1.5).numpy()[0]
    assert frames[0] == 1.0
    assert frames[1] == pytest.approx(1.5 * np.exp(2))
    assert frames[2] < 1000
    assert frames[3] == 0.0


def test_the_length_factor_makes_lengths_equal_in_sum() -> None:
    assert calibrate_length_factor([90, 110], [110, 130]) == pytest.approx(1.2)
    assert calibrate_length_factor([1], [1000]) == 2.0


@pytest.mark.parametrize(("predicted", "real"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [5.0])])
def test_a_length_factor_from_nothing_is_refused(predicted: list[float], real: list[float]) -> None:
    with pytest.raises(DataError, match="length factor"):
        calibrate_length_factor(predicted, real)
