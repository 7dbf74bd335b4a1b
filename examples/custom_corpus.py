"""Two ways to bring a layout that MyXTTS does not know: python examples/custom_corpus.py RECORDINGS OUT

The layout of this example has a text file beside every recording: anna-001.wav and anna-001.txt. The first way writes a
manifest, which `myxtts prepare` reads. The second adds a format, so that `prepare` reads the folder itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from myxtts import DataConfig
from myxtts.corpus import formats
from myxtts.corpus.formats.base import CorpusFormat, Row, Source
from myxtts.corpus.prepare import Recordings, Summary, prepare_corpus
from myxtts.corpus.rejections import Reason, Rejection


def write_manifest(folder: Path) -> Path:
    """The first way: one JSON object a line, with paths relative to the manifest."""
    manifest = folder / "manifest.jsonl"
    rows = [
        {
            "audio": audio.name,
            "text": audio.with_suffix(".txt").read_text(encoding="utf-8").strip(),
            "speaker": audio.stem.partition("-")[0],
        }
        for audio in sorted(folder.glob("*.wav"))
    ]
    manifest.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return manifest


def recognize_pairs(path: Path) -> str:
    """Says in words why a path is of this format, or nothing."""
    has_pairs = path.is_dir() and any(audio.with_suffix(".txt").is_file() for audio in path.glob("*.wav"))
    return "a text file beside every WAV file" if has_pairs else ""


def read_pairs(source: Source) -> Iterator[Row | Rejection]:
    """Rows as the files state them. Whatever is wrong becomes a rejection; recordings are checked later."""
    for audio in sorted(source.path.glob("*.wav")):
        text = audio.with_suffix(".txt")
        if not text.is_file():
            yield Rejection(audio.stem, audio.name, 1, Reason.EMPTY_TEXT, f"there is no {text.name}")
            continue
        words, speaker = text.read_text(encoding="utf-8").strip(), audio.stem.partition("-")[0]
        yield Row(audio.stem, audio.name, words, speaker, source.language, text.name, 1)


PAIRS = CorpusFormat("pairs", "ID.wav and ID.txt", recognize_pairs, read_pairs)


def prepare(path: Path, out: Path) -> Summary:
    return prepare_corpus([Recordings(path)], out, DataConfig())


def main(recordings: str, out: str) -> None:
    folder, target = Path(recordings), Path(out)
    # The second way. Formats are tried in order; particular ones come first.
    formats.FORMATS = (PAIRS, *formats.FORMATS)
    summary = prepare(folder, target / "by-format")
    print(f"by format: {summary.num_utterances} utterances, {summary.formats[0]}")
    summary = prepare(write_manifest(folder), target / "by-manifest")
    print(f"by manifest: {summary.num_utterances} utterances, {summary.formats[0]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Prepare recordings with a text file beside each, in two ways.")
    parser.add_argument("recordings", help="folder of ID.wav and ID.txt")
    parser.add_argument("out", help="folder for the two prepared corpora")
    main(**vars(parser.parse_args()))
