"""SubRip and WebVTT as they are found in the wild."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.tools.collect.subtitles import read_subtitles

SRT = """\ufeff1
00:00:01,000 --> 00:00:03,500
- Good morning.
- <i>Good morning,</i> Anna &amp; Omid.

2
00:00:04,000 --> 00:00:05,000
[door closes]

3
01:00:06,250 --> 01:00:08,000 X1:40 X2:600
{\\an8}Where have you been?
4
01:00:09,000 --> 01:00:10,000
I was here
"""
VTT = """WEBVTT - a title

NOTE a comment

STYLE
::cue { color: red }

intro
00:01.000 --> 00:03.500 align:start
<v Anna>Good <00:02.000><c>morning</c>

00:05.000 --> 00:06.000
♪ la la la ♪

00:07.000 --> 00:08.000
و بعد چه شد؟
"""


def test_subrip_is_read_without_tags_sounds_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(SRT.replace("\n", "\r\n"), encoding="utf-8")
    cues = read_subtitles(tmp_path / "a.srt")
    assert [(cue.start_s, cue.end_s, cue.text) for cue in cues] == [
        (1.0, 3.5, "Good morning. Good morning, Anna & Omid."),
        (3606.25, 3608.0, "Where have you been?"),
        (3609.0, 3610.0, "I was here"),
    ]
    assert [cue.ends_sentence for cue in cues] == [True, True, False]


def test_webvtt_is_read_without_notes_and_styles(tmp_path: Path) -> None:
    (tmp_path / "a.vtt").write_text(VTT, encoding="utf-8")
    assert [(cue.start_s, cue.text) for cue in read_subtitles(tmp_path / "a.vtt")] == [
        (1.0, "Good morning"),
        (7.0, "و بعد چه شد؟"),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"1\n00:00:01 --> 00:00:02\nHello\n", "a.srt:2: '00:00:01 --> 00:00:02' is not the time of a subtitle"),
        (b"00:00:05,000 --> 00:00:02,000\nHello\n", "a.srt:1: the subtitle ends before it begins"),
        ("سلام".encode("cp1256"), "byte 1 is not UTF-8"),
        (b"nothing but words\n", "there is no subtitle in them"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.srt").write_bytes(content)
    with pytest.raises(DataError) as error:
        read_subtitles(tmp_path / "a.srt")
    assert words in str(error.value)


def test_subtitles_at_the_same_time_are_in_doubt(tmp_path: Path) -> None:
    places = [(1, 3), (4, 8), (6.5, 9), (9, 12), (12, 14), (13.8, 16)]
    cues = [
        f"{format_time(round(1000 * start))} --> {format_time(round(1000 * end))}\nSentence {number}.\n"
        for number, (start, end) in enumerate(places)
    ]
    (tmp_path / "a.srt").write_text("\n".join(cues), encoding="utf-8")
    doubts = [cue.doubt for cue in read_subtitles(tmp_path / "a.srt")]
    overlap = "its subtitle overlaps another one by 1.5 s"
    assert doubts == ["", overlap, overlap, "", "", ""]


def test_rolling_captions_end_where_the_next_one_begins(tmp_path: Path) -> None:
    cues = [f"{format_time(2000 * n)} --> {format_time(2000 * n + 4000)}\nline {n}\n" for n in range(5)]
    (tmp_path / "a.srt").write_text("\n".join(cues), encoding="utf-8")
    read = read_subtitles(tmp_path / "a.srt")
    assert [(cue.start_s, cue.end_s, cue.doubt) for cue in read] == [
        (0.0, 2.0, ""),
        (2.0, 4.0, ""),
        (4.0, 6.0, ""),
        (6.0, 8.0, ""),
        (8.0, 12.0, ""),
    ]


WORDS = st.lists(st.text("abcdeآبپ", min_size=1, max_size=6), min_size=1, max_size=5).map(" ".join)
CUES = st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 9000), WORDS), min_size=1, max_size=8)


def format_time(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02},{rest:03}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CUES)
def test_what_is_written_is_read(tmp_path: Path, cues: list[tuple[int, int, str]]) -> None:
    position, lines, expected = 0, [], []
    for number, (gap, length, words) in enumerate(cues, 1):
        start, end = position + gap, position + gap + length
        position = end
        text = f"{words} {number}"
        lines.append(f"{number}\n{format_time(start)} --> {format_time(end)}\n{text}\n")
        expected.append((start / 1000, end / 1000, text))
    (tmp_path / "a.srt").write_text("\n".join(lines), encoding="utf-8")
    read = [(round(cue.start_s, 3), round(cue.end_s, 3), cue.text) for cue in read_subtitles(tmp_path / "a.srt")]
    assert read == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.vtt").write_bytes(b"WEBVTT\n\n00:01.000 --> 00:02.000\n" + content)
    with suppress(DataError):
        assert all(cue.text for cue in read_subtitles(tmp_path / "a.vtt"))
