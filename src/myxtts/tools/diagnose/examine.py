"""`diagnose_dataset` and `diagnose_config`: why an accelerator waits, what to change, and what that will gain.

from myxtts.tools.diagnose.examine import diagnose_dataset
diagnosis = diagnose_dataset(my_dataset, step=train_step)
print(diagnosis.first.cause, diagnosis.first.advice)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from myxtts.tools.diagnose.advice import Advice, advise
from myxtts.tools.diagnose.causes import Cause, Finding, find_causes
from myxtts.tools.diagnose.evidence import Evidence
from myxtts.tools.diagnose.timing import Comparison, Limits, Work, compare_in_turn, run_together
from myxtts.tools.emulate import StepTime
from myxtts.tools.rhythm import Oscillation, find_oscillation
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.pipeline.split_advice import SplitAdvice
    from myxtts.runtime.hardware import Hardware
    from myxtts.tools.diagnose.advice import MachineSetting

_BLOCK_SHARE = 0.5
_VERIFY_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A finding with what to do about it, the best first."""

    finding: Finding
    advice: tuple[Advice, ...]

    @property
    def cause(self) -> Cause:
        return self.finding.cause

    @property
    def gain(self) -> float:
        """The predicted factor of the first advice; 1 where there is nothing to gain."""
        return self.advice[0].gain.factor if self.advice else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """What was measured and what follows from it, the most costly cause first.

    `machine_settings` and `split` are about the user's machine, where a configuration was diagnosed; `verified` is what
    the first advice gained when it was tried.
    """

    evidence: Evidence
    findings: tuple[Diagnosed, ...]
    machine_settings: tuple[MachineSetting, ...] = ()
    split: SplitAdvice | None = None
    verified: Comparison | None = None

    @property
    def first(self) -> Diagnosed:
        return self.findings[0]

    @property
    def is_healthy(self) -> bool:
        """Whether the pipeline is not what limits training."""
        return self.first.cause.is_harmless

    @property
    def oscillation(self) -> Oscillation:
        return find_oscillation(self.evidence.loop.intervals_s)

    @property
    def au(self) -> float:
        """The share of time in which the step was at work."""
        return min(1.0, self.evidence.step_s / max(self.evidence.loop.interval_s, 1e-9))

    def list_changes(self) -> dict[str, Any]:
        """Settings of the configuration that the first finding asks for: those of its best advice."""
        best = [one for one in self.first.advice if one.is_setting][:1]
        return {one.setting: one.value for one in self.first.advice if one.is_setting and one.reason == best[0].reason}


def conclude(evidence: Evidence) -> Diagnosis:
    """Purely: the same evidence gives the same diagnosis."""
    return Diagnosis(
        evidence, tuple(Diagnosed(finding, advise(evidence, finding)) for finding in find_causes(evidence))
    )


def diagnose_dataset(
    dataset: Any,
    *,
    step_s: float | StepTime | None = None,
    step: Callable[[Any], Any] | None = None,
    transfer: Callable[[Any], Any] | None = None,
    num_batches: int = 50,
    time_limit_s: float = 30.0,
) -> Diagnosis:
    """Measures a `tf.data.Dataset` in front of a step and says what holds it up.

    `step` is called with every batch, as in training; without one, `step_s` is the time of an emulated step. `transfer`
    moves a batch to the device in the training loop, where that is done by hand.
    """
    from myxtts.tools.diagnose.dataset_probe import DatasetSource
    from myxtts.tools.diagnose.from_dataset import examine_dataset, make_step

    work, is_emulated = make_step(step_s, step)
    limits = Limits(num_batches, time_limit_s)
    return conclude(examine_dataset(DatasetSource(dataset), work, is_emulated, transfer, limits))


def compare_datasets(
    old: Any,
    new: Any,
    *,
    old_step: Work,
    new_step: Work | None = None,
    old_transfer: Work | None = None,
    new_transfer: Work | None = None,
    num_batches: int = 25,
    num_rounds: int = 3,
    time_limit_s: float = 15.0,
) -> Comparison:
    """Measures two datasets in turn, each in front of its step."""
    from myxtts.tools.diagnose.dataset_probe import DatasetSource

    limits = Limits(num_batches, time_limit_s)
    return compare_in_turn(
        lambda: run_together(DatasetSource(old), old_step, old_transfer, limits),
        lambda: run_together(DatasetSource(new), new_step or old_step, new_transfer, limits),
        num_rounds,
    )


def verify_dataset(
    diagnosis: Diagnosis,
    dataset: Any,
    *,
    step_s: float | StepTime | None = None,
    step: Callable[[Any], Any] | None = None,
    num_batches: int = 25,
) -> Diagnosis:
    """Tries what can be changed from outside a dataset (read-ahead, threads, repeating) in turn with the old way.

    The diagnosis comes back as it is where only the dataset's own code could be changed.
    """
    from myxtts.tools.diagnose.dataset_probe import DatasetSource
    from myxtts.tools.diagnose.from_dataset import make_step

    work, _ = make_step(step_s, step)
    source, advice = DatasetSource(dataset), diagnosis.first.advice
    ways: Mapping[str, Callable[[Any], DatasetSource]] = {
        "deeper_buffer": source.read_ahead,
        "fewer_threads": source.limit_threads,
        "repeat": source.repeat,
    }
    if not advice or advice[0].reason not in ways:
        return diagnosis
    changed = ways[advice[0].reason](advice[0].value)
    compared = compare_datasets(dataset, changed.dataset, old_step=work, num_batches=num_batches)
    return replace(diagnosis, verified=compared)


def diagnose_config(
    config: XTTSConfig,
    *,
    step_s: float | StepTime | None = None,
    num_batches: int = 50,
    time_limit_s: float = 60.0,
    hardware: Hardware | None = None,
    say: Say = lambda _line: None,
) -> Diagnosis:
    """Measures the feed of a configuration in front of its real training step, or of one that takes `step_s`."""
    from myxtts.tools.diagnose.advice import advise_machine, compare_two_ways
    from myxtts.tools.diagnose.from_config import examine_config, prepare_subject

    subject = prepare_subject(config, step_s=step_s, num_batches=num_batches, hardware=hardware, say=say)
    evidence, order = examine_config(subject, Limits(num_batches, time_limit_s))
    longest = max(order.shapes, key=lambda shape: shape.num_frames * max(1, shape.num_tokens))
    batch_bytes = 4 * longest.num_utterances * longest.num_frames * config.data.n_mels
    num_gpus = max(2, len(subject.hardware.gpus))
    return replace(
        conclude(evidence),
        machine_settings=advise_machine(subject.config, subject.hardware, batch_bytes, longest),
        split=compare_two_ways(evidence, num_gpus, subject.gradient_bytes),
    )


def verify_config(
    diagnosis: Diagnosis,
    old: XTTSConfig,
    new: XTTSConfig,
    *,
    step_s: float | StepTime | None = None,
    num_batches: int = 50,
    num_rounds: int = 3,
    hardware: Hardware | None = None,
) -> Diagnosis:
    """Runs the old and the new configuration in alternating blocks; the measured gain stands beside the predicted."""
    from myxtts.tools.diagnose.from_config import prepare_subject

    subjects = [
        prepare_subject(config, step_s=step_s, num_batches=num_batches, hardware=hardware) for config in (old, new)
    ]
    limits = Limits(max(10, int(_BLOCK_SHARE * num_batches)), _VERIFY_LIMIT_S)
    compared = compare_in_turn(lambda: subjects[0].run(limits), lambda: subjects[1].run(limits), num_rounds)
    return replace(diagnosis, verified=compared)
