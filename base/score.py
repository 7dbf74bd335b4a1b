"""Scores what the outside judges heard: `python -m base score FOLDER --out scores.json`, which `base pack` takes.

Texts and transcripts are compared after the project's own normalisation, so that "$8" and "eight dollars" are equal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from base.speak import LANGUAGE
from myxtts.text.normalize import normalize_text
from myxtts.tools.recognition import count_mistakes

JUDGE = (
    "two English recognisers (tiny-en of moonshine-voice 0.0.73, and Whisper tiny.en by faster-whisper 1.2.1), the "
    "MOS estimate of DistillMOS 0.9.1 and the speaker encoder of Resemblyzer 0.1.4; sentences of the project's prompt "
    "list, none of them in the training data, default settings"
)


def score(folder: Path, out: Path) -> None:
    scores: dict[str, Any] = {"judge": JUDGE}
    for name, found in score_sets(folder).items():
        scores |= {f"{key}_of_{name}": value for key, value in found.items()}
    out.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(out.read_text(encoding="utf-8"))


def score_sets(folder: Path) -> dict[str, dict[str, float]]:
    """Scores of each set of sentences in a folder, by the name of the set."""
    listed = json.loads((folder / "list.json").read_text(encoding="utf-8"))["spoken"]
    judged = json.loads((folder / "heard.json").read_text(encoding="utf-8"))
    rows = [{**row, **found} for row, found in zip(listed, judged, strict=True)]
    names = dict.fromkeys(row["set"] for row in rows)
    return {name: _score_set([row for row in rows if row["set"] == name]) for name in names}


def _score_set(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Errors, MOS estimate and similarity of one set of sentences; several speakers are compared with each other."""
    words = [_score_words(rows, recogniser) for recogniser in rows[0]["heard"]]
    return {
        "num_sentences": len(rows),
        **{key: value for scores in words for key, value in scores.items()},
        "mos_estimate": round(float(np.mean([row["mos"] for row in rows])), 2),
        **_score_likeness([row for row in rows if row["speaker"] in row["similarities"]]),
    }


def _score_words(rows: list[dict[str, Any]], recogniser: str) -> dict[str, float]:
    """Word and character error rates by one recogniser."""
    found = [
        count_mistakes(*(normalize_text(text, LANGUAGE) for text in (row["text"], row["heard"][recogniser])))
        for row in rows
    ]
    num_words, num_characters = sum(one.num_words for one in found), sum(one.num_characters for one in found)
    return {
        f"word_error_rate_by_{recogniser}": round(sum(one.num_word_edits for one in found) / num_words, 4),
        f"character_error_rate_by_{recogniser}": round(
            sum(one.num_character_edits for one in found) / num_characters, 4
        ),
    }


def _score_likeness(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Similarity to the own recordings, and how often another speaker of the set is farther away; of voices that have
    recordings.
    """
    if not rows:
        return {}
    own = [row["similarities"][row["speaker"]] for row in rows]
    speakers = {row["speaker"] for row in rows}
    is_closer = [
        row["similarities"][other] < near
        for row, near in zip(rows, own, strict=True)
        for other in speakers - {row["speaker"]}
    ]
    share = {"share_of_comparisons_closer_to_the_own_speaker": round(float(np.mean(is_closer)), 3)} if is_closer else {}
    return {"similarity": round(float(np.mean(own)), 3), **share}
