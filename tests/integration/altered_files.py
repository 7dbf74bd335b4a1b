"""Alters one file of what the product reads, by a seeded mutation, and reads it again.

Run as a program it is a worker: a number on each line of standard input is the seed of a case, and a JSON line with the
outcome answers it. The worker has a limit of memory; its caller has one of time.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from tests.integration.mutations import (
    BYTE_MUTATIONS,
    NUM_MELS,
    Draw,
    spoil_checked_json,
    spoil_index,
    spoil_json_file,
    spoil_json_line,
    spoil_shard,
    spoil_tensor_heading,
    spoil_text,
)

from myxtts.config.schema import DataConfig, ModelConfig, XTTSConfig
from myxtts.corpus.audio import AudioLimits, inspect_audio
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings
from myxtts.corpus.rejections import AudioProblem
from myxtts.errors import MyXTTSError
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.models.bundle import Bundle, write_bundle
from myxtts.models.spec import ModelSpec
from myxtts.models.vocoder_bundle import VocoderBundle, find_vocoder, write_vocoder_bundle
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import open_store
from myxtts.storage.json_file import JsonLines
from myxtts.store.durations import (
    DurationsOrigin,
    begin_durations,
    load_durations,
    save_durations,
    write_durations,
)
from myxtts.store.precompute import precompute
from myxtts.store.provide import Report, check_recordings, ensure_features, make_features
from myxtts.store.reader import FeatureStore
from myxtts.store.verify import verify_store
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.synthesis.sentences import read_texts
from myxtts.synthesis.voices import SpeakerEmbedding, VoiceFolder
from myxtts.text.frontend import FrontEnd
from myxtts.text.lexicon import load_lexicon
from myxtts.tools.run_files import read_run
from myxtts.training.run.checkpoint import CheckpointFolder

DATA = DataConfig(
    text_frontend="characters",
    sample_rate=16_000,
    n_fft=256,
    hop_length=128,
    win_length=256,
    n_mels=NUM_MELS,
    max_bad_share=1.0,
)
LEAST_FREE_BYTES = 3 << 30
"""What a worker may allocate beyond what its libraries take: a sparse giant that is read does not fit."""
NUM_CLIPS = 6
TEXTS = [("The quick brown fox jumps over the lazy dog, 0123456789.", "en")]


# Files as the product writes them. ----------------------------------------------------------------------------------


def write_templates(folder: Path) -> None:
    """Writes one folder for each kind of file."""
    write_recordings(folder / "recordings")
    config = store_config(folder)
    make_features(config, Report())
    store = FeatureStore.open(folder / "store")
    begin_durations(folder / "store", DurationsOrigin("abc", "runs/x", 5))
    spread = {}
    for row in range(len(store)):
        num_tokens, num_frames = store.entry(row, "tokens").length, store.entry(row, "mel").length
        ends = np.linspace(0, num_frames, num_tokens + 1).astype(np.int64)
        spread[store.id_of(row)] = ends[1:] - ends[:-1]
    write_durations(folder / "store", spread)
    fingerprint = save_durations(folder / "own" / "durations.safetensors", store, spread)
    (folder / "own" / "fingerprint.txt").write_text(fingerprint)
    write_models(folder)
    generator = np.random.default_rng(1)
    arrays: dict[str, Any] = {"weight": generator.normal(size=(8, 9)).astype(np.float32), "step": np.zeros(1, np.int64)}
    checkpoints = CheckpointFolder(folder / "checkpoints")
    checkpoints.save(4, arrays, {"position": 3, "loss": 0.5})
    checkpoints.mark_best(4, 0.25)
    (folder / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
    (folder / "lexicon.txt").write_text("hello\thəlˈoʊ\nworld\twˈɜːld\n", encoding="utf-8")
    (folder / "texts.csv").write_text("one|Hello.\ntwo|World.\n", encoding="utf-8")
    write_run(folder / "run", config)


def write_recordings(folder: Path) -> None:
    (folder / "wavs").mkdir(parents=True)
    lines, rows = ["id|audio|text|speaker\n"], []
    for number in range(NUM_CLIPS):
        suffix = ("wav", "flac")[number % 2]
        samples = 0.3 * np.sin(np.arange(8000) * (0.05 + 0.01 * number))
        soundfile.write(folder / "wavs" / f"clip{number}.{suffix}", samples, 16_000)
        lines.append(f"clip{number}|wavs/clip{number}.{suffix}|Words of clip {number}.|anna\n")
        rows.append(json.dumps({"id": f"clip{number}", "audio": f"wavs/clip{number}.{suffix}", "text": "Words."}))
    (folder / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    (folder / "list.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def store_config(folder: Path, **changes: Any) -> XTTSConfig:
    settings = {**DATA.model_dump(), "train_data": folder / "recordings", "cache_dir": folder / "store", **changes}
    return XTTSConfig(**{f"data.{name}": value for name, value in settings.items()})


def write_models(folder: Path) -> None:
    """A bundle, a vocoder and a saved voice; their weights are noise, for nothing here computes with them."""
    frontend, mel = FrontEnd.create("characters", texts=TEXTS), MelDefinition.from_config(DATA)
    config = ModelConfig(
        text_width=16, text_layers=1, decoder_width=16, decoder_layers=1, reference_width=8, num_latents=2
    )
    spec = ModelSpec(
        factor_sizes=frontend.factor_sizes,
        single_state_symbols=4,
        n_mels=mel.n_mels,
        languages=("en",),
        speakers=("anna", "ben"),
        mel_mean=(-5.0,) * mel.n_mels,
        mel_deviation=1.5,
        frame_rate_hz=mel.sample_rate / mel.hop_length,
        band_hz=tuple(mel.band_hz.tolist()),
    )
    (folder / "bundle").mkdir()
    frontend.save(folder / "bundle" / "frontend.json")
    weights = {"reference_encoder.stem.kernel": np.ones((64, 16), np.float32), "decoder": np.ones((9, 9), np.float32)}
    sizes = {"n_mels": mel.n_mels, "n_fft": 256, "hop_length": 128, "win_length": 256, "width": 8, "num_blocks": 1}
    bundle = Bundle(
        model_config=config,
        model_spec=spec.to_json(),
        mel=mel.to_json(),
        audio=AudioDefinition.from_config(DATA).to_json(),
        frontend=(folder / "bundle" / "frontend.json").read_bytes(),
        frontend_fingerprint=frontend.fingerprint(),
        vocoder={"kind": "griffin_lim", "mel": mel.to_json()},
        weights=weights,
        notes={"step": 0},
    )
    write_bundle(folder / "bundle", bundle)
    vocoder = VocoderBundle(dict(mel.to_json()), sizes, {"head.kernel": np.ones((40, 80), np.float32)})
    write_vocoder_bundle(folder / "vocoder", vocoder)
    open_voices(folder).save("anna", make_voice(), [np.ones((50, mel.n_mels), np.float32)])


def open_voices(folder: Path, fingerprint: str = "abc") -> VoiceFolder:
    return VoiceFolder(folder / "voices", fingerprint, 2, 8, MelDefinition.from_config(DATA))


def make_voice() -> SpeakerEmbedding:
    return SpeakerEmbedding(np.ones(8, np.float32), np.ones((2, 8), np.float32))


def write_run(folder: Path, config: XTTSConfig) -> None:
    """The files of a run that the tools read."""
    folder.mkdir()
    (folder / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
    for name in ("metrics.jsonl", "telemetry.jsonl"):
        log = JsonLines(folder / name)
        for step in range(5):
            log.append({"step": step, "position": step, "loss": 0.5, "wait_s": 0.1, "step_s": 0.2, "stages": {}})
    (folder / "environment.json").write_text(json.dumps({"sessions": [{"from_step": 0}]}), encoding="utf-8")
    (folder / "fingerprints.json").write_text(json.dumps({"corpus": "abc"}), encoding="utf-8")


# Readers: each checks what it accepts. ------------------------------------------------------------------------------


def read_corpus(folder: Path) -> None:
    corpus = open_corpus(folder / "store" / "corpus")
    corpus.load_frontend()
    utterances = list(corpus.utterances())
    assert len(utterances) == corpus.num_utterances
    assert all(one.num_samples >= 0 and 0 <= one.checksum < 1 << 32 for one in utterances)


def precompute_corpus(folder: Path) -> None:
    precompute(open_corpus(folder / "store" / "corpus"), folder / "new", DATA, num_threads=1)
    assert verify_store(folder / "new").is_whole


def load_on_the_fly(folder: Path) -> None:
    source = RecordingSource.open(open_corpus(folder / "store" / "corpus"), DATA)
    assert all(len(tokens) for tokens in source.read_tokens(np.arange(len(source))))


def read_store(folder: Path) -> None:
    config = store_config(folder, train_data=None, cache_verification="full")
    store = open_store(config)
    assert len(store) == store.state.num_utterances
    for row in range(len(store)):
        stored = store[row]
        assert stored.id
        assert np.isfinite(stored.mel).all()
        assert stored.tokens.min() >= 0
        assert stored.tokens.max() < 1 << 20
        durations = store.read_part(row, "durations")
        assert not len(durations) or (durations >= 0).all()


def read_own_durations(folder: Path) -> None:
    store = open_store(store_config(folder, train_data=None))
    load_durations(folder / "own" / "durations.safetensors", store, (folder / "own" / "fingerprint.txt").read_text())
    assert all(durations.sum() > 0 for durations in store.read_durations(np.arange(len(store))))


def check_store(folder: Path) -> None:
    report = verify_store(folder / "store")
    assert report.num_checked > 0


def load_features(folder: Path) -> None:
    ensure_features(store_config(folder), Report())


def read_checkpoint(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoints = CheckpointFolder(folder / "checkpoints")
        newest = checkpoints.load_newest()
        assert newest is None or np.isfinite(newest.arrays["weight"]).all()
        checkpoints.read_best()


def read_bundle_folder(folder: Path) -> None:
    loaded = load_bundle(folder / "bundle")
    assert loaded.mel.n_mels == loaded.spec.n_mels
    assert all(np.isfinite(array).all() for array in loaded.bundle.weights.values())


def read_vocoder_folder(folder: Path) -> None:
    assert all(np.isfinite(array).all() for array in find_vocoder(folder / "vocoder").weights.values())


def read_voice(folder: Path) -> None:
    found = open_voices(folder).load("anna").embedding
    assert found is not None
    assert np.isfinite(found.vector).all()
    assert all(np.isfinite(mel_RM).all() for mel_RM in open_voices(folder, "def").load("anna").references)


def read_config(folder: Path) -> None:
    XTTSConfig.load(folder / "config.yaml")


def read_lexicon(folder: Path) -> None:
    load_lexicon(folder / "lexicon.txt")


def read_text_file(folder: Path) -> None:
    read_texts(folder / "texts.csv")


def prepare_manifest(folder: Path) -> None:
    check_recordings([Recordings(folder / "recordings" / "list.jsonl")], folder / "out", DATA, Report(), seed=0)


def prepare_folder(folder: Path) -> None:
    inputs = [Recordings(folder / "recordings" / "metadata.csv", "manifest")]
    check_recordings(inputs, folder / "out", DATA, Report(), seed=0)
    for utterance in open_corpus(folder / "out").utterances():
        limits, audio = AudioLimits.from_config(DATA), AudioDefinition.from_config(DATA)
        try:
            inspect_audio(utterance.audio, limits)
            assert np.isfinite(load_recording(utterance.audio, audio, limits).wave.samples).all()
        except AudioProblem:
            pass


def read_run_folder(folder: Path) -> None:
    read_run(folder / "run")


@dataclass(frozen=True)
class Target:
    """Files of one kind, the mutations that fit them, and what reads them."""

    pattern: str
    readers: tuple[Callable[[Path], None], ...]
    mutations: tuple[Callable[[Path, Draw], None], ...] = ()


CORPUS_READERS = (read_corpus, load_features, precompute_corpus, load_on_the_fly)
TARGETS = {
    "corpus": Target("store/corpus/corpus.jsonl", CORPUS_READERS, (spoil_json_line,)),
    "front end": Target("store/corpus/frontend.json", CORPUS_READERS, (spoil_json_file,)),
    "state": Target(
        "store/store.json", (read_store, check_store, load_features), (spoil_json_file, spoil_checked_json)
    ),
    "generation": Target("store/generation-*/generation.json", (check_store, read_store), (spoil_checked_json,)),
    "durations": Target("store/durations.json", (check_store, read_store), (spoil_checked_json,)),
    "own durations": Target("own/*.safetensors", (read_own_durations,), (spoil_tensor_heading,)),
    "checksums": Target("store/checksums.json", (check_store, load_features), (spoil_checked_json,)),
    "index": Target("store/generation-*/*.index", (read_store, check_store, load_features), (spoil_index,)),
    "shard": Target("store/generation-*/*.[mtd]*[lns]", (read_store, check_store), (spoil_shard,)),
    "checkpoint": Target("checkpoints/*.safetensors", (read_checkpoint,), (spoil_tensor_heading,)),
    "best": Target("checkpoints/best.json", (read_checkpoint,), (spoil_json_file,)),
    "bundle": Target("bundle/*.json", (read_bundle_folder,), (spoil_json_file,)),
    "weights": Target("bundle/*.safetensors", (read_bundle_folder,), (spoil_tensor_heading,)),
    "vocoder": Target("vocoder/*.json", (read_vocoder_folder,), (spoil_json_file,)),
    "vocoder weights": Target("vocoder/*.safetensors", (read_vocoder_folder,), (spoil_tensor_heading,)),
    "voice": Target("voices/*", (read_voice,), (spoil_tensor_heading,)),
    "config": Target("config.yaml", (read_config,), (spoil_text,)),
    "lexicon": Target("lexicon.txt", (read_lexicon,), (spoil_text,)),
    "texts": Target("texts.csv", (read_text_file,), (spoil_text,)),
    "table": Target("recordings/metadata.csv", (prepare_folder,), (spoil_text,)),
    "manifest": Target("recordings/list.jsonl", (prepare_manifest,), (spoil_json_line, spoil_text)),
    "recording": Target("recordings/wavs/*", (prepare_folder,), ()),
    "run": Target("run/*", (read_run_folder,), (spoil_text,)),
}


def run_case(seed: int, templates: Path, scratch: Path) -> dict[str, Any]:
    """Alters one file and reads it; returns the case and its outcome."""
    draw = random.Random(seed)
    kind = draw.choice(list(TARGETS))
    target = TARGETS[kind]
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(templates, scratch, symlinks=True)
    path = draw.choice(sorted(path for path in scratch.glob(target.pattern) if path.is_file()))
    special = draw.random() < 0.5 and target.mutations
    mutate = draw.choice(target.mutations if special else tuple(BYTE_MUTATIONS))
    read = draw.choice(target.readers)
    mutate(path, draw)
    case = f"seed {seed}: {mutate.__name__} of {path.relative_to(scratch)}, {read.__name__}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = "accepted"
    try:
        read(scratch)
    except MyXTTSError as error:
        outcome = "refused"
        if not names_its_file(str(error), path, scratch):
            outcome = f"the error does not name the file: {error}"
        if not error.next_step:
            outcome = f"the error has no next step: {error}"
    except BaseException:  # noqa: BLE001 -- whatever it is, the campaign reports it
        outcome = traceback.format_exc()
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return {"case": case, "outcome": outcome, "grown_mb": grown_mb}


def names_its_file(message: str, path: Path, scratch: Path) -> bool:
    """Whether an error tells where the damage is: the file, its folder, or the utterance or tensor in it."""
    return path.name in message or str(scratch) in message or "of clip" in message or f"{path.stem!r}" in message


def main(templates: str, scratch: str) -> None:
    mapped = Path("/proc/self/statm").read_text()
    taken_bytes = int(mapped.split()[0]) * resource.getpagesize()
    limit = taken_bytes + LEAST_FREE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        print(json.dumps(run_case(int(line), Path(templates), Path(scratch))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
