"""No path that a transcript can write leads out of the corpus."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myxtts.corpus.listen import AudioLimits, inspect_audio
from myxtts.corpus.paths import CorpusRoot, open_plain_file
from myxtts.corpus.rejections import AudioProblem

LIMITS = AudioLimits(0.1, 30, 192_000, 8, -60, 0.01)

# Pieces that paths of attackers are made of, beside ordinary names and names that exist in the fixture.
PIECES = st.sampled_from(
    [
        "..",
        ".",
        "",
        "wavs",
        "a.wav",
        "out",
        "link.wav",
        "loop",
        "etc",
        "passwd",
        "~",
        "/",
        "\\",
        "..\\..",
        "%2e%2e",
        "\0",
        "سلام",
    ]
) | st.text(max_size=12)
PATHS = st.builds(
    lambda start, parts, glue: start + glue.join(parts),
    st.sampled_from(["", "/", "//", "../", "./"]),
    st.lists(PIECES, max_size=8),
    st.sampled_from(["/", "\\", "//"]),
)

_opened: list[str] = []
_is_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _is_watching and event == "open" and isinstance(arguments[0], str):
        _opened.append(arguments[0])


sys.addaudithook(_watch)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("traversal")
    (base / "secret.wav").write_bytes(b"RIFFsecret")
    folder = base / "corpus"
    (folder / "wavs").mkdir(parents=True)
    (folder / "wavs" / "a.wav").write_bytes(b"RIFF")
    (folder / "link.wav").symlink_to("../secret.wav")
    (folder / "out").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    return folder


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=PATHS)
def test_nothing_outside_the_corpus_is_ever_opened(corpus: Path, written: str) -> None:
    global _is_watching  # noqa: PLW0603
    root = CorpusRoot(corpus)
    _opened.clear()
    _is_watching = True
    try:
        real = root.resolve(written)
        if real is not None:
            inspect_audio(real, LIMITS)
    except AudioProblem:
        pass
    finally:
        _is_watching = False
    inside = os.path.realpath(corpus) + os.sep
    assert all(path.startswith(inside) for path in _opened)


def test_links_out_of_the_corpus_are_refused_and_links_inside_followed(corpus: Path) -> None:
    root = CorpusRoot(corpus)
    (corpus / "inner.wav").symlink_to("wavs/a.wav")
    assert root.resolve("link.wav") is None
    assert root.resolve("out/secret.wav") is None
    assert root.resolve("inner.wav") == os.path.realpath(corpus / "wavs" / "a.wav")


def test_windows_separators_are_understood(corpus: Path) -> None:
    assert CorpusRoot(corpus).resolve("wavs\\a.wav") == os.path.realpath(corpus / "wavs" / "a.wav")


def test_sibling_with_the_same_beginning_is_outside(corpus: Path) -> None:
    assert CorpusRoot(corpus).resolve(str(corpus) + "2/a.wav") is None


def test_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(OSError, match="not a plain file"):
        open_plain_file(str(tmp_path / "pipe.wav"))
