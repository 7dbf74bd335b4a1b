"""The loss counts real utterances only, is the same for the same seed and step, and teaches each part its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.models.toys import make_config, make_part, make_spec, stir_weights

from myxtts.models.decoder import PhoneClassifier
from myxtts.models.xtts import XTTS
from myxtts.training.learner import select_trained
from myxtts.training.optimizer import AdamW
from myxtts.training.step import TrainStep
from myxtts.training.terms import VOICE
from myxtts.training.voice.losses import VoiceLoss

LENGTHS = ([30, 21, 40], [8, 5, 7])
OF_CLASSIFIER = {"phone", "phone_classifier"}
TERMS = {term.name for term in VOICE.terms} - OF_CLASSIFIER


@cache
def make_model(num_speakers: int = 3, block: str = "convolution", *, phone_classifier: bool = False) -> XTTS:
    config = make_config(block).model_copy(update={"phone_classifier": phone_classifier})
    model = XTTS(config, make_spec(num_speakers))
    stir_weights(model)
    return model


def measure(
    part: dict[str, Any], *, model: XTTS | None = None, training: bool = True, step: int = 0, **options: Any
) -> tuple[float, dict[str, float]]:
    options = {"seed": 3, "crop_frames": 16, **options}
    loss, sums = VoiceLoss(**options)(model or make_model(), part, training, tf.constant(step, tf.int64))
    return float(loss), {name: float(value) for name, value in sums.items()}


def find_gradients(part: dict[str, Any], term: str, model: XTTS | None = None) -> dict[str, float]:
    """The size of the gradient of one term for each part of the model."""
    model = model or make_model()
    weights = {name: weight.value for name, weight in model.named_weights().items() if weight.trainable}
    with tf.GradientTape() as tape:
        _, sums = VoiceLoss(3, crop_frames=16)(model, part, True, tf.constant(5, tf.int64))
    gradients = tape.gradient(sums[term], weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    totals: dict[str, float] = {}
    for name, gradient in gradients.items():
        room = name.partition(".")[0]
        totals[room] = totals.get(room, 0.0) + float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(gradient))))
    return totals


def test_every_term_is_there_and_finite() -> None:
    loss, sums = measure(make_part(make_spec(), *LENGTHS))
    assert set(sums) == TERMS
    assert np.isfinite([loss, *sums.values()]).all()
    weights = {"flow": 1.0, "prior": 10.0, "duration": 0.5, "pitch": 0.25, "speaker": 0.1}
    assert loss == pytest.approx(sum(weight * sums[term] for term, weight in weights.items()), 1e-5)


def test_one_speaker_has_no_speaker_term() -> None:
    _, sums = measure(make_part(make_spec(1), *LENGTHS), model=make_model(1))
    assert set(sums) == TERMS - {"speaker", "speaker_accuracy"}


def test_the_phone_classifier_learns_from_recordings_and_teaches_the_decoder() -> None:
    part, model = make_part(make_spec(), *LENGTHS), make_model(phone_classifier=True)
    loss, sums = measure(part, model=model)
    assert set(sums) == TERMS | OF_CLASSIFIER
    assert sums["phone"] > 0
    assert loss > sum(term.weight * sums[term.name] for term in VOICE.terms if term.name not in OF_CLASSIFIER)
    classifier = find_gradients(part, "phone_classifier", model)
    assert {name for name, size in classifier.items() if size > 0} == {"phone_classifier"}
    decoder = find_gradients(part, "phone", model)
    assert decoder["phone_classifier"] == 0
    assert decoder["decoder"] > 0


def test_a_frozen_phone_classifier_reads_the_same() -> None:
    classifier = PhoneClassifier(8, 5)
    mel = tf.random.stateless_normal([2, 12, 8], [1, 2])
    assert np.array_equal(classifier(mel), classifier(mel, is_frozen=True))


def test_it_follows_seed_and_step() -> None:
    part = make_part(make_spec(), *LENGTHS)
    assert measure(part) == measure(part)
    assert measure(part)[0] != measure(part, step=1)[0]
    assert measure(part)[0] != measure(part, seed=2**32 - 1)[0]


def test_parts_with_other_utterances_draw_other_numbers() -> None:
    part = make_part(make_spec(), *LENGTHS)
    other = dict(part, tokens=tf.concat([part["tokens"][:, :1] + 1, part["tokens"][:, 1:]], axis=1))
    spread = [abs(measure(other, step=step)[0] - measure(part, step=step)[0]) for step in range(3)]
    assert min(spread) > 1e-3


def test_rows_that_fill_the_shape_count_for_nothing() -> None:
    model = make_model()
    real = make_part(model.spec, *LENGTHS)
    filled = make_part(model.spec, [*LENGTHS[0], 0], [*LENGTHS[1], 0], padding=1e4)
    # Their random numbers differ with the shape, so only what has none is compared.
    (_, expected), (_, found) = (measure(part, model=model, training=False) for part in (real, filled))
    for name in TERMS - {"flow"}:
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name
    gradients = find_gradients(filled, "flow")
    assert np.isfinite(list(gradients.values())).all()


def test_a_part_without_utterances_is_worth_nothing() -> None:
    part = make_part(make_spec(), [0, 0], [0, 0])
    loss, sums = measure(part)
    assert loss == 0.0
    assert set(sums.values()) == {0.0}
    assert set(find_gradients(part, "flow").values()) == {0.0}


def test_an_utterance_with_too_few_frames_is_counted_and_left_out() -> None:
    both, alone = make_part(make_spec(), [30, 3], [8, 8]), make_part(make_spec(), [30, 0], [8, 0])
    (loss, sums), (_, expected) = (measure(part, training=False) for part in (both, alone))
    assert np.isfinite(loss)
    assert (sums["unaligned"], expected["unaligned"]) == (1.0, 0.0)
    for name in ("prior", "duration"):
        assert sums[name] == pytest.approx(expected[name], rel=1e-4)
    assert np.isfinite(list(find_gradients(both, "prior").values())).all()


def test_each_term_teaches_only_what_it_should() -> None:
    part = make_part(make_spec(), *LENGTHS)
    rooms = {
        term: {room for room, total in find_gradients(part, term).items() if total > 0}
        for term in ("flow", "prior", "duration", "pitch", "speaker")
    }
    assert rooms == {
        "flow": {"decoder", "text_encoder", "reference_encoder"},
        "prior": {"text_encoder", "reference_encoder"},
        "duration": {"prosody_predictor"},
        "pitch": {"prosody_predictor"},
        "speaker": {"reference_encoder", "speaker_classifier"},
    }


def test_the_means_learn_nothing_from_the_flow() -> None:
    model = make_model()
    with tf.GradientTape() as tape:
        _, sums = VoiceLoss(3, crop_frames=16)(model, make_part(model.spec, *LENGTHS), True, tf.constant(0, tf.int64))
    assert tape.gradient(sums["flow"], model.text_encoder.means.kernel.value) is None


def test_given_durations_take_the_place_of_the_search() -> None:
    model = make_model()
    part = make_part(model.spec, *LENGTHS)
    part["durations"] = model.align(part).token_durations_BN
    searched, given = (
        measure(part, training=False, diagonal_steps=0, step=1, use_stored_durations=stored)[1]
        for stored in (False, True)
    )
    assert given == pytest.approx(searched, rel=1e-4)
    part["durations"] = tf.roll(part["durations"], 1, axis=1) * tf.sequence_mask(LENGTHS[1], 8, tf.int32)
    assert measure(part, training=False, use_stored_durations=True)[1]["prior"] != searched["prior"]


def test_validation_drops_nothing() -> None:
    part = make_part(make_spec(), *LENGTHS)
    held_out = measure(part, training=False, step=1000)[1]
    assert held_out["prior"] == measure(part, training=False, step=2000)[1]["prior"]
    assert held_out["prior"] != measure(part, step=1000)[1]["prior"]


@pytest.mark.parametrize("block", ["convolution", "transformer"])
def test_crops_may_be_longer_than_the_batch(block: str) -> None:
    part = make_part(make_spec(), [10, 21], [3, 5], num_frames=22, num_tokens=5)
    assert np.isfinite(measure(part, model=make_model(3, block), crop_frames=64)[0])


@pytest.mark.parametrize(
    ("policy", "is_compiled"),
    [
        ("mixed_bfloat16", False),
        # Compiling takes most of a minute.
        pytest.param("float32", True, marks=pytest.mark.soak),
        pytest.param("mixed_bfloat16", True, marks=pytest.mark.soak),
    ],
)
def test_a_few_steps_lower_the_loss(policy: str, is_compiled: bool) -> None:
    keras.mixed_precision.set_global_policy(policy)
    try:
        keras.utils.set_random_seed(1)
        model = XTTS(make_config(text_layers=1, decoder_layers=1), make_spec())
    finally:
        keras.mixed_precision.set_global_policy("float32")
    weights = select_trained(model, model.named_weights())
    step = TrainStep(
        model,
        AdamW(weights, 0.004, betas=(0.9, 0.999)),
        VoiceLoss(3, crop_frames=16),
        tf.distribute.get_strategy(),
        rate=lambda _step: tf.constant(0.01),
        clip_norm=2.0,
        jit_compile=is_compiled,
    )
    part = make_part(model.spec, *LENGTHS)
    results = [step([part], number).read() for number in range(25)]
    assert all(result.is_finite for result in results)
    for name in ("prior", "duration", "speaker"):
        values = [result.metrics[name] for result in results]
        assert np.mean(values[-5:]) < 0.95 * np.mean(values[:5]), name


def test_compiled_and_plain_graphs_agree_where_nothing_is_random() -> None:
    model, part = XTTS(make_config(text_layers=1, decoder_layers=1), make_spec()), make_part(make_spec(), *LENGTHS)
    stir_weights(model)

    def measure_all() -> dict[str, Any]:
        sums: dict[str, Any] = VoiceLoss(3, crop_frames=16)(model, part, False, tf.constant(7, tf.int64))[1]
        return sums

    plain = tf.function(measure_all, autograph=False)()
    compiled = tf.function(measure_all, autograph=False, jit_compile=True)()
    for name in TERMS - {"flow"}:
        np.testing.assert_allclose(plain[name], compiled[name], rtol=1e-4)
