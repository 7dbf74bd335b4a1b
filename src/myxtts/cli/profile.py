"""`myxtts profile`: time per stage of real training steps: data, forward, backward, optimiser, checkpoint, logging."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from myxtts.cli.help import WHAT, WHERE, HtmlReport, PageLanguage, option
from myxtts.cli.screen import Screen
from myxtts.cli.settings import (
    CORPUS_FLAGS,
    DEVICE_FLAGS,
    LENGTH_FLAGS,
    LOADING_FLAGS,
    MODEL_FLAGS,
    require_data,
    takes_settings,
)

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.tools.profile.result import TrainingProfile


@takes_settings(*CORPUS_FLAGS, *MODEL_FLAGS, *DEVICE_FLAGS, *LOADING_FLAGS, hidden=("val_data", *LENGTH_FLAGS))
def run_profile(
    config: XTTSConfig,
    steps: Annotated[int, option("Steps to profile.", "N", WHAT, min=2, max=100_000)] = 20,
    trace: Annotated[Path | None, option("Write a TensorFlow trace here, for xprof.", "DIR", WHERE)] = None,
    report: HtmlReport = None,
    lang: PageLanguage = "en",
    as_json: Annotated[bool, option("Print the result as one JSON object.", flag="--json")] = False,
) -> None:
    """Measure where the time of a training step goes: data, forward, backward, optimiser, checkpoint.

    Trains a few real steps in a temporary folder. XLA is used as in a long run; --set training.steps=N changes that.

    [bold]Examples[/bold]

    myxtts profile --train-data corpus --model-size tiny --report profile.html

    myxtts profile --config mine.yaml --steps 50 --trace traces --json
    """
    from myxtts.cli.summaries import ScreenReport
    from myxtts.store.provide import ensure_features
    from myxtts.tools.profile.measure import profile_training
    from myxtts.tools.words import Translator
    from myxtts.training.run.folder import describe_environment

    screen, tr = Screen(as_json=as_json), Translator(lang)
    require_data(config)
    progress = ScreenReport(screen)
    config = ensure_features(config, progress)
    profile = profile_training(config, num_steps=steps, trace_dir=trace, say=progress.say)
    _show(profile, screen)
    machine = describe_environment()
    if report is not None:
        from myxtts.tools.profile.page import make_profile_page

        make_profile_page(profile, machine, tr).write(report)
        screen.console.print(f"The report is {report}", markup=False, soft_wrap=True)
    screen.finish({"machine": machine, **profile.to_json()})


def _show(profile: TrainingProfile, screen: Screen) -> None:
    """Prints the stages of an average step and what it starts as tables, then the lines of `_describe`."""
    from myxtts.tools.charts import make_terminal_table
    from myxtts.tools.profile.page import COUNTS, STAGES, list_counts
    from myxtts.tools.words import Translator

    tr, stages = Translator(), profile.list_stages()
    total = max(sum(seconds for _, seconds in stages), 1e-12)
    rows = [(tr(STAGES[name]), tr.number(1000 * seconds), tr.share(seconds / total)) for name, seconds in stages]
    screen.console.print(make_terminal_table("An average step", ("", "ms", "share"), rows, is_numeric=True))
    counts = [(tr(COUNTS[name]), text) for name, text in list_counts(profile.counts, tr).items()]
    screen.console.print(make_terminal_table("What a step starts", ("", "per step"), counts, is_numeric=True))
    for line in _describe(profile):
        screen.console.print(line, markup=False, soft_wrap=True)


def _describe(profile: TrainingProfile) -> list[str]:
    """Returns findings in words: sum of stages against whole step, loading, checkpoints, graphs, slow tf.data ops."""
    parts, data, saving = profile.parts, profile.data, profile.saving
    stable = "stable" if data.is_stable else "not stable"
    whole_ms, sum_ms, held_ms = (1000 * value for value in (parts.whole_s, parts.sum_s, saving.checkpoint_held_s))
    busy = profile.counts.device_busy
    au = f"AU {100 * data.au:.1f} % (no data wait)" if busy is None else f"AU {100 * busy:.1f} % (GPU busy)"
    loading = f"{data.load.mean_ms:.1f} ms a batch, {data.rating}, {stable}; {au}."
    lines = [
        f"Whole step of shape {parts.shape}: {whole_ms:.1f} ms; its parts add up to {sum_ms:.1f} ms.",
        f"Data loading ({data.loader}): {loading}",
        f"Checkpoint: holds training up for {held_ms:.0f} ms every {saving.checkpoint_steps:,} steps.",
    ]
    if profile.compilations:
        slowest = max(profile.compilations, key=lambda one: one.seconds)
        total_s = sum(one.seconds for one in profile.compilations)
        lines.append(
            f"Graphs: {len(profile.compilations)} in {total_s:.1f} s, {profile.num_retraces} of them while training; "
            f"the slowest is {slowest.shape} with {slowest.seconds:.1f} s."
        )
    slow_ops = sorted(profile.ops, key=lambda op: -op.own_ms)[:3]
    if slow_ops:
        lines.append("tf.data: " + ", ".join(f"{op.name} {op.own_ms:.2f} ms a batch" for op in slow_ops) + ".")
    if profile.trace_dir:
        lines.append(f"Look at the trace with: xprof --logdir {profile.trace_dir} (pip install xprof)")
    return lines
