"""Large stores: a million utterances open at once, and precompute takes memory that does not grow with the corpus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile
from tests.conftest import synthesize_clip
from tests.store.corpora import DATA
from tests.store.synthetic import ORIGIN

from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.store.index import PartEntry, Row, write_index
from myxtts.store.layout import (
    ALIGNMENT,
    CHUNK_UTTERANCES,
    StoreSettings,
    StoreState,
    align,
    index_path,
    name_generation,
    part_path,
    read_state,
    write_state,
)

NUM_UTTERANCES = 1_000_000
MAX_OPEN_S = 1.0
MAX_RESIDENT_MB = 300

OPEN_STORE = """
import json, sys, time
from myxtts.store.reader import FeatureStore
started = time.perf_counter()
store = FeatureStore.open(sys.argv[1])
opened = time.perf_counter()
import numpy as np
rows = np.random.default_rng(0).integers(0, len(store), 10_000)
checksum = sum(len(store.read_mel(int(row))) for row in rows)
read = time.perf_counter()
found = sum(store.find(f"utterance-{number:07}") == number for number in range(0, len(store), len(store) // 1000))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "num_utterances": len(store), "open_s": opened - started, "read_us": (read - opened) / len(rows) * 1e6,
    "resident_mb": int(status["VmRSS"].split()[0]) / 1024, "peak_mb": int(status["VmHWM"].split()[0]) / 1024,
    "checksum": checksum, "num_found": found,
}))
"""

PRECOMPUTE = """
import json, sys, time
from pathlib import Path
from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.store.precompute import precompute
data = DataConfig(text_frontend="characters")
started = time.perf_counter()
summary = precompute(open_corpus(sys.argv[1]), Path(sys.argv[2]), data, num_threads=2)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "num_made": summary.num_made, "seconds": time.perf_counter() - started,
    "anonymous_mb": int(status["RssAnon"].split()[0]) / 1024, "peak_mb": int(status["VmHWM"].split()[0]) / 1024,
}))
"""


def run_program(program: str, *arguments: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def write_large_store(folder: Path, num_utterances: int, num_frames: int, num_tokens: int) -> None:
    """Indexes as precompute would write them, beside data files that are all hole."""
    settings = StoreSettings(
        MelDefinition.from_config(DATA), AudioDefinition.from_config(DATA), "float32", has_pcm=False, frontend="none"
    )
    generation = folder / name_generation(1)
    generation.mkdir(parents=True)
    mel_bytes, token_bytes = align(num_frames * settings.mel.n_mels * 4), align(num_tokens * 4)
    segments = range(-(-num_utterances // CHUNK_UTTERANCES))
    for segment in segments:
        start = segment * CHUNK_UTTERANCES
        rows = [
            Row(
                f"utterance-{number:07}",
                f"speaker{number % 1000}",
                "en",
                parts={
                    "mel": PartEntry(segment, ALIGNMENT + place * mel_bytes, num_frames, 1),
                    "tokens": PartEntry(segment, ALIGNMENT + place * token_bytes, num_tokens, 1),
                },
            )
            for place, number in enumerate(range(start, min(start + CHUNK_UTTERANCES, num_utterances)))
        ]
        write_index(index_path(generation, segment), rows)
        for part, record_bytes in (("mel", mel_bytes), ("tokens", token_bytes)):
            with part_path(generation, segment, part).open("wb") as file:  # type: ignore[arg-type]
                file.truncate(ALIGNMENT + len(rows) * record_bytes)
    state = StoreState(1, tuple(segments), settings, ORIGIN)
    write_state(folder, replace(state, num_utterances=num_utterances))


def open_and_print(folder: Path) -> dict[str, Any]:
    result = run_program(OPEN_STORE, folder)
    memory = f"resident {result['resident_mb']:.0f} MB, peak {result['peak_mb']:.0f} MB"
    times = f"open {result['open_s']:.2f} s, one utterance {result['read_us']:.0f} µs"
    print(f"{result['num_utterances']:,} utterances: {times}, {memory}")
    return result


def report_opening(folder: Path, num_utterances: int) -> dict[str, Any]:
    write_large_store(folder, num_utterances, num_frames=600, num_tokens=80)
    result = open_and_print(folder)
    assert result["num_utterances"] == num_utterances
    assert result["checksum"] == 600 * 10_000
    assert result["num_found"] >= 1000
    return result


def test_a_store_of_many_segments_opens_quickly(tmp_path: Path) -> None:
    result = report_opening(tmp_path, 20_000)
    assert result["open_s"] < MAX_OPEN_S
    assert result["peak_mb"] < MAX_RESIDENT_MB


@pytest.mark.soak
def test_a_million_utterances_open_in_a_second_and_300_mb(tmp_path: Path) -> None:
    result = report_opening(tmp_path, NUM_UTTERANCES)
    assert result["open_s"] < MAX_OPEN_S
    assert result["peak_mb"] < MAX_RESIDENT_MB


@pytest.mark.soak
def test_a_million_utterances_of_which_some_were_replaced_open_as_quickly(tmp_path: Path) -> None:
    write_large_store(tmp_path, NUM_UTTERANCES, num_frames=600, num_tokens=80)
    state = read_state(tmp_path)
    assert state is not None
    replaced = [
        Row(f"utterance-{number:07}", "zoe", "en", parts={"mel": PartEntry(0, ALIGNMENT, 600, 1)})
        for number in range(0, NUM_UTTERANCES, 999)
    ]
    number = len(state.segments)
    write_index(index_path(tmp_path / name_generation(1), number), replaced)
    write_state(tmp_path, replace(state, segments=(*state.segments, number)))
    result = open_and_print(tmp_path)
    assert result["num_utterances"] == NUM_UTTERANCES
    assert result["open_s"] < MAX_OPEN_S
    assert result["peak_mb"] < MAX_RESIDENT_MB


def link_clips(folder: Path, num_clips: int) -> Path:
    """A prepared corpus of one recording under many names; headers alone are read, which knows files by their place."""
    recordings = folder / "recordings"
    recordings.mkdir(parents=True)
    first = recordings / "clip0.wav"
    soundfile.write(first, synthesize_clip(1.0), 22050)
    for number in range(1, num_clips):
        os.link(first, recordings / f"clip{number}.wav")
    lines = [f"clip{number}|clip{number}.wav|Words of it.\n" for number in range(num_clips)]
    (recordings / "metadata.csv").write_text("id|audio|text\n" + "".join(lines), encoding="utf-8")
    prepare_corpus([Recordings(recordings, "manifest")], folder / "corpus", DATA, headers_only=True)
    return folder / "corpus"


@pytest.mark.soak
def test_precompute_takes_time_in_proportion_and_memory_that_does_not_grow(tmp_path: Path) -> None:
    results = {}
    for num_clips in (1_000, 10_000):
        corpus = link_clips(tmp_path / str(num_clips), num_clips)
        result = run_program(PRECOMPUTE, corpus, tmp_path / str(num_clips) / "store")
        print(
            f"{num_clips:,} utterances: {result['seconds']:.1f} s, peak {result['peak_mb']:.0f} MB, "
            f"in the end {result['anonymous_mb']:.0f} MB"
        )
        assert result["num_made"] == num_clips
        results[num_clips] = result
    # The index grows by about 130 bytes an utterance; everything else stays as it is.
    assert results[10_000]["peak_mb"] < results[1_000]["peak_mb"] + 25
    assert results[10_000]["seconds"] < 15 * results[1_000]["seconds"] + 1
