"""Scores what the outside judges heard: `python -m base score FOLDER --out scores.json`, which `base pack` takes.

Texts and transcripts are compared after the project's own normalisation, so that "$8" and "eight dollars" are equal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from base.speak import BEST, CLONED, LANGUAGE
from myxtts.text.normalize import normalize_text
from myxtts.tools.recognition import count_mistakes

_JUDGE = (
    "the English recogniser of moonshine-voice 0.0.73 (tiny-en), the MOS estimate of DistillMOS 0.9.1 and the speaker "
    "encoder of Resemblyzer 0.1.4; sentences of the project's prompt list, none of them in the "
    "training data, default settings"
)


def score(folder: Path, out: Path) -> None:
    listed = json.loads((folder / "list.json").read_text(encoding="utf-8"))["spoken"]
    judged = json.loads((folder / "heard.json").read_text(encoding="utf-8"))
    rows = [{**row, **found} for row, found in zip(listed, judged, strict=True)]
    scores: dict[str, Any] = {"judge": _JUDGE}
    for name in (BEST, CLONED):
        scores |= {
            f"{key}_of_{name}": value for key, value in _score_set([r for r in rows if r["set"] == name]).items()
        }
    out.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(out.read_text(encoding="utf-8"))


def _score_set(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Word and character errors, MOS estimate and similarity of one set of sentences.

    `share_closer` is the share of comparisons in which a sentence is closer to its own speaker than to another one.
    """
    found = [count_mistakes(*(normalize_text(row[key], LANGUAGE) for key in ("text", "heard"))) for row in rows]
    own = [row["similarities"][row["speaker"]] for row in rows]
    others = [
        value < near
        for row, near in zip(rows, own, strict=True)
        for speaker, value in row["similarities"].items()
        if speaker != row["speaker"]
    ]
    return {
        "num_sentences": len(rows),
        "word_error_rate": round(sum(one.num_word_edits for one in found) / sum(one.num_words for one in found), 4),
        "character_error_rate": round(
            sum(one.num_character_edits for one in found) / sum(one.num_characters for one in found), 4
        ),
        "mos_estimate": round(float(np.mean([row["mos"] for row in rows])), 2),
        "similarity": round(float(np.mean(own)), 3),
        "share_closer": round(float(np.mean(others)), 3),
    }
