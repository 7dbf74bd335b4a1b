"""The verdict on a run, in a few sentences: how good the voice is, who says so, and what to do next.

It claims no more than was measured. A recogniser's errors say how well the speech is understood; without them there is
only the validation score, which compares steps of one run and has no scale of its own. The similarity of voices is
judged by the model's own speaker encoder, which was trained on these voices and is too optimistic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from myxtts.models.bundle import BUNDLE_FOLDER_NAME
from myxtts.models.card import EVALUATION_FILE_NAME
from myxtts.storage.json_file import is_number, try_read_json
from myxtts.tools.report.curves import find_measures
from myxtts.tools.run_files import RunFiles, count_steps
from myxtts.tools.words import Translator
from myxtts.training.run.folder import INIT_FROM, hide_private
from myxtts.training.terms import GRIFFIN_LIM_PREFIX, SPECTRAL_DISTANCE, VOCODER

_FEW_STEPS = 2000
"""Models of any size speak no clear words before about so many steps, unless they began with those of another one."""
_CLEAR, _UNDERSTOOD, _HARD = 0.05, 0.15, 0.4
"""Character errors of a recogniser up to which speech is clear, mostly understood, or hard to understand."""
_STILL_SHARE = 0.15
"""The score still improves where its best step is within this last share of the steps."""
_MIN_VALIDATIONS = 3
"""With fewer of them there is no trend."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the verdict is made from. `scores` are the validation scores by step; lower is better."""

    run: str
    step: int
    total_steps: int | None
    scores: Sequence[tuple[int, float]]
    last: Mapping[str, float] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    patience: int = 0
    is_vocoder: bool = False
    is_fine_tuned: bool = False

    @classmethod
    def of_run(cls, run: RunFiles) -> Progress:
        """Takes it from the files of a run."""
        total, patience = run.find_setting("training.steps"), run.find_setting("training.early_stopping")
        return cls(
            run=name_run(run.path),
            step=count_steps(run),
            total_steps=total if isinstance(total, int) else None,
            scores=[(step, numbers["score"]) for step, numbers in run.validations if "score" in numbers],
            last=run.validations[-1][1] if run.validations else {},
            evaluation=read_evaluation(run.path),
            patience=patience if isinstance(patience, int) else 0,
            is_vocoder=find_measures(run.path) is VOCODER,
            is_fine_tuned=is_fine_tuned(run.sessions),
        )


def is_fine_tuned(sessions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run began with the weights of another model, which may speak clearly from the first step on."""
    return bool(sessions and sessions[0].get(INIT_FROM))


def name_run(path: Path) -> str:
    """The folder of a run as a command would name it here; elsewhere without private folders, as pages are sent."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return hide_private(str(path))


def read_evaluation(run_path: Path) -> Mapping[str, Any]:
    """Scores that `myxtts evaluate` left in the bundle of the run; empty without."""
    return try_read_json(run_path / BUNDLE_FOLDER_NAME / EVALUATION_FILE_NAME, dict[str, Any]) or {}


def judge(progress: Progress, tr: Translator) -> str:
    """Returns the sentences of the verdict."""
    if not progress.step:
        return tr("No step has been recorded yet.")
    parts = [*(_judge_vocoder(progress, tr) if progress.is_vocoder else _judge_voice(progress, tr))]
    return " ".join([*parts, *_judge_trend(progress, tr)])


def _judge_voice(progress: Progress, tr: Translator) -> Iterator[str]:
    error, words = progress.evaluation.get("character_error"), progress.evaluation.get("word_error")
    if error is not None and is_number(error) and words is not None and is_number(words):
        if error <= _CLEAR:
            yield tr("The voice speaks clearly.")
        elif error <= _UNDERSTOOD:
            yield tr("The voice is mostly understood.")
        elif error <= _HARD:
            yield tr("The voice is hard to understand.")
        else:
            yield tr("The voice is not understood yet.")
        yield tr(
            "Your recogniser got {words} of the words and {characters} of the characters wrong, at step {step}.",
            words=tr.share(words),
            characters=tr.share(error),
            step=tr.count(progress.evaluation.get("step") or 0),
        )
    elif progress.step < _FEW_STEPS and not progress.is_fine_tuned:
        yield tr("After {step} steps, do not expect clear words yet.", step=tr.count(progress.step))
    else:
        yield tr("Whether the voice is understood was not measured: listen to the samples below.")
    similarity = progress.last.get("speaker_similarity")
    if similarity is not None:
        yield tr(
            "Its similarity to the speakers, {value}, is judged by the model's own speaker encoder, which is too "
            "optimistic: listen yourself.",
            value=tr.number(similarity),
        )


def _judge_vocoder(progress: Progress, tr: Translator) -> Iterator[str]:
    own, other = (progress.last.get(prefix + SPECTRAL_DISTANCE) for prefix in ("", GRIFFIN_LIM_PREFIX))
    if own is None or other is None:
        yield tr("The vocoder was not measured yet.")
    elif own < other:
        yield tr(
            "The vocoder is closer to the recordings than Griffin-Lim: spectral distance {own} against {other}.",
            own=tr.number(own),
            other=tr.number(other),
        )
    else:
        yield tr(
            "The vocoder is still worse than Griffin-Lim: spectral distance {own} against {other}.",
            own=tr.number(own),
            other=tr.number(other),
        )


def _judge_trend(progress: Progress, tr: Translator) -> Iterator[str]:
    """Whether more steps help, from the best step of the validation score; and the command to go on with."""
    if len(progress.scores) < _MIN_VALIDATIONS:
        yield tr("There are too few validations to say whether it still improves.")
        yield from _advise_more(progress, tr)
        return
    best_step, best = min(progress.scores, key=lambda pair: pair[1])
    value, step = tr.number(best), tr.count(best_step)
    num_since = sum(1 for one, _ in progress.scores if one > best_step)
    if progress.patience and num_since >= progress.patience:
        yield tr(
            "Early stopping ended it: the validation score has not improved since step {step} (best {value}).",
            step=step,
            value=value,
        )
        yield tr("More steps will not help.")
        yield _advise_data(progress, tr)
    elif best_step >= (1 - _STILL_SHARE) * progress.scores[-1][0]:
        yield tr("The validation score still improves (best {value} at step {step}).", step=step, value=value)
        yield from _advise_more(progress, tr)
    else:
        yield tr("The validation score has not improved since step {step} (best {value}).", step=step, value=value)
        if progress.is_fine_tuned and progress.total_steps is not None and progress.step < progress.total_steps:
            yield tr("Continue to step {total}.", total=tr.count(progress.total_steps))
        else:
            yield tr("More steps alone will help little.")
        yield _advise_data(progress, tr)


def _advise_more(progress: Progress, tr: Translator) -> Iterator[str]:
    if progress.total_steps is not None and progress.step < progress.total_steps:
        yield tr("Continue to step {total}.", total=tr.count(progress.total_steps))
        return
    steps = 2 * progress.step if progress.is_fine_tuned else max(2 * progress.step, _FEW_STEPS)
    yield tr("Train longer: {command}", command=f"myxtts train --resume {progress.run} --steps {steps}")


def _advise_data(progress: Progress, tr: Translator) -> str:
    """What helps where steps do not. A run that began with another model has its size."""
    if not progress.is_fine_tuned:
        return tr("More or cleaner recordings will, or a larger model.")
    if progress.is_vocoder:
        return tr("More or cleaner recordings will.")
    command = f"myxtts diagnose --clips {progress.run}"
    return tr("More minutes of speech help, and clips without faults. Find doubtful ones: {command}", command=command)
