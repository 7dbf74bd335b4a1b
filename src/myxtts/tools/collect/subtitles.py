"""Reads subtitles: SubRip (.srt) and WebVTT (.vtt), as players and recognisers write them."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from myxtts.errors import DataError, refuse
from myxtts.storage.regular_file import FileRefusedError, read_regular
from myxtts.tools.collect.borders import TimedText

SUBTITLE_SUFFIXES = (".srt", ".vtt")
_MAX_BYTES = 50_000_000
_TIMES = re.compile(
    r"^\s*(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[,.](\d{1,3})\s*-->\s*(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[,.](\d{1,3})(?:\s|$)"
)
"""Hours are optional in WebVTT; settings such as align:start may follow."""
_TAG = re.compile(r"<[^<>\n]{0,200}>|\{\\[^{}\n]{0,200}\}")
"""<i>, <v Anna>, <00:00:01.000> and the {\\an8} of SubStation."""
_SOUND = re.compile(r"\[[^\[\]\n]{0,200}\]|♪[^♪\n]{0,500}♪?|♫[^♫\n]{0,500}♫?")
"""Sounds that are not speech: [music], ♪ la la ♪."""
_DASH = re.compile(r"^\s*[-–—]\s+", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?…؟。！？][\"'”’»)\]]*$")
_FULL_STOP_SHARE = 0.2
"""Of the cues; where fewer end in a mark, the subtitles have no punctuation and each cue counts as a sentence."""

_MAX_OVERLAP_S = 0.5
_ROLLING_SHARE = 0.5
"""Of the cues that overlap the next one, in rolling captions."""


def read_subtitles(path: Path) -> list[TimedText]:
    """Returns the cues in the order of their times; raises DataError with the line where a file cannot be read.

    Cues without words are left out, and so are cues that repeat the one before, as rolling captions do.
    """
    lines = _read_lines(path)
    cues: list[TimedText] = []
    for number, line in enumerate(lines):
        if "-->" not in line:
            continue
        times = _TIMES.match(line)
        if times is None:
            raise DataError(
                f"{path}:{number + 1}: {line.strip()[:60]!r} is not the time of a subtitle.",
                next_step="Write times such as 00:01:02,500 --> 00:01:05,000.",
            )
        start_s, end_s = _read_time(times.groups()[:4]), _read_time(times.groups()[4:])
        if end_s < start_s:
            raise DataError(f"{path}:{number + 1}: the subtitle ends before it begins.", next_step="Correct its times.")
        cues.append(TimedText(_read_words(lines, number + 1), start_s, end_s))
    return _finish(path, cues)


def _read_lines(path: Path) -> list[str]:
    try:
        return read_regular(path, _MAX_BYTES).decode("utf-8-sig").splitlines()
    except FileRefusedError as error:
        raise refuse(f"The subtitles {path}", str(error), "Name a file of subtitles.") from error
    except OSError as error:
        problem = f"they cannot be read ({error.strerror})"
        raise refuse(f"The subtitles {path}", problem, "Check the path and its permissions.") from error
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1:,} is not UTF-8"
        raise refuse(f"The subtitles {path}", problem, "Save the file as UTF-8.") from error


def _read_time(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0) + float(f"0.{fraction}")


def _read_words(lines: list[str], start: int) -> str:
    """Returns the words of a cue: the lines up to the next empty one, without tags and sounds."""
    said = []
    for line in lines[start:]:
        if not line.strip() or "-->" in line:
            break
        said.append(line)
    # Where the empty line between two cues is missing, the number of the next one stands before its times.
    following = start + len(said)
    if said and said[-1].strip().isdecimal() and following < len(lines) and "-->" in lines[following]:
        said.pop()
    text = _DASH.sub("", _SOUND.sub(" ", _TAG.sub("", "\n".join(said))))
    return " ".join(html.unescape(text).split())


def _finish(path: Path, cues: list[TimedText]) -> list[TimedText]:
    """Sorts the cues, leaves out empty and repeated ones, and finds out which of them end a sentence."""
    kept: list[TimedText] = []
    for cue in sorted(cues, key=lambda cue: cue.start_s):
        if any(letter.isalnum() for letter in cue.text) and not (kept and kept[-1].text == cue.text):
            kept.append(cue)
    if not kept:
        raise refuse(f"The subtitles {path}", "there is no subtitle in them", "Name an SRT or WebVTT file.")
    kept = _treat_overlaps(kept)
    ends = [_SENTENCE_END.search(cue.text) is not None for cue in kept]
    has_marks = sum(ends) >= _FULL_STOP_SHARE * len(kept)
    return [replace(cue, ends_sentence=is_end or not has_marks) for cue, is_end in zip(kept, ends, strict=True)]


def _treat_overlaps(cues: list[TimedText]) -> list[TimedText]:
    """Marks cues that overlap as doubtful: it is unknown which words are said when, or two people speak.

    Where most cues overlap, they are rolling captions, which stay on the screen while the next one is said. These are
    cut off where the next one begins.
    """
    overlaps_s = [max(0.0, cue.end_s - following.start_s) for cue, following in pairwise(cues)]
    if sum(overlap_s > _MAX_OVERLAP_S for overlap_s in overlaps_s) > _ROLLING_SHARE * len(cues):
        starts = [following.start_s for following in cues[1:]]
        trimmed = [replace(cue, end_s=min(cue.end_s, start)) for cue, start in zip(cues, starts, strict=False)]
        return [*trimmed, cues[-1]]
    longest = [max(pair) for pair in zip([0.0, *overlaps_s], [*overlaps_s, 0.0], strict=True)]
    return [
        replace(cue, doubt=f"its subtitle overlaps another one by {longest_s:.1f} s")
        if longest_s > _MAX_OVERLAP_S
        else cue
        for cue, longest_s in zip(cues, longest, strict=True)
    ]
