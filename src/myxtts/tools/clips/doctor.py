"""The clip doctor: scores every clip of a run's corpus, and writes the doubts, the page, and the corpus without them.

`examine_clips` is the whole examination. Its result is `clips.jsonl` in the run, one JSON object a clip, the most
doubtful first: {"id", "doubt", "reasons", "z" of each reason, "scores", "speaker", "text", "audio", "seconds"}.
`write_manifest` writes the corpus without the worst, for `prepare`; `write_corpus` writes it as a prepared one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import (
    CORPUS_FILE_NAME,
    FRONTEND_FILE_NAME,
    Corpus,
    Heading,
    format_utterance,
    open_corpus,
    write_root,
)
from myxtts.errors import DataError
from myxtts.models.base_model import BASE_FOLDER, has_base_model
from myxtts.storage.atomic import write_atomically
from myxtts.store.reader import FeatureStore
from myxtts.tools.clips.doubt import Finding, Reason, judge_clips
from myxtts.training.voice.align import AlignmentPlan, load_model, plan_alignment
from myxtts.types import Utterance

if TYPE_CHECKING:
    from myxtts.tools.clips.scores import ClipScorer

CLIPS_FILE_NAME = "clips.jsonl"
CLIPS_PAGE_NAME = "clips.html"


@dataclass(frozen=True, slots=True)
class Clip:
    """A finding with the utterance it is about."""

    finding: Finding
    utterance: Utterance

    def to_json(self) -> dict[str, Any]:
        about = self.utterance
        fields = {"speaker": about.speaker, "text": about.text, "audio": about.audio}
        return {**self.finding.to_json(), **fields, "seconds": round(about.duration_s, 3), "split": about.split}


@dataclass(frozen=True, slots=True)
class ClipReport:
    """All clips of a corpus, the most doubtful first, and how many of them count as the worst.

    `is_base` says that the base model of the package aligned them, since it does so better than the run's model.
    """

    run: Path
    step: int
    corpus: Corpus
    clips: list[Clip]
    num_worst: int
    is_base: bool = False

    @property
    def worst(self) -> list[Clip]:
        return self.clips[: self.num_worst]

    @property
    def worst_ids(self) -> set[str]:
        return {clip.finding.id for clip in self.worst}


def examine_clips(
    config: XTTSConfig, run: Path, worst_share: float, *, progress: Callable[[int, int], None] = lambda _d, _t: None
) -> ClipReport:
    """Scores all clips of the store that a run was trained on; `worst_share` of them count as the worst."""
    plan = plan_alignment(config, run)
    store = FeatureStore.open(plan.folder)
    corpus = _open_corpus(store)
    utterances = {row.id: row for row in corpus.utterances()}
    scorer, is_base = _choose_scorer(plan, store)
    scores = scorer.add_goodness(list(scorer.score(lambda done: progress(done, len(store)))))
    findings = judge_clips(scores, [utterances[clip.id].speaker for clip in scores])
    findings += [Finding(id, 1.0, (Reason.UNALIGNED,), {}, {}) for id in scorer.unaligned]
    clips = [Clip(finding, utterances[finding.id]) for finding in findings]
    clips.sort(key=lambda clip: (-clip.finding.doubt, clip.finding.id))
    return ClipReport(run, plan.origin.step, corpus, clips, round(worst_share * len(clips)), is_base)


def _choose_scorer(plan: AlignmentPlan, store: FeatureStore) -> tuple[ClipScorer, bool]:
    """The scorer of the run's model, or of the base model where that tells texts apart better; and whether it is that.

    The model of a short run on few clips of each speaker often aligns badly, and then finds no wrong texts.
    """
    # Imports TensorFlow, after everything that can be refused without it.
    from myxtts.tools.clips.scores import ClipScorer

    own = ClipScorer(store, load_model(plan), plan.config)
    try:
        base_plan = plan_alignment(_point_to(plan), BASE_FOLDER) if has_base_model() else None
    except DataError:
        # Other spectrograms, another front end, or languages that it does not know.
        base_plan = None
    if base_plan is None:
        return own, False
    base = ClipScorer(store, load_model(base_plan), plan.config)
    is_better = base.find_usual_margin() > own.find_usual_margin()
    return (base, True) if is_better else (own, False)


def _point_to(plan: AlignmentPlan) -> XTTSConfig:
    """The settings of a plan, with its store named."""
    return plan.config.model_copy(update={"data.cache_dir": str(plan.folder)})


def _open_corpus(store: FeatureStore) -> Corpus:
    """The corpus that a store was made of: texts and recordings are there only."""
    path = Path(store.state.origin.corpus)
    if not path.is_file():
        raise DataError(
            f"The corpus {path}, which the features of the run were made of, was not found.",
            next_step="Restore it, or prepare the recordings again in the same place.",
        )
    return open_corpus(path)


def write_doubts(path: Path, clips: Iterable[Clip]) -> Path:
    """Writes one JSON object a clip; `myxtts studio --doubts` reads it."""
    with write_atomically(path) as file:
        for clip in clips:
            file.write(f"{json.dumps(clip.to_json(), ensure_ascii=False)}\n".encode())
    return path


def apply_report(path: Path, report: ClipReport) -> tuple[int, str]:
    """Writes the corpus without the worst clips; returns the number of those that stay, and the command to go on with.

    A path that ends with .jsonl becomes a manifest for `prepare`, any other a folder with a prepared corpus.
    """
    if path.suffix != ".jsonl":
        return write_corpus(path, report.corpus, report.worst_ids), f"myxtts train --train-data {path}"
    number, root = write_manifest(path, report.corpus, report.worst_ids)
    where = "" if root == path.absolute().parent else f" --audio-root {root}"
    return number, f"myxtts prepare {path}{where} --out NEW_CORPUS"


def write_manifest(path: Path, corpus: Corpus, left_out: Collection[str]) -> tuple[int, Path]:
    """Writes the utterances that stay, with their splits, as a manifest for `prepare`.

    Returns their number and the folder that holds all recordings, which `prepare` needs as --audio-root where the
    manifest is not in it.
    """
    kept = [row for row in corpus.utterances() if row.id not in left_out]
    root = _find_root(kept)
    with write_atomically(path) as file:
        for row in kept:
            fields = {"id": row.id, "audio": os.path.relpath(row.audio, root), "text": row.text}
            fields |= {"speaker": row.speaker, "language": row.language, "split": row.split}
            fields |= {"phonemes": row.phonemes} if row.phonemes else {}
            file.write(f"{json.dumps(fields, ensure_ascii=False)}\n".encode())
    return len(kept), root


def write_corpus(folder: Path, corpus: Corpus, left_out: Collection[str]) -> int:
    """Writes the utterances that stay as a prepared corpus, with their splits; returns their number."""
    kept = [row for row in corpus.utterances() if row.id not in left_out]
    root = _find_root(kept)
    heading = Heading(
        roots=(write_root(root, folder),), num_utterances=len(kept), seconds=sum(row.duration_s for row in kept)
    )
    with write_atomically(folder / FRONTEND_FILE_NAME) as file:
        file.write(corpus.file.with_name(FRONTEND_FILE_NAME).read_bytes())
    with write_atomically(folder / CORPUS_FILE_NAME) as file:
        file.write(f"{heading.to_json()}\n".encode())
        for row in kept:
            file.write(f"{format_utterance(row, 0, os.path.relpath(row.audio, root))}\n".encode())
    return len(kept)


def _find_root(rows: Sequence[Utterance]) -> Path:
    """The folder that holds all recordings."""
    if not rows:
        raise DataError("No clip would be left.", next_step="Leave out fewer: --worst 6%.")
    return Path(os.path.commonpath([str(Path(row.audio).parent) for row in rows]))
