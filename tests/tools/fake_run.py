"""A run's folder as a training leaves it, without a training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.training.sample_files import (
    REAL_FOLDER_NAME,
    RECORDED_FOLDER_NAME,
    Sample,
    draw_alignment,
    draw_mel,
    name_step_folder,
    write_samples,
)

RATE_HZ = 22050
FRAME_RATE_HZ = 86.13
SENTENCES = {
    "01-en": {"id": "LJ001", "text": "The <b>train</b> leaves at noon & returns.", "language": "en", "speaker": "lj"},
    "02-fa": {"id": "F7", "text": "قطار ظهر حرکت می‌کند و شب برمی‌گردد.", "language": "fa", "speaker": "مریم"},
}


def write_fake_run(path: Path, num_steps: int = 400) -> Path:
    path.mkdir(parents=True)
    write_resolved(XTTSConfig(run_name="voice", steps=num_steps, batch_size=16, train_data="corpus"), path)
    generator = np.random.default_rng(0)
    write_lines(path / "metrics.jsonl", make_metrics(num_steps, generator))
    write_lines(path / "telemetry.jsonl", make_telemetry(num_steps, generator))
    bad = {"step": 41, "kind": "skipped", "loss": "nan", "gradient_norm": "inf", "ids": ["a", "b", "c", "d", "e"]}
    spike = {"step": 90, "kind": "spike", "loss": 12.0, "limit": 8.0, "gradient_norm": 3.5, "ids": ["</td>"]}
    write_lines(path / "skipped.jsonl", [bad, spike])
    session = {
        "from_step": 0,
        "started": "2026-01-02T03:04:05+00:00",
        "command": ["myxtts", "train", "--config", "…/voice.yaml"],
        "python": "3.11.2",
        "system": "Linux x86_64",
        "versions": {"myxtts": "0.1.0", "tensorflow": "2.21.0"},
        "num_cpus": 2,
        "ram_gb": 25.3,
        "gpus": [],
    }
    (path / "environment.json").write_text(json.dumps({"sessions": [session]}), encoding="utf-8")
    (path / "fingerprints.json").write_text(json.dumps({"corpus": "4f" * 32, "front end": "9a" * 32}))
    for step in (100, 200, 300, 400):
        write_samples(path / "samples" / name_step_folder(step), list(make_samples(step)), RATE_HZ)
    for name in (REAL_FOLDER_NAME, RECORDED_FOLDER_NAME):
        write_samples(path / "samples" / name, list(make_samples(0)), RATE_HZ)
    return path


def make_metrics(num_steps: int, generator: np.random.Generator) -> Iterable[dict[str, Any]]:
    for step in range(2, num_steps + 1, 2):
        decay = math.exp(-step / 120)
        terms = {
            "flow": 1.1 + 2 * decay + generator.normal(0, 0.08),
            "prior": 0.25 + 0.3 * decay + generator.normal(0, 0.01),
            "duration": 0.3 + 0.8 * decay + generator.normal(0, 0.02),
            "length_error": 0.1 + 0.4 * decay,
        }
        yield {
            "step": step,
            "loss": terms["flow"] + 4 * terms["prior"] + terms["duration"] / 2,
            **terms,
            "gradient_norm": float(1.2 + generator.gamma(2, 0.3)),
            "learning_rate": 1.2e-3 * min(1, step / 50) * (0.5 + 0.5 * math.cos(math.pi * step / num_steps)),
            "seconds": 0.36,
            "wall_seconds": 0.42,
            "au": 0.992,
            "data_wait_s": 0.001,
            "utterances_per_s": 44.0,
            "wall_utterances_per_s": 38.0,
            "wall_share": 0.86,
            "epoch": step / 94,
            "elapsed_s": step * 0.37,
        }
        if step % 100 == 0:
            numbers = {"mel_distance": 0.55 + decay, "token_duration_error": 0.22 + 0.3 * decay, "prior": 0.4 + decay}
            numbers |= {"free_mel_distance": 0.7 + decay, "length_error": 0.08 + 0.2 * decay, "flow": 1.5 + decay}
            numbers |= {"speaker_similarity": 0.9 - 0.5 * decay, "score": 0.77 + 1.3 * decay}
            yield {"step": step, "validation": numbers, "watch_seconds": 3.1}
            yield {"step": step, "samples": 2, "watch_seconds": 1.2}


def make_telemetry(num_steps: int, generator: np.random.Generator) -> Iterable[dict[str, Any]]:
    for position in range(num_steps):
        is_watched = (position + 1) % 100 == 0
        yield {
            "position": position,
            "wait_s": float(generator.gamma(2, 0.0006)),
            "load_s": 0.011,
            "stages": {"transfer": 0.0004},
            "depth": 40,
            "num_frames": 7000,
            "num_padded_frames": 7600,
            "num_utterances": 16,
            "shape": "16x475x90",
            "step_s": 30.0 if position == 0 else float(generator.normal(0.36, 0.008)) + 4.3 * is_watched,
            "is_retraced": position == 0,
        }


def make_samples(step: int) -> Iterable[Sample]:
    generator = np.random.default_rng(step)
    for number, (name, about) in enumerate(SENTENCES.items()):
        num_frames, num_tokens = 260 + 40 * number, 34
        time_T = np.arange(num_frames) / num_frames
        bands_M = np.arange(80) / 80
        mel_TM = -6 + 4 * np.sin(20 * time_T)[:, None] * np.cos(9 * bands_M + 8 * time_T[:, None])
        mel_TM += generator.normal(0, 0.2 + (400 - step) / 300 * bool(step), mel_TM.shape)
        token_T = (time_T**1.1 * num_tokens).astype(int)
        weights_TN = np.exp(-0.5 * (np.arange(num_tokens) - token_T[:, None]) ** 2)
        sound = 0.3 * np.sin(np.cumsum(0.03 + 0.02 * np.sin(np.arange(num_frames * 256) / 9000)))
        alignment = draw_alignment(weights_TN, token_T, FRAME_RATE_HZ) if step else b""
        yield Sample(name, sound.astype(np.float32), draw_mel(mel_TM, FRAME_RATE_HZ), alignment, about)


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
