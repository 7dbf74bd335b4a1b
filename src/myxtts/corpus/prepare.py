"""`prepare`: turns a folder of recordings and transcripts into a checked corpus file and a rejection report.

Rows are read, checked and written in a stream, chunk by chunk, in constant memory. The split is drawn last, when the
sizes of all groups are known: until then a draft holds each utterance with the rank of its group. A rank is a hash of
the seed and the group; groups with the lowest ranks become validation, so the order of the rows does not matter.

Steps: choose the format of each input, choose or fit the front end, check all rows into the draft and the report, draw
the split, write corpus.jsonl and frontend.json.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain, islice, takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from myxtts.config.data import DataConfig
from myxtts.corpus import corpus_file
from myxtts.corpus.check import Accepted, Checker, SeenTable, refuse_half_characters
from myxtts.corpus.edits import JOURNAL_FILE, STUDIO_FOLDER, Status
from myxtts.corpus.enough import CorpusTally, Needs
from myxtts.corpus.formats import find_format
from myxtts.corpus.formats.base import CorpusFormat, Row, Source
from myxtts.corpus.formats.folders import walk_files
from myxtts.corpus.rejections import Reason, Rejection, RejectionReport, describe_reasons
from myxtts.corpus.transcripts import AUDIO_SUFFIXES, CorpusRoot
from myxtts.errors import DataError, UsageError
from myxtts.storage.atomic import (
    TEMPORARY_SUFFIX,
    explain_storage_errors,
    lock_directory,
    sweep_temporary_files,
    write_atomically,
)
from myxtts.storage.regular_file import open_output
from myxtts.text.frontend import MAX_TEXT_LENGTH, FrontEnd
from myxtts.text.languages.en_abbreviations import is_in_capitals
from myxtts.text.persian.homographs import read_homographs
from myxtts.text.persian.reading import PersianReading
from myxtts.types import Progress, Split, Utterance

_MAX_USELESS_ROWS = 5000
"""A corpus of which so many rows and no other were read is refused without reading on."""
_NUM_FILES_SEARCHED = 20_000
"""Files among which missing recordings are looked for, to say where they are."""
_MIN_SHARE_IN_CAPITALS = 0.1
"""Of the texts of a corpus; fewer are headlines or shouting."""
_PROGRESS_EVERY_ROWS = 64
"""Drawing a progress bar for each row would take longer than reading headers."""


@dataclass(frozen=True, slots=True)
class Recordings:
    """One folder or transcript to read, and the split its utterances belong to where that is known beforehand."""

    path: Path
    format: str = "auto"
    audio_root: Path | None = None
    split: Split | None = None


@dataclass(slots=True)
class Summary:
    """Result of `prepare_corpus`: counts, durations and notes, for the screen and for JSON output."""

    out: str
    formats: list[str] = field(default_factory=list)
    frontend: str = ""
    num_utterances: int = 0
    num_rejected: int = 0
    num_in_capitals: int = 0
    seconds: float = 0.0
    elapsed_s: float = 0.0
    speakers: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[Rejection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    doubtful: dict[str, int] = field(default_factory=dict)
    """Clips of each input that `collect` doubts and that nobody has accepted or dropped yet."""
    needs: Needs | None = None

    def count(self, utterance: Utterance) -> None:
        self.num_utterances += 1
        self.seconds += utterance.duration_s
        self.speakers[utterance.speaker] += 1
        self.languages[utterance.language] += 1
        self.splits[utterance.split] += 1
        self.num_in_capitals += utterance.language.startswith("en") and is_in_capitals(utterance.text)

    def to_json(self) -> dict[str, Any]:
        """Returns the summary for programs, with the paths of the files that were written."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["needs"] = asdict(self.needs) if self.needs is not None else None
        values["rejections"] = [asdict(rejection) for rejection in values.pop("examples")]
        names = {"corpus": corpus_file.CORPUS_FILE_NAME, "frontend": corpus_file.FRONTEND_FILE_NAME}
        names |= {"rejections_json": "rejections.json", "rejections_csv": "rejections.csv"}
        return {**values, "files": {kind: str(Path(self.out) / name) for kind, name in names.items()}}


def prepare_corpus(
    recordings: list[Recordings],
    out: Path,
    data: DataConfig,
    *,
    seed: int = 0,
    strict: bool = False,
    headers_only: bool = False,
    num_threads: int = 2,
    num_suggested: int = 0,
    progress: Progress = lambda _accepted, _rejected: None,
) -> Summary:
    """Checks every utterance and writes corpus.jsonl, frontend.json, rejections.json and rejections.csv into `out`.

    `strict` raises DataError where anything was rejected; `headers_only` decodes no recording. `num_suggested`
    sentences to record next are written per language, as prompts-LANGUAGE.txt. `out` is locked while this runs.
    The reports are written even where the corpus is refused, so that the user can read why.
    """
    started = time.monotonic()
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file, and the corpus is a folder.", next_step="Give another folder with --out.")
    inputs = [_open_input(item, data) for item in recordings]
    frontend = _choose_frontend(inputs, data)
    summary = Summary(str(out), [f"{item.format.name} ({item.reason})" for item in inputs], frontend.describe())
    tally = CorpusTally(frontend)
    with lock_directory(out, "myxtts prepare"), ExitStack() as cleanup:
        sweep_temporary_files(out)
        draft = out / f".draft{TEMPORARY_SUFFIX}"
        cleanup.callback(draft.unlink, missing_ok=True)
        seen = cleanup.enter_context(SeenTable(out / f".seen{TEMPORARY_SUFFIX}"))
        with RejectionReport(out) as report, explain_storage_errors(draft, "write"):
            with io.TextIOWrapper(open_output(draft), encoding="utf-8", newline="\n") as file:
                for number, item in enumerate(inputs):
                    checker = Checker(item.source.root, data, frontend, seen, headers_only=headers_only)
                    for result in checker.check(item.rows(), num_threads):
                        if isinstance(result, Rejection):
                            report.add(result)
                        else:
                            summary.count(result.utterance)
                            tally.add(result)
                            file.write(_make_draft_line(result, number, seen, data.split_by, seed))
                        if (summary.num_utterances + report.total) % _PROGRESS_EVERY_ROWS == 0:
                            progress(summary.num_utterances, report.total)
                        if report.total >= _MAX_USELESS_ROWS and not summary.num_utterances:
                            break
                    _add_notes(item, seen, summary)
            progress(summary.num_utterances, report.total)
        summary.num_rejected, summary.examples = report.total, report.examples
        summary.reasons = {str(reason): count for reason, count in report.counts.most_common()}
        _refuse_useless(summary, inputs, data, strict=strict)
        limit = _find_validation_limit(seen, summary, data)
        _note_capitals(summary)
        summary.needs = tally.assess(out, num_suggested)
        frontend.save(out / corpus_file.FRONTEND_FILE_NAME)
        _write_corpus(draft, out, [item.source.root for item in inputs], limit, summary)
    summary.elapsed_s = time.monotonic() - started
    return summary


@dataclass(frozen=True, slots=True)
class _Input:
    """One input with its format, and why that was chosen. `split` overrides the split of the transcript."""

    source: Source
    format: CorpusFormat
    reason: str
    split: Split | None

    def rows(self) -> Iterator[Row | Rejection]:
        """Reads the transcript again at each call: once to fit characters, once to check."""
        for row in self.format.read(self.source):
            checked = refuse_half_characters(row) if isinstance(row, Row) else row
            yield replace(checked, split=self.split) if self.split and isinstance(checked, Row) else checked


def _open_input(item: Recordings, data: DataConfig) -> _Input:
    """Detects the format of an input; recordings must lie in its folder, or in `audio_root` where that is given."""
    if item.audio_root is not None and not item.audio_root.is_dir():
        raise DataError(
            f"There is no folder {item.audio_root} (--audio-root).", next_step="Name the folder of the recordings."
        )
    fmt, reason = find_format(item.path, item.format)
    folder = item.path if item.path.is_dir() else item.path.parent
    root = CorpusRoot(item.audio_root or folder, is_chosen=item.audio_root is not None)
    return _Input(Source(item.path, root, data.language), fmt, reason, item.split)


def _choose_frontend(inputs: list[_Input], data: DataConfig) -> FrontEnd:
    """Makes the front end of the settings; a character tokenizer is fitted on all texts before the checks."""
    rows = (row for item in inputs for row in item.rows() if isinstance(row, Row))
    texts = ((row.text, row.language) for row in rows if len(row.text) <= MAX_TEXT_LENGTH)
    homographs = read_homographs(Path(data.persian_homographs)) if data.persian_homographs else ""
    persian = PersianReading(data.persian_ezafe, data.persian_register, homographs)
    return FrontEnd.create(data.text_frontend, data.lexicon, texts, persian)


def _make_draft_line(accepted: Accepted, root_number: int, seen: SeenTable, split_by: str, seed: int) -> str:
    """Returns the rank of an utterance in hexadecimal, a space, and its line of the corpus file.

    The rank is a hash of the seed and of the group that must lie in one split; training groups are counted in `seen`.
    """
    utterance, text = accepted.utterance, accepted.normalized_text
    # Two readings of a sentence by one speaker go to the same split, whatever it is split by.
    together = {"speaker": utterance.speaker, "text": text, "utterance": f"{utterance.speaker}\0{text}"}[split_by]
    rank = hashlib.blake2b(f"{seed}\0{together}".encode(), digest_size=16).digest()
    if utterance.split == "train":
        seen.count_in_group(rank)
    return f"{rank.hex()} {corpus_file.format_utterance(utterance, root_number, accepted.relative_audio)}\n"


def _add_notes(item: _Input, seen: SeenTable, summary: Summary) -> None:
    """Adds notes about recordings that were found elsewhere, and about those that no transcript line names, which is
    often a sign of a transcript of another version; counts the doubtful clips of `collect` apart."""
    root = item.source.root
    if root.moved_example:
        summary.notes.append(
            f"Some recordings are not where the transcript says, such as {root.moved_example}; "
            f"they were found by their names in {root.folder}."
        )
    set_aside: dict[str, Status] = {}
    for row, status in item.format.set_aside(item.source):
        path = root.locate(row.audio)
        # A doubtful clip may also have been copied into the manifest, which is to accept it.
        if path is not None and not seen.find_any({"path": path}):
            set_aside[path] = status
    if num_open := sum(status == "open" for status in set_aside.values()):
        summary.doubtful[str(item.source.path)] = num_open
    num_unnamed, first = 0, ""
    for path in _list_recordings(root.real):
        if path not in set_aside and not seen.find_any({"path": path}):
            first = min(first, root.relative(path)) if first else root.relative(path)
            num_unnamed += 1
    if num_unnamed:
        plural = "recordings are" if num_unnamed > 1 else "recording is"
        summary.notes.append(f"{num_unnamed:,} {plural} named by no transcript line and left out, such as {first}.")


def _list_recordings(folder: str) -> Iterator[str]:
    """Yields all recordings below a folder, but not the takes that the studio keeps of what was undone."""
    for place, folders, names in os.walk(folder):
        if (Path(place) / STUDIO_FOLDER / JOURNAL_FILE).is_file():
            folders.remove(STUDIO_FOLDER)
        for name in names:
            if name.lower().endswith(AUDIO_SUFFIXES):
                yield os.path.join(place, name)  # noqa: PTH118 -- once per recording


def _note_capitals(summary: Summary) -> None:
    """Adds a note where many English texts are in capitals, which the front end reads as ordinary words."""
    if summary.num_in_capitals > _MIN_SHARE_IN_CAPITALS * summary.num_utterances:
        summary.notes.append(
            f"{summary.num_in_capitals:,} of {summary.num_utterances:,} texts are all in capitals: "
            "they are read as words in lower case, not as abbreviations."
        )


def _refuse_useless(summary: Summary, inputs: list[_Input], data: DataConfig, *, strict: bool) -> None:
    """Raises DataError where too many utterances were rejected, or with --strict where any was."""
    num_rejected, num_all = summary.num_rejected, summary.num_rejected + summary.num_utterances
    if num_all == 0:
        layouts = "; ".join(f"{item.source.path} as {item.format.name}: {item.format.layout}" for item in inputs)
        raise DataError(f"There are no utterances ({layouts}).", next_step="Check path and --format.")
    allowed = data.max_rejected_share
    if summary.num_utterances == 0:
        first = "the first " if num_rejected >= _MAX_USELESS_ROWS else ""
        problem = f"None of {first}{num_all:,} utterances can be used"
    elif num_rejected > allowed * num_all:
        share = f"{100 * num_rejected / num_all:.0f} %"
        problem = f"{num_rejected:,} of {num_all:,} utterances were rejected ({share}), more than the "
        problem += f"{100 * allowed:g} % that are allowed (data.max_rejected_share)"
    elif strict and num_rejected:
        problem = f"{num_rejected:,} of {num_all:,} utterances were rejected, and --strict is on"
    else:
        return
    reasons = "\n".join(f"  {line}" for line in describe_reasons(summary.reasons, summary.examples))
    advice = _advise_on_main_reason(summary, inputs)
    accept = "--max-rejected-share 1 accepts the rest." if summary.num_utterances and not strict else ""
    report = f"All are listed in {Path(summary.out) / 'rejections.csv'}."
    next_step = " ".join(sentence for sentence in (advice, accept, report) if sentence)
    raise DataError(f"{problem}:\n{reasons}\n", next_step=next_step, details={"reasons": summary.reasons})


def _advise_on_main_reason(summary: Summary, inputs: list[_Input]) -> str:
    """Says where missing recordings seem to be, if that is the most frequent reason."""
    reason, count = next(iter(summary.reasons.items()))
    if reason not in (Reason.MISSING_FILE, Reason.OUTSIDE_ROOT) or count < 0.5 * summary.num_rejected:
        return ""  # The list of reasons has it.
    named = [PurePosixPath(item.audio.replace("\\", "/")) for item in summary.examples if item.reason == reason]
    outside = [str(path.parent) for path in named if path.is_absolute() and Path(path).exists()]
    if outside:
        return f"The recordings are in another folder: myxtts prepare --audio-root {os.path.commonpath(outside)}."
    folder = inputs[0].source.folder.absolute()
    for found in chain(*(islice(walk_files(place), _NUM_FILES_SEARCHED) for place in (folder, folder.parent))):
        if found.stem == named[0].stem and found.suffix.lower() in AUDIO_SUFFIXES:
            pairs = zip(reversed(found.parts[:-1]), reversed(named[0].parts[:-1]), strict=False)
            num_shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            return f"The recording {found} has this name: myxtts prepare --audio-root {found.parents[num_shared]}."
    return "If the recordings are in another folder: myxtts prepare --audio-root FOLDER."


def _find_validation_limit(seen: SeenTable, summary: Summary, data: DataConfig) -> bytes | None:
    """Returns the rank up to which training utterances become validation, None where the corpus has a split already."""
    if summary.splits["val"] or data.val_share == 0:
        return None
    if seen.num_groups < 2:
        if data.split_by == "speaker":
            raise UsageError(
                "A split by speaker needs two speakers, this corpus has one.", next_step="Use --split-by utterance."
            )
        summary.notes.append("Too few utterances for a validation split: all are in training.")
        return None
    return seen.find_validation_limit(summary.splits["train"] * data.val_share)


def _write_corpus(draft: Path, out: Path, roots: list[CorpusRoot], limit: bytes | None, summary: Summary) -> None:
    """Copies the draft to the corpus file: removes ranks, sets splits. The file becomes visible in one step."""
    last = limit.hex() if limit else ""
    written = tuple(corpus_file.write_root(root.folder, out) for root in roots)
    heading = corpus_file.Heading(roots=written, num_utterances=summary.num_utterances, seconds=summary.seconds)
    with draft.open(encoding="utf-8") as lines, write_atomically(out / corpus_file.CORPUS_FILE_NAME) as file:
        file.write(f"{heading.to_json()}\n".encode())
        for line in lines:
            rank, _, utterance = line.partition(" ")
            if rank <= last and utterance.startswith(corpus_file.TRAIN_OPENING):
                utterance = corpus_file.VAL_OPENING + utterance.removeprefix(corpus_file.TRAIN_OPENING)
                summary.splits["train"] -= 1
                summary.splits["val"] += 1
            file.write(utterance.encode())
