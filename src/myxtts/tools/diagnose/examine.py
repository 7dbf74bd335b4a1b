"""Entry points of the pipeline diagnosis: why the accelerator waits for data, what to change, and the expected gain.

`diagnose_config` measures MyXTTS's own feed and step, `diagnose_dataset` any `tf.data.Dataset`, `diagnose_run` reads
the files of a run. All gather evidence, then `conclude` finds causes and recommendations. `verify_*` measures the first
recommendation against the old way, in alternating blocks. TensorFlow is imported only when something is measured.

from myxtts.tools.diagnose.examine import diagnose_dataset
diagnosis = diagnose_dataset(my_dataset, step=train_step)
print(diagnosis.first.cause, diagnosis.first.advice)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from myxtts.tools.diagnose.advice import MachineSetting, advise, advise_machine, compare_two_ways
from myxtts.tools.diagnose.causes import find_causes
from myxtts.tools.diagnose.evidence import Evidence
from myxtts.tools.diagnose.findings import Cause, Finding
from myxtts.tools.diagnose.timing import Comparison, Limits, compare_in_turn, run_together
from myxtts.tools.emulate import StepTime
from myxtts.tools.rhythm import Oscillation, Rating, rate_loading
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.pipeline.split_advice import SplitAdvice

_NUM_ROUNDS = 3
"""Blocks of the old and of the new variant in a verification."""
_DATASET_LIMITS = Limits(25, 15.0)
"""Length of one block of `verify_dataset`."""
_BLOCK_SHARE = 0.5
"""Length of one block of `verify_config`, as a share of the batches of the diagnosis."""
_VERIFY_LIMIT_S = 20.0
"""Time limit of such a block; with 3 rounds there are 6 of them."""

_UNDISTURBED_AU = 0.9
"""AU of emulated steps below which a pipeline without data wait was measured on a busy machine."""


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Evidence and findings, the most costly first; there is always at least one.

    `machine_settings` and `split` (data GPU or data-parallel) are set only for a configuration, `verified` only after
    `verify_dataset` or `verify_config`.
    """

    evidence: Evidence
    findings: tuple[Finding, ...]
    machine_settings: tuple[MachineSetting, ...] = ()
    split: SplitAdvice | None = None
    verified: Comparison | None = None

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def is_healthy(self) -> bool:
        """Whether the first finding is harmless, that is, training is not limited by the pipeline."""
        return self.first.cause.is_harmless

    @property
    def oscillation(self) -> Oscillation:
        return self.evidence.loop.oscillation

    @property
    def au(self) -> float:
        """Accelerator utilisation: busy time of the GPU, else step time alone / interval of the full loop."""
        facts = self.evidence.step_facts
        if facts is not None and facts.device_busy is not None:
            return facts.device_busy
        loop = self.evidence.loop
        if self.evidence.is_from_files:
            return 1 - float(loop.waits_s.sum() / max(loop.intervals_s.sum(), 1e-9))
        return min(1.0, self.evidence.step_s / max(loop.interval_s, 1e-9))

    @property
    def au_basis(self) -> Literal["emulated", "disturbed", "device", "data wait", "step"]:
        """What `au` is: of an emulated step, busy time of a GPU, time without data wait, or step time by interval.

        An emulated step is disturbed if it takes longer than it was set to although it does not wait for data.
        """
        facts = self.evidence.step_facts
        if self.evidence.is_step_emulated:
            return "disturbed" if self.is_healthy and self.au < _UNDISTURBED_AU else "emulated"
        if facts is not None and facts.device_busy is not None:
            return "device"
        return "data wait" if self.evidence.is_from_files else "step"

    def measure_share(self, finding: Finding) -> float:
        """Returns the share of time that a finding costs: of the interval, or of the wall clock for pauses."""
        interval_s = self.evidence.loop.interval_s
        # Pauses lie between the intervals of steps.
        return finding.loss_s / (interval_s + (finding.loss_s if finding.cause is Cause.PAUSES else 0.0))

    @property
    def loading(self) -> Rating:
        """Rating of data loading, by whether the step waits for it; agrees with the findings."""
        if any(one.cause.is_of_data for one in self.findings):
            return "slow"
        rating = rate_loading(self.evidence.data_s, self.evidence.step_s)
        return "moderate" if rating == "slow" else rating

    def list_changes(self) -> dict[str, Any]:
        """Returns the configuration changes of the best recommendation, which may set several keys for one reason."""
        best = [one for one in self.first.advice if one.is_setting][:1]
        return {one.setting: one.value for one in self.first.advice if one.is_setting and one.reason == best[0].reason}


def conclude(evidence: Evidence) -> Diagnosis:
    """Derives findings and recommendations from evidence, without measuring anything.

    A setting is recommended once, by the most costly finding that calls for it.
    """
    findings: list[Finding] = []
    taken: set[str] = set()
    for finding in find_causes(evidence):
        advice = tuple(one for one in advise(evidence, finding) if one.setting not in taken)
        taken.update(one.setting for one in advice)
        findings.append(replace(finding, advice=advice))
    return Diagnosis(evidence, tuple(findings))


def diagnose_dataset(
    dataset: Any,
    *,
    step_s: float | StepTime | None = None,
    step: Callable[[Any], Any] | None = None,
    transfer: Callable[[Any], Any] | None = None,
    num_batches: int = 50,
    time_limit_s: float = 30.0,
) -> Diagnosis:
    """Measures a `tf.data.Dataset` together with a training step and explains the lost time.

    `step` is called with every batch, as in training; without one, `step_s` is the time of an emulated step. `transfer`
    moves a batch to the device in the training loop, where that is done by hand.
    """
    from myxtts.tools.diagnose.dataset_probe import DatasetSource
    from myxtts.tools.diagnose.from_dataset import examine_dataset, make_step

    limits = Limits(num_batches, time_limit_s)
    return conclude(examine_dataset(DatasetSource(dataset), make_step(step_s, step), transfer, limits))


def verify_dataset(
    diagnosis: Diagnosis,
    dataset: Any,
    *,
    step_s: float | StepTime | None = None,
    step: Callable[[Any], Any] | None = None,
) -> Diagnosis:
    """Measures the first recommendation if it can be applied from outside: prefetch, thread pool, or repeat.

    Returns the diagnosis unchanged where the user's dataset code itself would have to change.
    """
    from myxtts.tools.diagnose.dataset_probe import DatasetSource
    from myxtts.tools.diagnose.from_dataset import make_step

    work, source, advice = make_step(step_s, step), DatasetSource(dataset), diagnosis.first.advice
    ways: Mapping[str, Callable[[Any], DatasetSource]] = {
        "deeper_buffer": source.read_ahead,
        "fewer_threads": source.limit_threads,
        "repeat": source.repeat,
    }
    if not advice or advice[0].reason not in ways:
        return diagnosis
    changed = ways[advice[0].reason](advice[0].value)
    compared = compare_in_turn(
        lambda: run_together(source, work, None, _DATASET_LIMITS),
        lambda: run_together(changed, work, None, _DATASET_LIMITS),
        _NUM_ROUNDS,
    )
    return replace(diagnosis, verified=compared)


def diagnose_config(
    config: XTTSConfig,
    *,
    step_s: float | StepTime | None = None,
    num_batches: int = 50,
    time_limit_s: float = 60.0,
    say: Say = lambda _line: None,
) -> Diagnosis:
    """Measures the feed of a configuration with its real training step, or with an emulated one of `step_s` seconds.

    A data GPU is compared with data-parallel training only on a machine with several GPUs.
    """
    from myxtts.tools.diagnose.from_config import examine_config, prepare_subject

    subject = prepare_subject(config, step_s=step_s, num_batches=num_batches, say=say)
    evidence, order = examine_config(subject, Limits(num_batches, time_limit_s))
    longest = max(order.shapes, key=lambda shape: shape.num_frames * max(1, shape.num_tokens))
    batch_bytes = 4 * longest.num_utterances * longest.num_frames * config.data.n_mels
    diagnosis, num_gpus = conclude(evidence), len(subject.hardware.gpus)
    advised = {advice.setting for finding in diagnosis.findings for advice in finding.advice}
    settings = advise_machine(subject.config, subject.hardware, batch_bytes, longest)
    return replace(
        diagnosis,
        # A second value for a setting would contradict the first.
        machine_settings=tuple(one for one in settings if one.setting not in advised),
        split=compare_two_ways(evidence, num_gpus, 4 * subject.step.num_parameters) if num_gpus > 1 else None,
    )


def diagnose_run(path: Path) -> Diagnosis:
    """Explains the lost time of a run from its own files; nothing is measured again. Raises DataError without a run."""
    from myxtts.tools.diagnose.from_run import examine_run

    return conclude(examine_run(path))


def verify_config(
    diagnosis: Diagnosis,
    old: XTTSConfig,
    new: XTTSConfig,
    *,
    step_s: float | StepTime | None = None,
    num_batches: int = 50,
) -> Diagnosis:
    """Runs both configurations in alternating blocks and adds the measured speed-up to the diagnosis."""
    from myxtts.tools.diagnose.from_config import prepare_subject

    subjects = [prepare_subject(config, step_s=step_s, num_batches=num_batches) for config in (old, new)]
    limits = Limits(max(10, int(_BLOCK_SHARE * num_batches)), _VERIFY_LIMIT_S)
    compared = compare_in_turn(lambda: subjects[0].run(limits), lambda: subjects[1].run(limits), _NUM_ROUNDS)
    return replace(diagnosis, verified=compared)
