"""Whether training and speaking keep their promises on speed and memory: the `tiny` model on the demo corpus.

What is compared runs in turns within one process, and a figure is the median of its blocks. The step is timed as a
training runs it: a step is started, then the numbers of the one before are read.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.alone import QuietMoments, run_alone
from benchmarks.harness import Measurement
from benchmarks.voice_data import make_config, make_data
from benchmarks.voice_memory import measure_growth
from benchmarks.voice_speech import measure_speech
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.open import open_batches
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.training.voice.data import measure_spec, open_training_data

if TYPE_CHECKING:
    from myxtts.training.voice.learner import Learner

_NUM_BATCHES_IN_MEMORY = 4
_STEPS_PER_BLOCK, _NUM_BLOCKS = 8, 7
_NUM_USUAL_SHAPES = 3
"""As many as `myxtts demo` has."""
_SEARCHES_PER_BLOCK = 3
_NUM_MODE_BLOCKS = 3
_GRAPH_STEPS_PER_BLOCK = 4
_PATIENCE_S = 120.0
_EAGER, _GRAPH, _COMPILED = "eager", "graph", "compiled"


def measure_voice() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        make_data(Path(name))
        return [
            _describe_feed(run_alone(compare_steps, name)),
            _describe_search(run_alone(compare_search, name)),
            _describe_modes(run_alone(compare_modes, name)),
            *_describe_speech(run_alone(measure_speech, name)),
            _describe_growth(run_alone(measure_growth, name)),
        ]


def compare_steps(folder: str) -> dict[str, float]:
    """Seconds of a compiled step, from the feed and from memory. One shape of batches, so that all steps are alike."""
    config, quiet = make_config(folder), QuietMoments(_PATIENCE_S)
    learner = _make_learner(config, _COMPILED)
    with open_batches(config, steps=_NUM_BATCHES_IN_MEMORY) as feed:
        in_memory = list(feed)
    with open_batches(config) as feed:
        actions = {
            "feed": _make_training(learner, iter(feed), _STEPS_PER_BLOCK),
            "memory": _make_training(learner, cycle(in_memory), _STEPS_PER_BLOCK),
        }
        blocks = _run_blocks(actions, _NUM_BLOCKS, quiet)
    return {
        "ratio": median(block["feed"] / block["memory"] for block in blocks),
        **{name: median(block[name] for block in blocks) for name in actions},
    }


def compare_search(folder: str) -> dict[str, float]:
    """Seconds of a compiled step, and of the search for alignments in it, over an epoch with its usual shapes."""
    config, quiet = make_config(folder, num_shapes=_NUM_USUAL_SHAPES), QuietMoments(_PATIENCE_S)
    learner = _make_learner(config, _COMPILED)
    with open_batches(config, epochs=1) as feed:
        epoch = list(feed)
    searches = [_make_search(learner, batch) for batch in epoch]
    actions: dict[str, Callable[[], float]] = {
        "step": _make_training(learner, cycle(epoch), len(epoch)),
        "search": lambda: _time(lambda: [search() for search in searches], _SEARCHES_PER_BLOCK) / len(epoch),
    }
    blocks = _run_blocks(actions, _NUM_BLOCKS, quiet)
    return {
        "share": median(block["search"] / block["step"] for block in blocks),
        **{name: median(block[name] for block in blocks) for name in actions},
    }


def compare_modes(folder: str) -> dict[str, float]:
    """Seconds of a step operation by operation and as a graph, from the same batches in memory."""
    config, quiet = make_config(folder), QuietMoments(_PATIENCE_S)
    with open_batches(config, steps=1) as feed:
        in_memory = list(feed)
    num_steps = {_EAGER: 1, _GRAPH: _GRAPH_STEPS_PER_BLOCK}
    actions = {
        mode: _make_training(_make_learner(config, mode), cycle(in_memory), number)
        for mode, number in num_steps.items()
    }
    blocks = _run_blocks(actions, _NUM_MODE_BLOCKS, quiet)
    return {
        "ratio": median(block[_EAGER] / block[_GRAPH] for block in blocks),
        **{mode: median(block[mode] for block in blocks) for mode in actions},
    }


def _run_blocks(
    actions: Mapping[str, Callable[[], float]], num_blocks: int, quiet: QuietMoments
) -> list[dict[str, float]]:
    """What each action gave in each block; every other block runs in reverse, and one before them warms up."""
    blocks = []
    for number in range(num_blocks + 1):
        quiet.wait()
        names = list(actions)[:: 1 if number % 2 else -1]
        blocks.append({name: actions[name]() for name in names})
    return blocks[1:]


def _make_learner(config: XTTSConfig, mode: str) -> Learner:
    """A model that is ready to be trained on this machine's processor."""
    import tensorflow as tf

    from myxtts.training.execution import LANES_ON_CPU, Execution
    from myxtts.training.voice.learner import build_learner

    plan = choose_plan(config, detect_hardware())
    data = open_training_data(config, plan)
    num_lanes = LANES_ON_CPU if mode == _COMPILED else 1
    execution = Execution(mode != _EAGER, mode == _COMPILED, "float32", (), num_lanes)
    return build_learner(config, plan, measure_spec(config, plan, data), data, execution, tf.distribute.get_strategy())


def _make_training(learner: Learner, batches: Iterator[Any], num_steps: int) -> Callable[[], float]:
    """Trains for some steps when called; gives the seconds of one."""

    def train() -> float:
        unread: Any = None

        def train_once() -> None:
            nonlocal unread
            result = learner.train([next(batches)], 0)
            before, unread = unread, result
            if before is not None:
                before.read()

        seconds = _time(train_once, num_steps)
        unread.read()
        return seconds

    return train


def _make_search(learner: Learner, batch: Any) -> Callable[[], object]:
    """Scores and paths of a batch's utterances, compiled as within the step."""
    model, part = learner.model, batch.arrays()
    _, states = model.encode_part(part)
    # Only what the search looks at, as tensors, so that nothing can be computed beforehand.
    inputs = (states.means_BSM, states.is_state_BS, model.normalize_mel(part["mel"]), part["mel_lengths"])
    search = _compile_search(learner)
    return lambda: search(*inputs).numpy()


@cache
def _compile_search(learner: Learner) -> Any:
    import tensorflow as tf

    from myxtts.models.text_encoder import TextStates

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def search(means_BSM: Any, is_state_BS: Any, mel_BTM: Any, lengths_B: Any) -> Any:
        states = TextStates(None, means_BSM, None, is_state_BS)
        return learner.model.align_states(states, mel_BTM, lengths_B, diagonal_weight=tf.constant(0.5)).durations_BS

    return search


def _time(action: Callable[[], object], num_calls: int) -> float:
    """Seconds of one of some calls."""
    started = time.perf_counter()
    for _ in range(num_calls):
        action()
    return (time.perf_counter() - started) / num_calls


def _describe_feed(figures: dict[str, float]) -> Measurement:
    note = f"compiled, batches of 16: {figures['feed']:.3f} s from the feed, {figures['memory']:.3f} s from memory"
    return Measurement("training step of tiny, by one fed from memory", figures["ratio"], "x", "at most", 1.1, note)


def _describe_search(figures: dict[str, float]) -> Measurement:
    note = f"compiled alike, scores included: {1000 * figures['search']:.1f} ms of {1000 * figures['step']:.0f} ms"
    return Measurement("alignment search, share of the step", 100 * figures["share"], "%", "at most", 3.0, note)


def _describe_modes(figures: dict[str, float]) -> Measurement:
    note = f"{figures[_EAGER]:.2f} s and {figures[_GRAPH]:.2f} s a step, without XLA"
    return Measurement("eager step of tiny, by graph mode", figures["ratio"], "x", "at least", 3.0, note)


def _describe_speech(figures: dict[str, float]) -> list[Measurement]:
    spoken = f"{figures['spoken_s']:.1f} s of speech, 8 ODE steps and Griffin-Lim, graphs made before"
    note = f"out after {100 * figures['first_share']:.0f} % of the time of {figures['num_sentences']:.0f} sentences"
    return [
        Measurement("real-time factor of tiny", figures["real_time_factor"], "x", "at most", 0.2, spoken),
        Measurement("sentences computed when the first is out", figures["num_begun"], "", "at most", 1, note),
    ]


def _describe_growth(figures: dict[str, float]) -> Measurement:
    growth = 100 * (figures["late"] / figures["early"] - 1)
    note = f"{figures['early']:.0f} and {figures['late']:.0f} MB, {figures['num_rounds']:.0f} validations with samples"
    return Measurement("growth of memory from step 200 to 2,000", growth, "%", "at most", 1.0, note)
