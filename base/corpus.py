"""Composes the corpus of the base model: `python -m base corpus DATA --out build/base`.

DATA holds the folders ljspeech385, kerstin, nathalie, speakers40 and speakers44, each with metadata.csv and wavs/.
Persian is spoken by the demo voices of espeak-ng, because there are no free Persian recordings among these. Writes
first.jsonl, which `myxtts prepare` reads; configs/base.yaml has the commands that follow. `--part second` writes a
corpus with less German, and `--part third` the same with English sentences of a free synthesiser, for the last part of
the training; `--part left-out` lists the speakers that are left out, on whom the model is scored as on voices that it
never heard.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from base.synthetic import speak_synthetic
from myxtts.corpus.demo.corpus import make_demo_corpus

_PERSIAN_MINUTES = 24.0
_NUM_PERSIAN_SPEAKERS = 6
LEFT_OUT = ("0135", "0765", "1064", "1362", "2112", "2450", "9608", "9633")
"""Speakers that training never hears."""
HALVED = "kerstin"
"""Speaker of whom the second and third corpus take every second clip: she has a third of all recorded minutes."""
Part = Literal["first", "second", "third", "left-out"]
_REPEATS, _REPEATS_OF_OTHERS = {"lj": 12, "kerstin": 2, "nathalie": 2}, 3
"""How often an epoch of the third corpus has each clip of these speakers, so that half of its clips are synthetic."""


@dataclass(frozen=True)
class Recordings:
    """A folder of recordings. Where `speaker` is None, the second column of its table names the speaker."""

    folder: str
    language: str
    speaker: str | None
    suffix: str


RECORDINGS = (
    Recordings("ljspeech385", "en", "lj", ".flac"),
    Recordings("kerstin", "de", "kerstin", ".ogg"),
    Recordings("nathalie", "nl", "nathalie", ".ogg"),
    Recordings("speakers40", "en", None, ".flac"),
    Recordings("speakers44", "en", None, ".ogg"),
)


def compose_corpus(data: Path, out: Path, part: Part = "first") -> None:
    """Writes the manifest of a corpus, or of the speakers that are left out; copies their recordings."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [row for source in RECORDINGS for row in _read(source, data)]
    rows = [row for row in rows if _is_left_out(row) == (part == "left-out")]
    if part in ("second", "third"):
        halved = [row for row in rows if row["speaker"] == HALVED]
        dropped = {row["id"] for row in halved[::2]}
        rows = [row for row in rows if row["id"] not in dropped]
    for row in rows:
        row["audio"] = _copy(Path(row["audio"]), out)
    if part != "left-out":
        rows += _speak_persian(out)
    if part == "third":
        recorded = {row["speaker"]: _REPEATS.get(row["speaker"], _REPEATS_OF_OTHERS) for row in rows}
        repeats = ",".join(f"{speaker}={number}" for speaker, number in recorded.items())
        (out / "repeats.txt").write_text(repeats, encoding="utf-8")
        rows += speak_synthetic(out)
    path = out / f"{part}.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    num_speakers = len({row["speaker"] for row in rows})
    sys.stdout.write(f"{len(rows):,} clips of {num_speakers} speakers in {path}\n")


def _is_left_out(row: dict[str, str]) -> bool:
    return row["speaker"] in LEFT_OUT


def _read(source: Recordings, data: Path) -> Iterator[dict[str, str]]:
    """Utterances of one folder."""
    folder = data / source.folder
    for line in (folder / "metadata.csv").read_text(encoding="utf-8").splitlines():
        fields = line.split("|")
        audio = folder / "wavs" / f"{fields[0]}{source.suffix}"
        if not audio.is_file():
            audio = audio.with_suffix(".flac" if source.suffix == ".ogg" else ".ogg")
        yield {
            "id": f"{source.folder}-{fields[0]}",
            "audio": str(audio),
            "text": fields[-1],
            "speaker": source.speaker or fields[1],
            "language": source.language,
        }


def _copy(audio: Path, out: Path) -> str:
    """Copies a recording, because `myxtts prepare` reads only what lies in the folder of the manifest."""
    place = Path("recordings") / audio.parent.parent.name / audio.name
    if not (out / place).exists():
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(audio, out / place)
    return str(place)


def _speak_persian(out: Path) -> Iterator[dict[str, str]]:
    """Utterances of the demo's Persian voices: synthetic speech, spoken by espeak-ng."""
    folder = out / "persian"
    make_demo_corpus(folder, minutes=_PERSIAN_MINUTES, languages=("fa",), num_speakers=_NUM_PERSIAN_SPEAKERS, seed=1)
    for line in (folder / "metadata.csv").read_text(encoding="utf-8").splitlines()[1:]:
        clip_id, audio, text, speaker, language = line.split("|")
        yield {
            "id": f"demo-{clip_id}",
            "audio": f"persian/{audio}",
            "text": text,
            "speaker": speaker,
            "language": language,
        }
