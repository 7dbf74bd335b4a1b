"""Where the texts of clips come from: a recogniser, subtitles, a text of the whole recording, or nowhere yet.

Subtitles and texts belong to a recording by their names: of several recordings, those of `chapter1.mp3` are
`chapter1.srt` and `chapter1.txt`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from myxtts.corpus.transcripts import BadLine, read_lines
from myxtts.errors import DataError, UsageError
from myxtts.synthesis.sentences import cut_text
from myxtts.text.normalize import split_sentences
from myxtts.tools.collect.activity import Activity
from myxtts.tools.collect.align import align_sentences
from myxtts.tools.collect.borders import TimedText, mark_untold_speech, snap_to_pauses
from myxtts.tools.collect.cuts import Pause, Phrase, make_phrases
from myxtts.tools.collect.recordings import Recording
from myxtts.tools.collect.subtitles import SUBTITLE_SUFFIXES, read_subtitles

_MAX_PART_LENGTH = 140
"""Characters, about nine seconds; a longer sentence is aligned in parts, so that it can be cut in a pause inside."""
_MAX_SUBTITLE_SHIFT_S, _MAX_ALIGNMENT_SHIFT_S = 0.6, 0.8
"""From the border of a text to the pause that it is moved to."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Subtitles and texts by recording name; both empty where a recogniser is asked, or no text is given."""

    subtitles: dict[str, Path]
    books: dict[str, Path]


@dataclass(frozen=True, slots=True)
class Found:
    """The speech of a recording with what is known of its texts. `sentences` are those of a text, with their places.

    `silent` are texts that have no sound in the recording.
    """

    phrases: list[Phrase]
    sentences: list[TimedText]
    silent: list[TimedText]


def find_texts(
    recordings: list[Recording], subtitles: Path | None, text: Path | None, *, has_recogniser: bool
) -> Texts:
    """Finds the files that belong to recordings; raises DataError where one of them has none.

    Where nothing is asked for, subtitles beside the recordings are taken.
    """
    if sum((subtitles is not None, text is not None, has_recogniser)) > 1:
        raise UsageError(
            "The texts can come from one place only.", next_step="Give one of --subtitles, --text and --asr-command."
        )
    if text is not None:
        return Texts({}, _match(recordings, text, (".txt",), "--text"))
    if subtitles is not None:
        return Texts(_match(recordings, subtitles, SUBTITLE_SUFFIXES, "--subtitles"), {})
    beside = (
        {}
        if has_recogniser
        else {
            recording.name: file
            for recording in recordings
            for suffix in SUBTITLE_SUFFIXES
            if (file := recording.path.with_suffix(suffix)).is_file()
        }
    )
    return Texts(beside, {})


def _match(recordings: list[Recording], place: Path, suffixes: tuple[str, ...], flag: str) -> dict[str, Path]:
    """Returns the file of each recording: `place` itself for a single one, else files of the same name in it."""
    if place.is_file():
        if len(recordings) > 1:
            raise UsageError(
                f"{flag} names one file, but there are {len(recordings)} recordings.",
                next_step=f"Name a folder with a file for each, such as {recordings[0].path.stem}{suffixes[0]}.",
            )
        return {recordings[0].name: place}
    if not place.is_dir():
        raise DataError(f"There is nothing at {place} ({flag}).", next_step="Name a file, or a folder of files.")
    found = {}
    for recording in recordings:
        candidates = [place / f"{recording.path.stem}{suffix}" for suffix in suffixes]
        file = next((candidate for candidate in candidates if candidate.is_file()), None)
        if file is None:
            raise DataError(
                f"{place} has no {candidates[0].name} for the recording {recording.path} ({flag}).",
                next_step="Add it, or move the recording elsewhere.",
            )
        found[recording.name] = file
    return found


def find_phrases(
    recording: Recording,
    activity: Activity,
    pauses: list[Pause],
    texts: Texts,
    language: str,
    progress: Callable[[float], None] = lambda _: None,
) -> Found:
    """Returns the speech between pauses, with the texts of subtitles or of a book where there are some."""
    if len(pauses) < 2:
        return Found([], [], [])
    if subtitles := texts.subtitles.get(recording.name):
        cues = mark_untold_speech(read_subtitles(subtitles), pauses)
        snapped = snap_to_pauses(cues, pauses, _MAX_SUBTITLE_SHIFT_S)
        return Found(snapped.phrases, [], snapped.silent)
    book = texts.books.get(recording.name)
    if book is None:
        return Found(make_phrases(pauses), [], [])
    return _align_book(_read_book(book, language), activity, pauses, language, progress)


def _read_book(path: Path, language: str) -> list[str]:
    """Returns the sentences of a text. Lines of a paragraph are joined; an empty line ends a sentence, as a stop does.

    Where most lines end a sentence, the text has one sentence a line, and every line break counts.
    """
    lines: list[tuple[int, str]] = []
    for line in read_lines(path):
        if isinstance(line, BadLine):
            raise DataError(f"{path}:{line.number}: {line.detail}.", next_step=line.what_to_do or "Correct the line.")
        lines.append((line.number, line.text.strip()))
    paragraphs: list[str] = []
    is_by_line = _has_a_sentence_a_line([text for _, text in lines])
    for index, (number, text) in enumerate(lines):
        follows = index > 0 and lines[index - 1][0] == number - 1 and not is_by_line
        if follows:
            paragraphs[-1] += f" {text}"
        else:
            paragraphs.append(text)
    sentences = [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph, language)]
    sentences = [sentence for sentence in sentences if any(letter.isalnum() for letter in sentence)]
    if not sentences:
        raise DataError(f"{path} has no sentence.", next_step="Give the text that is read in the recording, as UTF-8.")
    return sentences


def _has_a_sentence_a_line(lines: list[str]) -> bool:
    """Whether lines are sentences, not lines of a printed page: of very different lengths, or most with a stop."""
    if len(lines) < 2:
        return True
    ends = sum(line[-1:] in ".!?…؟。！？:;؛\"'”’»)" for line in lines)
    longest = max(map(len, lines))
    num_full = sum(len(line) >= 0.75 * longest for line in lines)
    return ends >= 0.5 * len(lines) or num_full < 0.5 * len(lines)


def _align_book(
    sentences: list[str],
    activity: Activity,
    pauses: list[Pause],
    language: str,
    progress: Callable[[float], None],
) -> Found:
    """Aligns the sentences, long ones in parts, and moves their borders to pauses."""
    parts = [(number, part) for number, text in enumerate(sentences) for part in cut_text(text, _MAX_PART_LENGTH)]
    placed = align_sentences(activity, pauses, [part for _, part in parts], language, progress)
    timed = []
    for index, ((number, part), place) in enumerate(zip(parts, placed, strict=True)):
        is_last = index + 1 == len(parts) or parts[index + 1][0] != number
        timed.append(TimedText(part, place.start_s, place.end_s, place.doubt, is_last, place.is_alone))
    # A text without a sound would only put its neighbour in doubt.
    found = [index for index, text in enumerate(timed) if text.end_s > text.start_s]
    missing = [text for text in timed if text.end_s <= text.start_s]
    if not found:
        return Found([], [], missing)
    snapped = snap_to_pauses([timed[index] for index in found], pauses, _MAX_ALIGNMENT_SHIFT_S)
    borders = dict(zip(found, zip(snapped.befores, snapped.afters, strict=True), strict=True))
    owners = [number for number, _ in parts]
    return Found(snapped.phrases, _join_parts(sentences, owners, timed, borders), [*snapped.silent, *missing])


def _join_parts(
    sentences: list[str],
    owners: list[int],
    timed: list[TimedText],
    borders: dict[int, tuple[Pause | None, Pause | None]],
) -> list[TimedText]:
    """Returns the place of each whole sentence, its borders at the pauses that were chosen for its parts."""
    placed: dict[int, TimedText] = {}
    for index, (number, part) in enumerate(zip(owners, timed, strict=True)):
        before, after = borders.get(index, (None, None))
        known = placed.get(number)
        start_s = known.start_s if known else before.end_s if before else part.start_s
        end_s = max(start_s, after.start_s if after else part.end_s)
        doubt = (known.doubt if known else "") or part.doubt
        placed[number] = TimedText(sentences[number], start_s, end_s, doubt)
    return [placed[number] for number in sorted(placed)]
