"""Adaptation of a trained model to a few minutes of speech: `--init-from RUN --adapt voice` or `all`.

`voice` is for a new voice in languages that the model knows: the speaker encoder stays as it was, and the rest learns
to sound like the new speaker. `all` trains every weight, for new languages and symbols too. Both pull weights towards
where they started, which keeps what a few sentences cannot teach again. If the model knows all languages and symbols,
synthesis uses weights between the trained ones and those of the start (weight interpolation, as in WiSE-FT, Wortsman et
al. 2022): training on a few minutes makes the voice more similar and its words less clear, and part of the way back
costs little similarity. Replay, and the change at low rank (singular values of each matrix), were tried too:
docs/en/quality.md has the figures. A normal run on one new voice mixes weights in the same way.
The choice becomes ordinary settings, which config.yaml of the run holds, so that a resumed run needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from myxtts.config.catalogue import look_up
from myxtts.config.schema import XTTSConfig
from myxtts.config.values import Scalar, show_value
from myxtts.errors import ConfigError, UsageError
from myxtts.models.base_model import list_base_languages
from myxtts.models.bundle import Bundle
from myxtts.models.spec import ModelSpec
from myxtts.training.run.resume import load_run_settings
from myxtts.training.voice.data import TrainingData, summarize_data
from myxtts.training.voice.fine_tuning import list_new_names

Kind = Literal["voice", "all"]
SMALL_MINUTES = 15.0
"""Minutes of speech below which --init-from adapts by itself; with more, a normal run learns more than it forgets."""
_FROZEN: dict[str, tuple[str, ...]] = {"voice": ("reference_encoder",), "all": ()}
"""Parts of the model that an adaptation leaves as they were, by their attributes. Not the text encoder: it predicts
mean spectra, durations and pitch, which are those of the voice. On four minutes of a new voice the held-out score after
100 steps with a trained text encoder was better than after 300 with a frozen one."""
_NAMES = {"reference_encoder": "speaker encoder"}
_START_MIX = "training.start_mix"
DIAGONAL_STEPS_OF: dict[str | None, int] = {"voice": 0, "all": 100}
"""Steps of the diagonal prior: a trained model aligns better than the diagonal, unless its symbols are new."""
_SHARED: dict[str, Scalar] = {
    "training.learning_rate": 3e-4,
    "training.warmup_steps": 50,
    "training.start_pull": 3.0,
    # A larger share of the starting weights makes more words understandable and the voice less similar:
    # docs/en/quality.md has the figures.
    _START_MIX: 0.33,
    "training.text_freeze_patience_steps": 0,
    "data.num_shapes": 2,
}
_VALUES: dict[str, dict[str, Scalar]] = {
    # A warped voice is not the one to learn.
    "voice": {**_SHARED, "training.voice_augmentation": 0.0},
    "all": _SHARED,
}
_MOST_MINUTES_OF_VOICE = 180.0
"""Minutes of one new voice up to which a normal run mixes in starting weights; with more it was not tried."""
_MIXED: dict[str, Scalar] = {
    "training.start_pull": 0.3,
    _START_MIX: 0.3,
    "training.bundle_weights": "latest",
}
"""Of a normal run on one new voice. Weights can be mixed while they are near to each other. A share of 0.3 was tried on
weights that had moved by 0.04 (root mean square; their own is 0.09) in 6,000 steps without a pull. The pull keeps them
from moving much farther in longer runs: after 13,000 steps on 75 minutes mixing nearly halved the words misheard. The
latest weights, because mixed ones have the best score too early: of 3,300 steps on 34 minutes after 1,000, with a MOS
estimate of 2.55; the last had 2.70, and as many words were understood."""
_WITHOUT_WEIGHTS: dict[str, Scalar] = {"dropout": 0.0, "guidance_dropout": 0.0}
"""Settings of the model that change no shape of a weight: models that differ in them can be mixed."""
_VAL_SHARE = 0.1
"""Share that is held out of raw recordings: twice the usual, because five per cent of a minute are one clip."""
_LEAST_STEPS, _STEPS_PER_MINUTE, _MOST_STEPS = 300, 60, 3000
_NUM_VALIDATIONS, _PATIENCE = 8, 3
"""Validations of an adaptation, and those in a row without improvement that end it."""
_FEWEST_STEPS_BETWEEN = 20
_FEWEST_HELD_OUT = 4
"""Held-out clips from which a score tells one checkpoint from another."""
_LENGTHS = ("training.steps", "training.epochs", "training.minutes")
_KEYS = (
    *(*_VALUES["voice"], *_LENGTHS, "data.val_share"),
    *("training.adapt", "training.checkpoint_steps", "training.early_stopping", "training.bundle_weights"),
)
"""Settings that an adaptation may choose."""


def is_known_to_base(languages: Iterable[str]) -> bool:
    """Whether the base model of the package reads all these languages."""
    return set(languages) <= set(list_base_languages())


def list_frozen(kind: Kind | None) -> tuple[str, ...]:
    """Attributes of the model whose weights an adaptation does not train."""
    return () if kind is None else _FROZEN[kind]


def count_steps(minutes: float) -> int:
    """Steps of an adaptation to so many minutes of speech: 300 and 60 for each minute, up to 3,000."""
    return min(_MOST_STEPS, 10 * round((_LEAST_STEPS + _STEPS_PER_MINUTE * minutes) / 10))


def begin_adaptation(config: XTTSConfig, run_path: Path, *, has_origin: bool, goes_on: bool) -> XTTSConfig:
    """Settings for opening the data: those of the run if it goes on, else more held-out clips if --adapt is given.

    Raises UsageError where there is no model to adapt.
    """
    if goes_on:
        return _follow_run(config, run_path)
    if config.training.adapt is None:
        return config
    if not has_origin:
        raise UsageError(
            f"--adapt {config.training.adapt} adapts a trained model, but none is given.",
            next_step="Add --init-from RUN, the folder of a run or of an exported model; or leave out --adapt.",
        )
    return config.model_copy(update={"data.val_share": _VAL_SHARE} if _is_free(config, "data.val_share") else None)


def _follow_run(config: XTTSConfig, run_path: Path) -> XTTSConfig:
    """Values that were chosen for the run that goes on, where the user has chosen none."""
    try:
        known = load_run_settings(run_path)
    except ConfigError:
        return config  # Opening the run explains what is wrong with it.
    keys = _MIXED if known.training.adapt is None else _KEYS
    return config.model_copy(update={key: look_up(known, key) for key in keys if _is_free(config, key)})


def choose_adaptation(config: XTTSConfig, origin: Bundle, data: TrainingData) -> tuple[XTTSConfig, list[str]]:
    """Settings for adapting `origin` to these data, where the user has chosen no others, and sentences about it.

    Without `training.adapt` a small corpus is adapted to, if it is one new voice or no length is given, and a normal
    run on one new voice mixes in starting weights. Else the settings stay as they are.
    Raises ConfigError where `voice` is asked for and the model does not know the languages or symbols.
    """
    minutes = 60 * summarize_data(data.utterances, data.order.rows)["hours"]
    asked, reason = config.training.adapt, ""
    new_names = list_new_names(origin, data)
    if asked is None and minutes >= SMALL_MINUTES:
        return (config, []) if new_names else _mix_start(config, origin, data, minutes)
    kind: Kind = asked or ("all" if new_names else "voice")
    if asked is None:
        lengths = " and ".join(f"--{key.rpartition('.')[2]}" for key in _LENGTHS if look_up(config, key) is not None)
        is_one_voice = not new_names and _is_new_voice(origin, data)
        if lengths and not is_one_voice:
            return config, [
                f"A normal run, because of {lengths}. For {minutes:.1f} minutes of speech add --adapt {kind}."
            ]
        why = "it is one new voice" if is_one_voice else "no --adapt, --steps, --epochs or --minutes is given"
        reason = f" Chosen because the corpus has less than {SMALL_MINUTES:g} minutes, and {why}."
    if new_names and kind == "voice":
        raise ConfigError(
            f"The model of --init-from does not know {'; '.join(new_names)}, and --adapt voice is for texts that it "
            "can read.",
            next_step="Use --adapt all, which trains the whole model.",
        )
    wanted = {"training.adapt": kind, **_VALUES[kind], **_plan_length(config, minutes, _count_held_out(config, data))}
    if new_names or not _can_mix(config, origin):
        del wanted[_START_MIX]
    update = {key: value for key, value in wanted.items() if key == "training.adapt" or _is_free(config, key)}
    kept = [key for key in wanted if key not in update and look_up(config, key) != wanted[key]]
    adapted = config.model_copy(update=update)
    return adapted, _describe(adapted, kind, minutes, new_names, reason, kept)


def _mix_start(config: XTTSConfig, origin: Bundle, data: TrainingData, minutes: float) -> tuple[XTTSConfig, list[str]]:
    """Mixes starting weights into those that speak after a normal run, if it is one of one new voice."""
    can_mix = _is_free(config, _START_MIX) and _can_mix(config, origin)
    if not (can_mix and _is_new_voice(origin, data) and minutes <= _MOST_MINUTES_OF_VOICE):
        return config, []
    update = {key: value for key, value in _MIXED.items() if _is_free(config, key)}
    mixed = config.model_copy(update=update)
    line = (
        f"One new voice: synthesis mixes in {mixed.training.start_mix:.0%} of the starting weights, so that more words "
        "are understood, and the last weights are kept. For the greatest likeness: --set training.start_mix=0"
    )
    return mixed, [line]


def _is_new_voice(origin: Bundle, data: TrainingData) -> bool:
    """Whether the corpus is of one speaker, whom the model does not know."""
    speakers = set(data.utterances.speakers)
    return len(speakers) == 1 and not speakers & set(ModelSpec.from_json(origin.model_spec).speakers)


def refuse_mixing_unknown_weights(config: XTTSConfig) -> None:
    """Raises ConfigError for a start_mix without what it mixes. Called after the choice, which may turn both on."""
    training = config.training
    for name in ("start_pull", "ema_decay"):
        if training.start_mix and not getattr(training, name):
            raise ConfigError(
                f"training.start_mix is {training.start_mix:g} and training.{name} is 0, but the starting weights are "
                "mixed with the EMA of a run with start_pull.",
                next_step=f"Set training.{name} above 0, or leave out training.start_mix.",
            )


def _can_mix(config: XTTSConfig, origin: Bundle) -> bool:
    """Whether the run will have an average and starting weights of the same shapes: not where the user has turned one
    of them off, or reshaped the model, whose new parts start at random.
    """
    has_pull = config.training.start_pull > 0 or _is_free(config, "training.start_pull")
    wanted, given = (model.model_copy(update=_WITHOUT_WEIGHTS) for model in (config.model, origin.model_config))
    return has_pull and config.training.ema_decay > 0 and wanted == given


def _plan_length(config: XTTSConfig, minutes: float, num_held_out: int) -> dict[str, Scalar]:
    """Steps, validations and early stopping; a length that the user gives stays."""
    num_steps = config.training.steps or count_steps(minutes)
    has_length = any(look_up(config, key) is not None for key in _LENGTHS)
    length: dict[str, Scalar] = {} if has_length else {"training.steps": num_steps}
    length["training.checkpoint_steps"] = max(_FEWEST_STEPS_BETWEEN, math.ceil(num_steps / _NUM_VALIDATIONS))
    if num_held_out >= _FEWEST_HELD_OUT:
        return length | {"training.early_stopping": _PATIENCE}
    return length | {"training.bundle_weights": "latest"}


def _count_held_out(config: XTTSConfig, data: TrainingData) -> int:
    """Held-out clips of the corpus; a validation corpus of its own is taken to be large enough."""
    return _FEWEST_HELD_OUT if config.data.val_data is not None else len(data.utterances.rows_of_split("val"))


def _describe(
    config: XTTSConfig, kind: Kind, minutes: float, new_names: Sequence[str], reason: str, kept: Sequence[str]
) -> list[str]:
    """Sentences for the user: what is adapted and why, what is trained, how long, and what the user chose otherwise."""
    training = config.training
    texts = f"with {'; '.join(new_names)}" if new_names else "in languages that the model knows"
    frozen = [_NAMES[name] for name in list_frozen(kind)]
    what = f"The {' and '.join(frozen)} is kept as it is; the rest is" if frozen else "The whole model is"
    pull = f", pulled towards its start (start_pull {training.start_pull:g})" if training.start_pull else ""
    mix = f" Synthesis mixes in {training.start_mix:.0%} of the starting weights." if training.start_mix else ""
    length = _describe_length(config)
    stop = "The last weights are kept: there are too few held-out clips to choose by."
    if training.early_stopping:
        stop = (
            f"It ends early after {training.early_stopping} validations without improvement; the best weights are kept."
        )
    lines = [
        f"Adapting to {minutes:.1f} minutes of speech {texts} (--adapt {kind}).{reason}",
        f"{what} trained at a learning rate of up to {training.learning_rate:g}{pull}.{mix}",
        f"{length}, a validation every {training.checkpoint_steps:,} steps. {stop}",
    ]
    if kept:
        values = ", ".join(f"{key} {show_value(look_up(config, key))}" for key in kept)
        lines.append(f"Different from the usual adaptation, as asked: {values}.")
    return lines


def _describe_length(config: XTTSConfig) -> str:
    training = config.training
    parts = [f"{training.steps:,} steps"] if training.steps is not None else []
    parts += [f"{training.epochs:,} epochs"] if training.epochs is not None else []
    parts += [f"{training.minutes:g} minutes"] if training.minutes is not None else []
    return " or ".join(parts)


def _is_free(config: XTTSConfig, key: str) -> bool:
    """Whether a value is a default or that of a preset, not the choice of the user."""
    return config.origins[key].startswith(("default", "preset"))
