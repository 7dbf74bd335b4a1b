"""`collect_corpus`: long recordings to clips, texts, a manifest for `prepare` and a rejection report.

Steps for each recording: scan it, find pauses and texts. Then for all: compare voices, cut clips, recognise, judge,
write. Each step keeps what it has done in the folder `.collect`, so that a start after a kill goes on there and
ends with the same files; a recording that has changed is done again.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from myxtts.corpus.formats.base import DEFAULT_SPEAKER
from myxtts.corpus.rejections import AudioProblem, Reason, Rejection, RejectionReport, describe_reasons
from myxtts.errors import DataError, UsageError
from myxtts.storage.atomic import explain_storage_errors, lock_directory, sweep_temporary_files, write_atomically
from myxtts.storage.json_file import FileModel, try_read_json, write_json
from myxtts.tools.collect.activity import Activity, open_activity, require_detector, scan_recording
from myxtts.tools.collect.clips import CLIP_FOLDER, Clip, Journal, Measured, cut_clips, name_clips, read_clips
from myxtts.tools.collect.cuts import Phrase, find_pauses, make_phrases, plan_clips, plan_pieces
from myxtts.tools.collect.judge import ADVICE, Collected, Limits, format_time, judge_clips
from myxtts.tools.collect.recordings import Recording, list_recordings, measure_length
from myxtts.tools.collect.sources import Found, Texts, find_phrases, find_texts
from myxtts.tools.collect.voices import measure_strangeness, measure_voices
from myxtts.tools.recognition import Recogniser
from myxtts.types import Say, Waveform

MANIFEST_FILE, DOUBTFUL_FILE, SENTENCES_FILE = "manifest.jsonl", "doubtful.jsonl", "sentences.jsonl"
_STATE_FOLDER, _STATE_FILE = ".collect", "collect.json"
_STATE_VERSION = 1
"""Raised whenever the same recording gives other measurements than before."""
_CLIP_NAME = re.compile(r".+_\d{8,}_\d{8,}\.wav")
_LOWER_MIN, _RAISE_MAX = "Accept it with a lower --min-seconds.", "Accept it with a higher --max-seconds, up to 30."
_SHOWN_LENGTH = 60
"""Characters of a text in the report."""
_MIN_UNTOLD_S = 1.0
"""Of speech without a text that is worth a line in the report."""


class View(Protocol):
    """Shows how far a step is."""

    def update(self, done: int, detail: str = "") -> None: ...


ShowStep = Callable[[str, int | None, str], AbstractContextManager[View]]
"""Opens a view of a step: its label, how much there is to do, and the unit of that."""


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What the user asked for. `speaker` '' takes the folder of each recording."""

    language: str
    speaker: str = ""
    min_s: float = 2.0
    max_s: float = 12.0
    limits: Limits = field(default_factory=Limits)
    asr_command: str | None = None
    subtitles: Path | None = None
    text: Path | None = None
    voice_model: Path | None = None


@dataclass(slots=True)
class CollectSummary:
    """Result of `collect_corpus`, for the screen and for JSON output. `has_texts` is false where none were given."""

    out: str
    num_recordings: int
    num_clips: int = 0
    num_rejected: int = 0
    seconds: float = 0.0
    recorded_s: float = 0.0
    has_texts: bool = False
    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[Rejection] = field(default_factory=list)


class _State(FileModel):
    """recording.json: which recording the files beside it belong to, and whether its scan is complete."""

    version: int
    recording: dict[str, int | str]
    is_scanned: bool


class _Written(FileModel):
    """collect.json: the checksum of the manifest that was written, by which a change of the user's is noticed."""

    manifest_crc32: int


def collect_corpus(path: Path, out: Path, options: CollectOptions, show: ShowStep, say: Say) -> CollectSummary:
    """Cuts the recordings at `path` into clips and writes manifest.jsonl, doubtful.jsonl and the report into `out`.

    Raises DataError where no clip can be used; the report is written even then.
    """
    _check_options(options, out)
    recogniser = Recogniser(options.asr_command) if options.asr_command is not None else None
    require_detector()
    recordings = list_recordings(path, out)
    texts = find_texts(recordings, options.subtitles, options.text, has_recogniser=recogniser is not None)
    if texts.subtitles and options.subtitles is None:
        say(f"Subtitles beside the recordings are used, such as {next(iter(texts.subtitles.values()))}.")
    has_texts = bool(texts.subtitles or texts.books or recogniser)
    summary = CollectSummary(str(out), len(recordings), has_texts=has_texts)
    with lock_directory(out, "myxtts collect"):
        _refuse_changed_manifest(out)
        (out / CLIP_FOLDER).mkdir(exist_ok=True)
        for folder in (out, out / CLIP_FOLDER):
            sweep_temporary_files(folder)
        collector = _Collector(out, options, texts, show, summary)
        with RejectionReport(out) as report:
            for recording in recordings:
                for rejection in collector.find(recording):
                    report.add(rejection)
            collector.compare_voices()
            for rejection in collector.cut():
                report.add(rejection)
            collected = collector.finish(recogniser)
            accepted = _write_rows(out, collected, report, has_texts=has_texts)
            summary.num_rejected, summary.examples = report.total, report.examples
            summary.reasons = {str(reason): count for reason, count in report.counts.most_common()}
        collector.write_sentences()
        summary.num_clips, summary.seconds = len(accepted), sum(one.clip.span.duration_s for one in accepted)
        _remove_others(out / CLIP_FOLDER, {one.clip.id for one in collected})
    if not accepted:
        reasons = "\n".join(f"  {line}" for line in describe_reasons(summary.reasons, summary.examples))
        raise DataError(
            f"Nothing in {path} can be used:\n{reasons}\n",
            next_step=f"All places are listed in {out / 'rejections.csv'}.",
            details={"reasons": summary.reasons},
        )
    return summary


def _check_options(options: CollectOptions, out: Path) -> None:
    if not 0.5 <= options.min_s < options.max_s <= 30.0:
        raise UsageError(
            f"Clips of {options.min_s:g} to {options.max_s:g} s cannot be made.",
            next_step="Choose --min-seconds from 0.5 and --max-seconds up to 30, the second one larger.",
        )
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file, and the corpus is a folder.", next_step="Give another folder with --out.")


@dataclass(slots=True)
class _Spoken:
    """A recording with its speech, and the folder of what is known of it."""

    recording: Recording
    folder: Path
    duration_s: float
    phrases: list[Phrase]


class _Collector:
    """Finds the speech of recording after recording, cuts it, and remembers the clips."""

    def __init__(
        self, out: Path, options: CollectOptions, texts: Texts, show: ShowStep, summary: CollectSummary
    ) -> None:
        self._out, self._options, self._texts, self._show, self._summary = out, options, texts, show, summary
        self._spoken: list[_Spoken] = []
        self._clips: list[Clip] = []
        self._measured: dict[str, Measured] = {}
        self._sentences: list[dict[str, Any]] = []

    def find(self, recording: Recording) -> Iterator[Rejection]:
        """Finds the speech of one recording; yields what has no text or no sound, or that it cannot be used at all."""
        try:
            folder = self._open_folder(recording)
            activity = self._scan(recording, folder)
        except AudioProblem as problem:
            yield _reject(recording, 0.0, problem.reason, problem.detail)
            return
        found = self._find_phrases(recording, activity)
        yield from self._reject_rest(recording, found, activity)
        self._spoken.append(_Spoken(recording, folder, activity.duration_s, found.phrases))
        self._summary.recorded_s += activity.duration_s

    def compare_voices(self) -> None:
        """Marks the speech of other voices than the main one of a speaker, if there is a model to tell them apart."""
        if self._options.voice_model is None:
            return
        for speaker in sorted({one.recording.speaker for one in self._spoken}):
            own = [one for one in self._spoken if one.recording.speaker == speaker]
            self._mark_strangers(self._options.voice_model, own)

    def _mark_strangers(self, model: Path, spoken: list[_Spoken]) -> None:
        pieces = [name_clips(one.recording, plan_pieces(one.phrases)) for one in spoken]

        def read() -> Iterator[Waveform]:
            for of_recording in pieces:
                yield from (wave for _, wave in read_clips(of_recording))

        with self._show("Comparing voices", sum(map(len, pieces)), "pieces") as view:
            strangeness = measure_strangeness(measure_voices(model, read, view.update))
        borders = np.cumsum([len(of_recording) for of_recording in pieces])[:-1]
        for one, of_recording, values in zip(spoken, pieces, np.split(strangeness, borders), strict=True):
            found = {
                phrase: float(value)
                for piece, value in zip(of_recording, values, strict=True)
                for phrase in piece.span.phrases
            }
            one.phrases = [replace(phrase, strangeness=found.get(phrase, 0.0)) for phrase in one.phrases]

    def cut(self) -> Iterator[Rejection]:
        """Cuts the clips of all recordings; yields those whose length cannot be used."""
        for one in self._spoken:
            wanted = []
            for clip in name_clips(one.recording, plan_clips(one.phrases, self._options.min_s, self._options.max_s)):
                rejection = self._check_length(clip)
                if rejection is None:
                    wanted.append(clip)
                else:
                    yield rejection
            try:
                with self._show(f"Cutting {one.recording.path.name}", int(one.duration_s), "s") as view:
                    journal = Journal(one.folder / "clips.jsonl")
                    clips = cut_clips(wanted, self._out / CLIP_FOLDER, journal, lambda s: view.update(int(s)))
            except AudioProblem as problem:
                yield _reject(one.recording, 0.0, problem.reason, problem.detail)
                continue
            self._measured |= clips
            self._clips += wanted

    def _open_folder(self, recording: Recording) -> Path:
        """Returns the folder of what is known of a recording; where the recording has changed, it is emptied."""
        folder = self._out / _STATE_FOLDER / recording.name
        state = try_read_json(folder / "recording.json", _State)
        if state is None or (state.version, state.recording) != (_STATE_VERSION, recording.identity):
            with explain_storage_errors(folder, "write"):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                for file in (self._out / CLIP_FOLDER).glob("*.wav"):
                    if re.fullmatch(rf"{re.escape(recording.name)}_\d{{8,}}_\d{{8,}}\.wav", file.name):
                        file.unlink()
            self._save_state(recording, folder, is_scanned=False)
        return folder

    @staticmethod
    def _save_state(recording: Recording, folder: Path, *, is_scanned: bool) -> None:
        state = {"version": _STATE_VERSION, "recording": recording.identity, "is_scanned": is_scanned}
        write_json(folder / "recording.json", state)

    def _scan(self, recording: Recording, folder: Path) -> Activity:
        file = folder / "activity.bin"
        state = try_read_json(folder / "recording.json", _State)
        if state is not None and state.is_scanned and file.is_file():
            return open_activity(file)
        length_s = measure_length(recording.path)
        with self._show(f"Listening to {recording.path.name}", int(length_s) if length_s else None, "s") as view:
            activity = scan_recording(recording, file, lambda seconds: view.update(int(seconds)))
        self._save_state(recording, folder, is_scanned=True)
        return activity

    def _find_phrases(self, recording: Recording, activity: Activity) -> Found:
        """Finds speech and texts; aligning a book takes a while, the rest does not."""
        pauses = find_pauses(activity)
        if not self._texts.books:
            return find_phrases(recording, activity, pauses, self._texts, self._options.language)
        with self._show(f"Aligning {recording.path.name}", 100, "%") as view:
            found = find_phrases(
                recording,
                activity,
                pauses,
                self._texts,
                self._options.language,
                lambda share: view.update(int(100 * share)),
            )
        for sentence in found.sentences:
            place = {"start_s": round(sentence.start_s, 3), "end_s": round(sentence.end_s, 3)}
            row = {"source": recording.path.name, **place, "text": sentence.text, "doubt": sentence.doubt}
            self._sentences.append(row)
        return found

    def _reject_rest(self, recording: Recording, found: Found, activity: Activity) -> Iterator[Rejection]:
        """Yields texts without a sound, and speech without a text."""
        for text in found.silent:
            is_beyond = text.start_s >= activity.duration_s
            why = "the recording ends before it" if is_beyond else text.doubt or "it is not in the recording"
            detail = f"{_shorten(text.text)!r}: {why}"
            yield _reject(recording, text.start_s, Reason.DOUBTFUL_TEXT, detail)
        if self._texts.subtitles or self._texts.books:
            told = [(phrase.start_s, phrase.end_s) for phrase in found.phrases]
            for phrase in _list_untold(make_phrases(find_pauses(activity)), told):
                detail = f"{phrase.end_s - phrase.start_s:.1f} s of speech that no text belongs to"
                yield _reject(recording, phrase.start_s, Reason.EMPTY_TEXT, detail)
        if not found.phrases:
            yield _reject(recording, 0.0, Reason.SILENT, "there is no speech in it")

    def _check_length(self, clip: Clip) -> Rejection | None:
        """Rejects what no pause allows to be shorter, and lone words that are too short for a clip."""
        duration_s, options = clip.span.duration_s, self._options
        if duration_s < options.min_s:
            detail = f"{duration_s:.1f} s between two long pauses, --min-seconds is {options.min_s:g}"
            return _reject(clip.recording, clip.span.start_s, Reason.TOO_SHORT, detail, clip.id, _LOWER_MIN)
        if duration_s > options.max_s + 0.25:
            detail = f"{duration_s:.1f} s {self._name_piece()}, --max-seconds is {options.max_s:g}"
            return _reject(clip.recording, clip.span.start_s, Reason.TOO_LONG, detail, clip.id, _RAISE_MAX)
        return None

    def _name_piece(self) -> str:
        """Says what lies between two places to cut: with a text there may be pauses inside of it."""
        if self._texts.books:
            return "from one end of a sentence to the next"
        return "from the border of one subtitle to that of the next" if self._texts.subtitles else "without a pause"

    def finish(self, recogniser: Recogniser | None) -> list[Collected]:
        """Recognises all clips, and judges them."""
        texts = {clip.id: clip.span.text for clip in self._clips}
        if recogniser is not None:
            texts = self._recognise(recogniser)
        speakers = {clip.id: self._options.speaker or clip.recording.speaker or DEFAULT_SPEAKER for clip in self._clips}
        rows = [
            Collected(clip, texts[clip.id], speakers[clip.id], self._options.language, self._measured[clip.id])
            for clip in self._clips
        ]
        return judge_clips(rows, self._options.limits, is_aligned=bool(self._texts.books))

    def _recognise(self, recogniser: Recogniser) -> dict[str, str]:
        """Returns the texts of a recogniser; what it has said before of a clip is not asked again."""
        journal = Journal(self._out / _STATE_FOLDER / "recognised.jsonl")
        command = zlib.crc32(f"{self._options.asr_command}\0{self._options.language}".encode())
        known = {row.id: row.text for row in journal.read(_Recognised) if row.command == command}
        with self._show("Recognising", len(self._clips), "clips") as view:
            for number, clip in enumerate(self._clips, 1):
                if clip.id not in known:
                    recognised = recogniser.transcribe(
                        self._out / CLIP_FOLDER / f"{clip.id}.wav", self._options.language
                    )
                    known[clip.id] = " ".join(recognised.split())
                    journal.append({"id": clip.id, "command": command, "text": known[clip.id]})
                view.update(number)
        return known

    def write_sentences(self) -> None:
        """Writes where each sentence of the texts was found."""
        if self._texts.books:
            with write_atomically(self._out / SENTENCES_FILE) as file:
                file.writelines(_to_line(row) for row in self._sentences)


class _Recognised(FileModel):
    id: str
    command: int
    text: str


def _reject(
    recording: Recording, place_s: float, reason: Reason, detail: str, id: str = "", what_to_do: str = ""
) -> Rejection:
    """Makes the rejection of a part of a recording."""
    placed = f"at {format_time(place_s)}: {detail}"
    advice = what_to_do or ADVICE.get(reason, "")
    return Rejection(id, recording.path.name, 0, reason, placed, what_to_do=advice)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 1].rstrip()}…"


def _list_untold(phrases: list[Phrase], told: list[tuple[float, float]]) -> Iterator[Phrase]:
    """Yields phrases that hardly overlap with those that have a text."""
    position = 0
    for phrase in phrases:
        while position < len(told) and told[position][1] <= phrase.start_s:
            position += 1
        overlap_s = 0.0
        if position < len(told):
            overlap_s = min(phrase.end_s, told[position][1]) - max(phrase.start_s, told[position][0])
        if phrase.end_s - phrase.start_s - max(0.0, overlap_s) >= _MIN_UNTOLD_S:
            yield phrase


def _to_line(row: Mapping[str, Any]) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _refuse_changed_manifest(out: Path) -> None:
    """Raises UsageError where the manifest is not the one that was written here: the user has changed it."""
    file = out / MANIFEST_FILE
    if not file.exists():
        return
    written = try_read_json(out / _STATE_FOLDER / _STATE_FILE, _Written)
    if written is None or zlib.crc32(file.read_bytes()) != written.manifest_crc32:
        raise UsageError(
            f"{file} was changed after it was written, and would be replaced.",
            next_step="Use it as it is (myxtts prepare), give another --out, or move it away.",
        )


def _write_rows(out: Path, collected: list[Collected], report: RejectionReport, *, has_texts: bool) -> list[Collected]:
    """Writes the manifest and the list of doubtful clips, and adds those to the report; returns what is accepted."""
    accepted: list[Collected] = []
    doubtful: list[bytes] = []
    for one in collected:
        if one.problem is None or (one.problem[0] is Reason.EMPTY_TEXT and not has_texts):
            accepted.append(one)
            continue
        reason, detail = one.problem
        report.add(_reject(one.clip.recording, one.clip.span.start_s, reason, detail, one.clip.id))
        doubtful.append(_to_line({**one.to_row(), "doubt": f"{reason}: {detail}"}))
    manifest = b"".join(_to_line(one.to_row()) for one in accepted)
    with write_atomically(out / DOUBTFUL_FILE) as file:
        file.writelines(doubtful)
    # Before the manifest: if it is killed in between, the old manifest counts as changed only if it is another one.
    write_json(out / _STATE_FOLDER / _STATE_FILE, {"manifest_crc32": zlib.crc32(manifest)})
    with write_atomically(out / MANIFEST_FILE) as file:
        file.write(manifest)
    return accepted


def _remove_others(folder: Path, ids: set[str]) -> None:
    """Removes clips of earlier settings; files with other names are left alone."""
    for file in folder.glob("*.wav"):
        if file.stem not in ids and _CLIP_NAME.fullmatch(file.name):
            with explain_storage_errors(file, "remove"):
                file.unlink()
