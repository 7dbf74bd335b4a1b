"""Adaptation of a trained model to little speech: what it chooses, says, freezes, and how it goes on after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fork_process import KILLED, ForkProcess
from tests.training.test_trainer import Trainings
from tests.training.trainer_programs import COARSE, TINY

from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, UsageError
from myxtts.models.bundle import Bundle, write_bundle
from myxtts.models.vocoder_bundle import VocoderBundle, put_into
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.training.trainer import Trainer
from myxtts.training.voice.adapt import (
    SMALL_MINUTES,
    begin_adaptation,
    choose_adaptation,
    count_steps,
    refuse_mixing_unknown_weights,
)
from myxtts.training.voice.data import TrainingData, open_training_data

FROZEN = {"reference_encoder"}


class Adaptations(Trainings):
    """Trainings whose configuration names only what they need, so that an adaptation may choose the rest."""

    def __init__(self, folder: Path, process: ForkProcess) -> None:
        super().__init__(folder, process)
        data = {"train_data": folder / "data" / "corpus", "cache_dir": folder / "data" / "store"}
        left_out = ("warmup_steps", "num_shapes")
        settings = {name: value for name, value in {**TINY, **COARSE}.items() if name not in left_out}
        self.slim = XTTSConfig(**settings, **data)
        self._config_file.write_text(
            "".join(
                f"{name}: {str(value).lower() if isinstance(value, bool) else value}\n"
                for name, value in {**settings, **data}.items()
            ),
            encoding="utf-8",
        )


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adaptations]:
    with ForkProcess("tests.training.trainer_forks") as process:
        made = Adaptations(tmp_path_factory.mktemp("adaptations"), process)
        outcome = made.run("origin", {"steps": 1})
        assert outcome.status == 0, outcome.error
        yield made


@pytest.fixture(scope="module")
def origin(trainings: Adaptations) -> Bundle:
    return trainings.read_bundle("origin")


@pytest.fixture(scope="module")
def data(trainings: Adaptations) -> TrainingData:
    return open_training_data(trainings.slim, choose_plan(trainings.slim, detect_hardware()))


def test_the_speech_decides_how_many_steps_there_are() -> None:
    assert [count_steps(minutes) for minutes in (1.0, 5.0, 10.0)] == [360, 600, 900]
    assert count_steps(600.0) == count_steps(6000.0)


def test_little_speech_of_known_voices_is_adapted_to_unless_a_length_is_given(
    trainings: Adaptations, origin: Bundle, data: TrainingData
) -> None:
    config, lines = choose_adaptation(trainings.slim, origin, data)
    training = config.training
    assert (training.adapt, training.steps) == ("voice", count_steps(0.3))
    assert training.start_pull > 0
    assert 0 < training.start_mix < 0.5
    assert f"Synthesis mixes in {training.start_mix:.0%} of the starting weights." in lines[1]
    assert training.learning_rate < trainings.slim.training.learning_rate
    assert training.voice_augmentation == training.text_freeze_patience_steps == 0
    assert lines[0].startswith("Adapting to 0.3 minutes of speech in languages that the model knows (--adapt voice).")
    assert f"the corpus has less than {SMALL_MINUTES:g} minutes" in lines[0]
    assert "The speaker encoder is kept as it is" in lines[1]
    # Two held-out clips are too few to choose weights by.
    assert (training.early_stopping, training.bundle_weights) == (0, "latest")
    assert f"{training.steps} steps, a validation every" in lines[2]
    assert "too few held-out clips" in lines[2]
    given = trainings.slim.model_copy(update={"steps": 7})
    same, (hint,) = choose_adaptation(given, origin, data)
    assert same == given
    assert hint == "A normal run, because of --steps. For 0.3 minutes of speech add --adapt voice."


def test_little_speech_of_one_new_voice_is_adapted_to_for_the_given_length(
    trainings: Adaptations, origin: Bundle, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data.utterances, "speakers", ("nora",))
    given = trainings.slim.model_copy(update={"minutes": 10.0})
    config, lines = choose_adaptation(given, origin, data)
    training = config.training
    assert (training.adapt, training.minutes, training.steps) == ("voice", 10.0, None)
    assert training.start_mix > 0
    assert lines[0].endswith("Chosen because the corpus has less than 15 minutes, and it is one new voice.")
    assert lines[2].startswith("10 minutes, a validation every")
    # A language that the model does not know is no new voice in languages that it knows.
    foreign = replace(origin, model_spec={**origin.model_spec, "languages": ["fr"]})
    same, (hint,) = choose_adaptation(given, foreign, data)
    assert same == given
    assert hint.startswith("A normal run, because of --minutes.")


def test_more_speech_is_a_normal_run(
    trainings: Adaptations, origin: Bundle, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("myxtts.training.voice.adapt.SMALL_MINUTES", 0.1)
    assert choose_adaptation(trainings.slim, origin, data) == (trainings.slim, [])


@pytest.fixture
def one_new_voice(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a little speech of one speaker, whom the model does not know."""
    monkeypatch.setattr("myxtts.training.voice.adapt.SMALL_MINUTES", 0.1)
    monkeypatch.setattr(data.utterances, "speakers", ("nora",))


@pytest.mark.usefixtures("one_new_voice")
def test_a_normal_run_on_one_new_voice_mixes_in_the_start(
    trainings: Adaptations, origin: Bundle, data: TrainingData
) -> None:
    given = trainings.slim.model_copy(update={"minutes": 60.0})
    config, (line,) = choose_adaptation(given, origin, data)
    training = config.training
    assert (training.adapt, training.minutes, training.learning_rate) == (None, 60.0, given.training.learning_rate)
    assert training.bundle_weights == "latest"
    assert 0 < training.start_mix < 0.5
    assert 0 < training.start_pull < 3, "weaker than that of an adaptation to little speech"
    assert line.startswith(f"One new voice: synthesis mixes in {training.start_mix:.0%} of the starting weights")
    refuse_mixing_unknown_weights(config)


@pytest.mark.usefixtures("one_new_voice")
@pytest.mark.parametrize(
    "chosen", [{"start_mix": 0.0}, {"start_pull": 0.0}, {"ema_decay": 0.0}, {"decoder_layers": 3}, {"text_width": 48}]
)
def test_a_normal_run_mixes_nothing_where_the_user_decided_otherwise(
    trainings: Adaptations, origin: Bundle, data: TrainingData, chosen: dict[str, Any]
) -> None:
    given = trainings.slim.model_copy(update=chosen)
    assert choose_adaptation(given, origin, data) == (given, [])


@pytest.mark.usefixtures("one_new_voice")
def test_a_normal_run_mixes_nothing_into_known_voices_other_languages_or_much_speech(
    trainings: Adaptations, origin: Bundle, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    unchanged: tuple[XTTSConfig, list[str]] = (trainings.slim, [])
    known = replace(origin, model_spec={**origin.model_spec, "speakers": ["nora", "ben"]})
    assert choose_adaptation(trainings.slim, known, data) == unchanged
    foreign = replace(origin, model_spec={**origin.model_spec, "languages": ["fr"]})
    assert choose_adaptation(trainings.slim, foreign, data) == unchanged
    monkeypatch.setattr("myxtts.training.voice.adapt._MOST_MINUTES_OF_VOICE", 0.2)
    assert choose_adaptation(trainings.slim, origin, data) == unchanged


@pytest.mark.usefixtures("one_new_voice")
def test_a_run_that_mixes_in_the_start_still_does_so_when_it_goes_on(
    trainings: Adaptations, origin: Bundle, data: TrainingData, tmp_path: Path
) -> None:
    mixed, _ = choose_adaptation(trainings.slim, origin, data)
    write_resolved(mixed, tmp_path)
    resumed = begin_adaptation(trainings.slim, tmp_path, has_origin=False, goes_on=True)
    assert resumed.training == mixed.training


def test_what_the_user_chose_stays_and_is_said(trainings: Adaptations, origin: Bundle, data: TrainingData) -> None:
    chosen = {"adapt": "all", "minutes": 2.0, "learning_rate": 0.002}
    config, lines = choose_adaptation(trainings.slim.model_copy(update=chosen), origin, data)
    training = config.training
    assert (training.steps, training.minutes, training.learning_rate) == (None, 2.0, 0.002)
    assert "Chosen because" not in lines[0]
    assert 0 < training.start_mix < 0.5
    assert lines[1].startswith("The whole model is trained at a learning rate of up to 0.002, pulled")
    assert lines[2].startswith("2 minutes, a validation every")
    assert lines[3] == "Different from the usual adaptation, as asked: training.learning_rate 0.002."


def test_an_adaptation_of_a_reshaped_model_mixes_nothing(
    trainings: Adaptations, origin: Bundle, data: TrainingData
) -> None:
    reshaped = trainings.slim.model_copy(update={"text_width": 48})
    assert choose_adaptation(reshaped, origin, data)[0].training.start_mix == 0


@pytest.mark.parametrize("off", ["start_pull", "ema_decay"])
def test_nothing_is_mixed_where_the_user_turned_off_what_it_needs(
    trainings: Adaptations, origin: Bundle, data: TrainingData, off: str
) -> None:
    config, lines = choose_adaptation(trainings.slim.model_copy(update={off: 0.0}), origin, data)
    assert (config.training.adapt, config.training.start_mix) == ("voice", 0.0)
    assert "mixes in" not in lines[1]
    refuse_mixing_unknown_weights(config)
    asked = trainings.slim.model_copy(update={"adapt": "voice", off: 0.0, "start_mix": 0.4})
    with pytest.raises(ConfigError, match=rf"start_mix is 0.4 and training.{off} is 0") as caught:
        refuse_mixing_unknown_weights(choose_adaptation(asked, origin, data)[0])
    assert f"training.{off} above 0" in caught.value.next_step


def test_the_share_of_the_start_can_be_chosen_by_itself(
    trainings: Adaptations, origin: Bundle, data: TrainingData
) -> None:
    asked = trainings.slim.model_copy(update={"adapt": "voice", "start_mix": 0.4})
    config, lines = choose_adaptation(asked, origin, data)
    assert (config.training.start_mix, config.training.start_pull > 0) == (0.4, True)
    assert "mixes in 40% of the starting weights" in lines[1]
    refuse_mixing_unknown_weights(config)


def test_enough_held_out_clips_end_an_adaptation_early(
    trainings: Adaptations, origin: Bundle, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("myxtts.training.voice.adapt._FEWEST_HELD_OUT", 2)
    config, lines = choose_adaptation(trainings.slim, origin, data)
    assert (config.training.early_stopping, config.training.bundle_weights) == (3, "best")
    assert "ends early after 3 validations without improvement; the best weights are kept" in lines[2]


def test_new_languages_and_symbols_need_the_whole_model(
    trainings: Adaptations, origin: Bundle, data: TrainingData
) -> None:
    foreign = replace(origin, model_spec={**origin.model_spec, "languages": ["fr"]})
    config, lines = choose_adaptation(trainings.slim, foreign, data)
    assert config.training.adapt == "all"
    assert "0.3 minutes of speech with the language en (--adapt all)." in lines[0]
    assert config.training.start_mix == 0, "a new language starts at random"
    with pytest.raises(ConfigError, match="does not know the language en, and --adapt voice") as caught:
        choose_adaptation(trainings.slim.model_copy(update={"adapt": "voice"}), foreign, data)
    assert "--adapt all" in caught.value.next_step
    fewer = replace(origin, frontend=origin.frontend.replace(b'"q"', b'"\xc3\xb1"'))
    config, lines = choose_adaptation(trainings.slim, fewer, data)
    assert "with the symbols q (--adapt all)." in lines[0]


def test_there_must_be_a_model_to_adapt(trainings: Adaptations) -> None:
    with pytest.raises(UsageError, match="--adapt voice adapts a trained model, but none is given") as caught:
        Trainer(trainings.slim.model_copy(update={"adapt": "voice"}), say=print).fit()
    assert "--init-from" in caught.value.next_step


def test_an_adaptation_moves_only_what_it_trains_and_goes_on_after_a_kill(trainings: Adaptations) -> None:
    settings: dict[str, Any] = {"adapt": "voice", "checkpoint_steps": 2, "steps": 4}
    init_from = str(trainings.path("origin"))
    before = trainings.read_bundle("origin")
    vocoder = VocoderBundle(before.mel, {"width": 8}, {"head.kernel": np.ones((4, 6), np.float32)})
    write_bundle(trainings.path("origin") / "bundle", put_into(before, vocoder))
    whole = trainings.run("whole", settings, init_from=init_from)
    assert whole.status == 0, whole.error
    assert any(line.startswith("Adapting to 0.3 minutes") for line in whole.result["lines"])
    start, end = trainings.read_bundle("origin").weights, trainings.read_bundle("whole").weights
    moved = {name for name in start.keys() & end.keys() if start[name].tobytes() != end[name].tobytes()}
    assert {"decoder", "prosody_predictor", "text_encoder"} <= {name.partition(".")[0] for name in moved}
    assert not {name for name in moved if name.partition(".")[0] in FROZEN}
    # The neural vocoder speaks for the adapted voice too.
    assert trainings.read_bundle("whole").vocoder_weights["head.kernel"].shape == (4, 6)
    saved = trainings.load_checkpoint("whole", 4).arrays
    assert saved["start/decoder.stem.kernel"].tobytes() == start["decoder.stem.kernel"].tobytes()
    trained = saved["average/decoder.stem.kernel"]
    mixed = trained + np.float32(0.33) * (start["decoder.stem.kernel"] - trained)
    assert end["decoder.stem.kernel"].tobytes() == mixed.tobytes()

    assert trainings.run("killed", settings, init_from=init_from, kill_after=3).status == KILLED
    # As `--resume` does it, neither --adapt nor --init-from is given again.
    outcome = trainings.run("killed", {"steps": 4, "checkpoint_steps": 2}, resume=True)
    assert outcome.status == 0, outcome.error
    assert not any("Changed since" in line for line in outcome.result["lines"])
    assert trainings.read_checkpoint("killed", 4) == trainings.read_checkpoint("whole", 4)
    other = trainings.run("killed", {**settings, "adapt": "all", "steps": 5}, resume=True, override=True)
    assert other.status != 0
    assert "--force cannot help" in other.error
