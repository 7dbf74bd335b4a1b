"""Programs that leave a feed open in many ways: each ends by itself, quickly, with its own exit code."""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import NamedTemporaryFile
from textwrap import dedent

import pytest
from tests.conftest import synthesize_clip
from tests.template_process import ROOT, run_forked

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.features.wave_file import write_sound
from myxtts.store.precompute import precompute
from myxtts.types import Waveform

TIME_LIMIT_S = 20.0
"""Ending takes a moment on a quiet machine; a thread that hangs would take a minute."""

WARN = """
import warnings
warnings.filterwarnings("error", category=ResourceWarning)
"""

START = """
import gc, os, signal, sys, threading, time
from myxtts import XTTSConfig, open_batches

place, more = sys.argv[1], {}
def open_feed(**options):
    config = XTTSConfig(
        train_data=place + "/corpus", cache_dir=place + "/features", text_frontend="characters", batch_size=4,
        val_share=0.2, **more,
    )
    return open_batches(config, **{"framework": "numpy", **options})

def leave():
    print("leaving at", time.time(), flush=True)

def list_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("myxtts")]

def expect_no_threads():
    deadline = time.monotonic() + 3
    while list_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not list_threads(), list_threads()
"""

PROGRAMS = {
    "forgotten close": (
        """
        feed = open_feed()
        feed.__enter__()
        batch = next(iter(feed))
        leave()
        """,
        0,
    ),
    "exception": (
        """
        for batch in open_feed():
            leave()
            raise RuntimeError("something else went wrong")
        """,
        1,
    ),
    "exception inside with": (
        """
        with open_feed() as feed:
            for batch in feed:
                leave()
                raise RuntimeError("something else went wrong")
        """,
        1,
    ),
    "sys.exit": (
        """
        feed = open_feed()
        for batch in feed:
            leave()
            sys.exit(7)
        """,
        7,
    ),
    "iterated without with": (
        """
        feed = open_feed(epochs=1)
        ids = [id for batch in feed for id in batch.ids if id]
        assert len(ids) == len(set(ids)) > 10, ids
        assert list(feed) == []
        leave()
        """,
        0,
    ),
    "generator dropped": (
        """
        for batch in open_feed():
            break
        expect_no_threads()
        leave()
        """,
        0,
    ),
    "garbage in a cycle": (
        """
        class Model:
            pass
        model = Model()
        model.itself, model.feed = model, open_feed()
        model.batches = iter(model.feed)
        next(model.batches)
        assert list_threads()
        del model
        gc.collect()
        expect_no_threads()
        leave()
        """,
        0,
    ),
    "never iterated": (
        """
        feed = open_feed()
        assert not list_threads()
        other = open_feed()
        del other
        leave()
        """,
        0,
    ),
    "two feeds": (
        """
        feeds = [iter(open_feed()), iter(open_feed(split="val"))]
        for feed in feeds:
            next(feed)
        leave()
        sys.exit(3)
        """,
        3,
    ),
    "Ctrl-C": (
        """
        feed = open_feed()
        next(iter(feed))
        leave()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
        """,
        -2,
    ),
    "interrupted again and again": (
        """
        import random
        def interrupt(number, frame):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        random.seed(1)
        feed, seen, num_interrupts = open_feed(), [], 0
        while num_interrupts < 100:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.02))
                for batch in feed:
                    seen.append(batch.position)
            except KeyboardInterrupt:
                num_interrupts += 1
        assert seen == sorted(set(seen)), "out of order"
        assert seen[-1] - len(seen) < num_interrupts, "an interrupt costs the batch that was on its way, and no more"
        leave()
        """,
        0,
    ),
    "forked child": (
        """
        from myxtts.errors import MyXTTSError
        feed = open_feed()
        batches = iter(feed)
        next(batches)
        child = os.fork()
        if child == 0:
            try:
                next(batches)
            except MyXTTSError as error:
                assert "forked" in str(error)
                sys.exit(5)
        _, status = os.waitpid(child, 0)
        next(batches)
        leave()
        sys.exit(os.waitstatus_to_exitcode(status))
        """,
        5,
    ),
    "consumer in another thread": (
        """
        feed = open_feed()
        taken = threading.Event()
        def consume():
            for batch in feed:
                taken.set()
        threading.Thread(target=consume, daemon=True).start()
        taken.wait()
        leave()
        """,
        0,
    ),
    "closed under a waiting consumer": (
        """
        import myxtts.pipeline.loaders.store as loaders
        feed = open_feed()
        loaders.CachedLoader.fill = lambda self, plan, arrays: time.sleep(0.2) or arrays
        counts = []
        consumer = threading.Thread(target=lambda: counts.append(sum(1 for _ in feed)))
        consumer.start()
        time.sleep(0.3)
        feed.close()
        consumer.join()
        assert list(feed) == []
        leave()
        """,
        0,
    ),
    "loader that hangs": (
        """
        import myxtts.pipeline.loaders.store as loaders
        loaders.CachedLoader.fill = lambda self, plan, arrays: threading.Event().wait()
        feed = open_feed()
        feed.__enter__()
        time.sleep(0.3)
        leave()
        """,
        0,
    ),
    "on the fly in Python": (
        """
        more.update(preprocessing_mode="on_the_fly", use_tf_native_loading=False)
        feed = iter(open_feed())
        next(feed)
        leave()
        sys.exit(4)
        """,
        4,
    ),
    "tensors": (
        """
        feed = iter(open_feed(framework="tensorflow"))
        assert next(feed).mel.dtype.name == "float32"
        leave()
        sys.exit(4)
        """,
        4,
    ),
    "on the fly in TensorFlow": (
        """
        more.update(preprocessing_mode="on_the_fly", auto_tune_performance=False)
        feed = iter(open_feed(framework="tensorflow"))
        next(feed)
        leave()
        raise KeyError("tokens")
        """,
        1,
    ),
    "data device": (
        """
        from dataclasses import replace
        from tests.device_process import split_cpu
        from myxtts import choose_plan, detect_hardware
        from myxtts.runtime.plan import Mode
        split_cpu(3)
        more.update(preprocessing_mode="on_the_fly", use_tf_native_loading=False)
        plan = replace(
            choose_plan(XTTSConfig(**more), detect_hardware()), mode=Mode.MULTI_GPU, data_device="/CPU:1",
            model_devices=("/CPU:2",), prefetch_buffer_size=1,
        )
        feed = iter(open_feed(framework="tensorflow", plan=plan))
        next(feed)
        leave()
        sys.exit(6)
        """,
        6,
    ),
}
NOTEBOOK = """
import builtins
cells = [
    "feed = open_feed()",
    "signal.setitimer(signal.ITIMER_REAL, 1.0)\\nfor batch in feed:\\n    seen.append(batch.position)\\n    STEP()",
    "first = list(seen)\\nfeed = open_feed(epochs=1)\\nseen.extend(batch.position for batch in feed)",
]
import myxtts.pipeline.loaders.store as loaders
fill = loaders.CachedLoader.fill
def fill_slowly(self, plan, arrays):
    if plan.position > 2 and not interrupted:
        time.sleep(0.5)
    return fill(self, plan, arrays)
loaders.CachedLoader.fill = fill_slowly
# As a notebook does it: the signal becomes a KeyboardInterrupt in the main thread, wherever that is.
def interrupt(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
seen, interrupted = [], []
scope = {**globals(), "STEP": lambda: None}
for cell in cells:
    try:
        exec(cell, scope)
    except KeyboardInterrupt as stopped:
        # A notebook keeps the last traceback, with all frames in it.
        sys.last_value = stopped
        interrupted.append(True)
assert interrupted == [True]
first = scope["first"]
assert first == list(range(len(first))) and len(first) >= 3, first
assert seen[len(first):] == list(range(scope["feed"]._threads.ahead._batches.stop)), seen
leave()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left_open")
    (folder / "raw" / "wavs").mkdir(parents=True)
    lines = []
    for number in range(24):
        write_sound(folder / "raw" / "wavs" / f"c{number}.wav", Waveform(synthesize_clip(1.0, number), 22050))
        lines.append(f"c{number}|Sentence {number}.|This is sentence number {number}.\n")
    (folder / "raw" / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    data = XTTSConfig(text_frontend="characters", val_share=0.2).data
    prepare_corpus([Recordings(folder / "raw")], folder / "corpus", data)
    precompute(open_corpus(folder / "corpus"), folder / "features", data)
    return folder


def run_program(code: str, place: Path) -> tuple[int, float, str]:
    """Exit code, seconds from leaving to the end of the process, and what it wrote."""
    with NamedTemporaryFile("r", encoding="utf-8") as file:
        exit_code = run_forked(
            "tests.template_process:run_code",
            {"code": WARN + START + code, "arguments": [str(place)], "output": file.name},
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            tensorflow=False,
        )
        ended_at, output = time.time(), file.read()
    left = [line for line in output.splitlines() if line.startswith("leaving at")]
    return exit_code, ended_at - float(left[-1].split()[-1]) if left else float("inf"), output


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_ends_by_itself_with_its_own_exit_code(name: str, place: Path) -> None:
    code, expected = PROGRAMS[name]
    exit_code, seconds, output = run_program(dedent(code), place)
    assert exit_code == expected, output
    assert seconds < TIME_LIMIT_S, output
    if expected == 0:
        assert "Traceback" not in output, output


def test_notebook_goes_on_after_a_cell_was_interrupted(place: Path) -> None:
    exit_code, seconds, output = run_program(NOTEBOOK, place)
    assert exit_code == 0, output
    assert seconds < TIME_LIMIT_S
