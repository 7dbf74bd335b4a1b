"""Whether the feed keeps an accelerator busy: an emulated one, beside the same loop over batches in memory.

Feed and ceiling run in alternating blocks; a figure is the median of its blocks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.alone import QuietMoments, run_alone
from benchmarks.corpora import DATA, make_corpus, make_store, prepare
from benchmarks.harness import Measurement
from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.demo import make_demo_corpus
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.order import NO_ROW
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import make_order
from myxtts.pipeline.telemetry import StepRecord, Telemetry
from myxtts.runtime.timing import run_in_turns, time_calls
from myxtts.store.reader import FeatureStore
from myxtts.tools.emulate import Emulation, emulate, repeat_batches

_NUM_UTTERANCES = 1600
_CLIP_SECONDS = (6.0, 6.0001)
_NUM_BATCHES_IN_MEMORY = 8
_BATCHES_PER_EPOCH = _NUM_UTTERANCES // DATA.batch_size  # type: ignore[operator]

# Step in seconds: epochs of a block, number of blocks, share of the ceiling that must be reached.
_STEPS = {0.020: (3, 5, 0.99), 0.005: (6, 7, 0.97)}
_MOST_VARIATION = 0.05
"""Or what batches in memory show, should the machine's clock and scheduler alone give more."""
_NUM_AROUND_EPOCH_END = 5
_NUM_MEMORY_BATCHES = 10_000
_NUM_TUNING_BLOCKS = 5
_PATIENCE_S = 60.0
_TELEMETRY_CALLS = 10_000
_DEMO_MINUTES = 20.0
_DEMO_BATCH_SIZE = 16
"""What `make demo` makes, and trains on."""


def measure_feed() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = make_corpus(folder, _NUM_UTTERANCES, _CLIP_SECONDS)
        make_store(corpus, folder / "store")
        busy = run_alone(compare_with_memory, name)
        return [
            *(measurement for step_s in _STEPS for measurement in _describe_step(busy, step_s)),
            _describe_memory(run_alone(measure_memory, name)),
            *_describe_tuning(run_alone(compare_tuning, name)),
            _describe_padding(measure_padding(folder / "demo")),
            _describe_telemetry(measure_telemetry(folder / "telemetry.jsonl")),
        ]


def make_config(folder: str, **settings: Any) -> XTTSConfig:
    paths = {"train_data": f"{folder}/corpus", "cache_dir": f"{folder}/store"}
    return XTTSConfig(**paths, text_frontend=DATA.text_frontend, **settings)


def compare_with_memory(folder: str) -> dict[str, float]:
    """Figures by name and step: of the feed, and of batches that already lie in memory."""
    config, quiet = make_config(folder), QuietMoments(_PATIENCE_S)
    with open_batches(config, steps=_NUM_BATCHES_IN_MEMORY) as feed:
        in_memory = list(feed)
    figures = {}
    for step_s, (num_epochs, num_blocks, _) in _STEPS.items():
        pairs = [_run_block(config, in_memory, step_s, num_epochs, quiet) for _ in range(num_blocks)]
        for name, judge in _JUDGES.items():
            figures[_name_figure(name, step_s)] = median(judge(fed, ceiling) for fed, ceiling in pairs)
    return figures


def _run_block(
    config: XTTSConfig, in_memory: list[Any], step_s: float, num_epochs: int, quiet: QuietMoments
) -> tuple[Emulation, Emulation]:
    quiet.wait()
    ceiling = emulate(repeat_batches(in_memory, _BATCHES_PER_EPOCH * num_epochs // 2), step_s)
    with open_batches(config, epochs=num_epochs) as feed:
        return emulate(feed, step_s), ceiling


def compare_first_epoch(fed: Emulation) -> float:
    """AU of the first epoch by that of the later ones. The arrays of an emulation begin with the second step."""
    stop = _BATCHES_PER_EPOCH - 1
    return fed.measure_au(0, stop) / fed.measure_au(stop, fed.num_steps)


def compare_epoch_ends(fed: Emulation) -> float:
    """AU of the steps around the ends of epochs by that of the other steps, the first epoch left out of those."""
    starts = np.arange(_BATCHES_PER_EPOCH - 1, fed.num_steps, _BATCHES_PER_EPOCH)
    reach = _NUM_AROUND_EPOCH_END // 2
    is_around = np.zeros(fed.num_steps, bool)
    for start in starts:
        is_around[start - reach : start + reach + 1] = True
    is_other = ~is_around & (np.arange(fed.num_steps) >= starts[0])
    au_around, au_other = (fed.nominal_s[part].sum() / fed.intervals_s[part].sum() for part in (is_around, is_other))
    return float(au_around / au_other)


_JUDGES: dict[str, Callable[[Emulation, Emulation], float]] = {
    "share": lambda fed, ceiling: fed.au / ceiling.au,
    "au": lambda fed, _ceiling: fed.au,
    "ceiling": lambda _fed, ceiling: ceiling.au,
    "effective": lambda fed, _ceiling: fed.effective_au,
    "variation": lambda fed, _ceiling: fed.step_variation,
    "ceiling variation": lambda _fed, ceiling: ceiling.step_variation,
    "first epoch": lambda fed, _ceiling: compare_first_epoch(fed),
    "epoch ends": lambda fed, _ceiling: compare_epoch_ends(fed),
    "cpu": lambda fed, _ceiling: 1000 * fed.cpu_s_per_utterance,
}


def _name_figure(name: str, step_s: float) -> str:
    return f"{name} at {1000 * step_s:g} ms"


def _describe_step(figures: dict[str, float], step_s: float) -> list[Measurement]:
    au, ceiling, effective, variation, cpu_ms = (
        figures[_name_figure(name, step_s)] for name in ("au", "ceiling", "effective", "ceiling variation", "cpu")
    )
    busy = f"emulated: AU {au:.4f}, ceiling {ceiling:.4f}, effective AU {effective:.3f}, {cpu_ms:.2f} ms CPU a clip"
    rows = (
        ("share", "AU of the cached feed by its ceiling", "at least", _STEPS[step_s][2], busy),
        ("variation", "step-time variation", "at most", max(_MOST_VARIATION, variation), f"ceiling {variation:.4f}"),
        ("first epoch", "AU of the first epoch by the later ones", "at least", 0.95, "its first step left out"),
        ("epoch ends", "AU around epoch ends by that between them", "at least", 0.95, ""),
    )
    return [
        Measurement(_name_figure(text, step_s), figures[_name_figure(name, step_s)], "x", kind, limit, note)
        for name, text, kind, limit, note in rows
    ]


def measure_memory(folder: str) -> dict[str, float]:
    """Megabytes of this process after a thousand batches and at the end, each the median of neighbouring readings.

    The buffer, whose memory is made ready piece by piece, has its full size before.
    """
    with open_batches(make_config(folder, batch_size=4), steps=_NUM_MEMORY_BATCHES) as feed:
        while feed.depth < feed.settings.buffer_size:
            time.sleep(0.1)
        seen = emulate(feed, 0.0)
    megabytes = [value / 2**20 for value in seen.rss_bytes]
    # A reading every fifty batches: the twentieth is that of batch 1,001.
    return {"early": median(megabytes[18:23]), "late": median(megabytes[-5:])}


def _describe_memory(megabytes: dict[str, float]) -> Measurement:
    growth = 100 * (megabytes["late"] / megabytes["early"] - 1)
    note = f"{megabytes['early']:.0f} and {megabytes['late']:.0f} MB"
    return Measurement("growth of memory from batch 1,000 to 10,000", growth, "%", "at most", 1.0, note)


def compare_tuning(folder: str) -> dict[str, float]:
    """Utterances per second with tuning by those with the fixed settings, for a fast and for a slow producer."""
    slow = {"preprocessing_mode": "on_the_fly", "use_tf_native_loading": False, "batch_size": 8}
    producers: dict[str, tuple[dict[str, Any], int]] = {"fast": ({}, 6 * _BATCHES_PER_EPOCH), "slow": (slow, 120)}
    figures, quiet = {}, QuietMoments(_PATIENCE_S)
    for name, (settings, num_steps) in producers.items():
        configs = {
            key: make_config(folder, auto_tune_performance=key == "tuned", **settings) for key in ("tuned", "fixed")
        }
        actions = {key: partial(_measure_rate, config, num_steps) for key, config in configs.items()}
        rates = run_in_turns(actions, _NUM_TUNING_BLOCKS + 1, quiet.wait)
        # The first block warms up.
        tuned, fixed = rates["tuned"][1:], rates["fixed"][1:]
        figures[name] = median(on / off for on, off in zip(tuned, fixed, strict=True))
        figures |= {f"{name} tuned": median(tuned), f"{name} fixed": median(fixed)}
    return figures


def _measure_rate(config: XTTSConfig, num_steps: int) -> float:
    with open_batches(config, steps=num_steps) as feed:
        return emulate(feed, 0.0).utterances_per_s


def _describe_tuning(figures: dict[str, float]) -> list[Measurement]:
    texts = {"fast": "cached features", "slow": "recordings through Python"}
    return [
        Measurement(
            f"rate with tuning by that of the fixed settings, {text}",
            figures[name],
            "x",
            "at least",
            0.97,
            f"{figures[f'{name} tuned']:.0f} and {figures[f'{name} fixed']:.0f} utterances/s, the start included",
        )
        for name, text in texts.items()
    ]


def measure_padding(folder: Path) -> dict[str, float]:
    """The share of an epoch's frames that is padding: from a store, and on the fly, where trimming is yet to come."""
    make_demo_corpus(folder / "recordings", minutes=_DEMO_MINUTES)
    config = make_config(str(folder), batch_size=_DEMO_BATCH_SIZE)
    corpus = prepare(folder / "recordings", folder / "corpus", config.data)
    store = FeatureStore.open(make_store(corpus, folder / "store"))
    source = RecordingSource.open(open_corpus(corpus), config.data)
    real = {store.id_of(row): int(store.columns["mel_length"][row]) for row in range(len(store))}
    figures = {"utterances": float(len(store.rows_of_split("train")))}
    tables: dict[str, FeatureStore | RecordingSource] = {"cached": store, "on the fly": source}
    for name, table in tables.items():
        order = make_order(table.columns, table.rows_of_split("train"), config, shuffle=True)
        plans = [order.batch(position) for position in range(order.num_batches_per_epoch)]
        num_frames = sum(real[table.id_of(int(row))] for plan in plans for row in plan.rows if row != NO_ROW)
        num_padded = sum(plan.shape.num_utterances * plan.shape.num_frames for plan in plans)
        figures |= {name: 1 - num_frames / num_padded, "shapes": float(len(order.shapes))}
    return figures


def _describe_padding(figures: dict[str, float]) -> Measurement:
    note = f"{figures['utterances']:.0f} utterances in batches of {_DEMO_BATCH_SIZE}, {figures['shapes']:.0f} shapes"
    note += f"; on the fly {100 * figures['on the fly']:.1f} %, silence that is trimmed included"
    return Measurement("padding on the demo corpus, cached", 100 * figures["cached"], "%", "at most", 10.0, note)


def measure_telemetry(path: Path) -> dict[str, float]:
    """Seconds that one step's record takes, with and without a file."""
    step = StepRecord(0, 1e-5, 0.005, {"transfer": 0.001}, 50, 16_000, 16_640, 32, "32x520x40")
    figures = {}
    for name, file in {"file": path, "memory": None}.items():
        telemetry = Telemetry(file)

        def record(telemetry: Telemetry = telemetry) -> None:
            for position in range(_TELEMETRY_CALLS):
                telemetry.record(replace(step, position=position), time.perf_counter(), time.perf_counter())

        figures[name] = time_calls(record, 3) / _TELEMETRY_CALLS
        telemetry.close()
    return figures


def _describe_telemetry(seconds: dict[str, float]) -> Measurement:
    note = f"{1e6 * seconds['file']:.1f} µs with a file, {1e6 * seconds['memory']:.1f} µs without"
    return Measurement("telemetry, share of a 20 ms step", 100 * seconds["file"] / 0.020, "%", "at most", 0.5, note)
