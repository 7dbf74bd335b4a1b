"""Keeps what judges heard of a trained voice: `python -m base record FOLDER --name NAME --run RUN`.

Adds one entry to benchmarks/results/adaptation.json, with the command, steps and minutes of the training as its run
has them. `make docs` makes the table "How much speech gives what" of the quality pages from this file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from base.pack import read_amount, remove_paths
from base.score import JUDGE, score_sets
from benchmarks.harness import RESULTS
from myxtts.errors import UsageError
from myxtts.models.bundle import find_bundle, read_bundle
from myxtts.storage.json_file import read_json, write_json
from myxtts.training.run.resume import ENVIRONMENT_FILE_NAME

ADAPTATION_RESULTS = RESULTS / "adaptation.json"


def record(folder: Path, name: str, run_folder: Path | None, voice: str | None, out: Path = ADAPTATION_RESULTS) -> None:
    """Writes the entry `name`, in place of an earlier one.

    `voice` is the set of sentences that is meant, and may be left out where `folder` has one set. Without `run_folder`
    nothing was trained: these are recordings, or a cloned voice.
    """
    sets = score_sets(folder)
    if voice is None and len(sets) == 1:
        voice = next(iter(sets))
    if voice not in sets:
        problem = "has several sets of sentences." if voice is None else f"has no set of sentences {voice!r}."
        raise UsageError(f"{folder} {problem} It has {', '.join(sets)}.", next_step="Name one of them with --voice.")
    entry = {
        "name": name,
        "training": None if run_folder is None else _describe_training(run_folder),
        "scores": sets[voice],
    }
    entries = json.loads(out.read_text(encoding="utf-8"))["entries"] if out.is_file() else []
    kept = [one for one in entries if one["name"] != name]
    write_json(out, {"judge": JUDGE, "entries": sorted([*kept, entry], key=lambda one: one["name"])})
    sys.stdout.write(json.dumps(entry, indent=1) + "\n")


def _describe_training(run: Path) -> dict[str, Any]:
    """How the voice was trained, by the files of its run."""
    amount, trained_on = read_amount(run), read_bundle(find_bundle(run)).notes["trained_on"]
    sessions = read_json(run / ENVIRONMENT_FILE_NAME, dict[str, Any])["sessions"]
    return {
        "command": " ".join(map(str, remove_paths(sessions[0]["command"]))),
        "minutes_of_speech": round(60 * trained_on["hours"], 1),
        "num_clips": trained_on["num_utterances"],
        "steps": amount.num_steps,
        "minutes": round(amount.minutes, 1),
        "num_cpus": sessions[0]["num_cpus"],
    }
