"""English speech of free synthesisers, which teaches the base model more texts than the recordings have.

Programs and files of Debian's packages: festival with festvox-us-slt-hts, flite, dict-wn (the texts: example sentences
of WordNet 3.0) and wamerican-small (the words that both programs and espeak-ng know how to read).
"""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from myxtts.corpus.prompts import read_prompts
from myxtts.errors import MyXTTSError

_DICTIONARY = Path("/usr/share/dictd/wn.dict.dz")
_KNOWN_WORDS = Path("/usr/share/dict/american-english-small")
_PACKAGES = "festival festvox-us-slt-hts flite dict-wn wamerican-small"
_EXAMPLE = re.compile(r'"([A-Za-z ,.\'!?-]{18,120})"(?=[;\s\]])')
_FEWEST_WORDS, _MOST_WORDS = 4, 18
_NUM_PROCESSES = 2
_SENTENCES_PER_PROCESS = 100


@dataclass(frozen=True)
class Synthesiser:
    """A voice and the number of sentences that it says. Each voice says other sentences."""

    speaker: str
    program: str
    voice: str
    num_sentences: int


SYNTHESISERS = (
    Synthesiser("slt", "festival", "voice_cmu_us_slt_arctic_hts", 12000),
    Synthesiser("rms", "flite", "rms", 4000),
)


def speak_synthetic(out: Path) -> Iterator[dict[str, str]]:
    """Utterances of all synthesisers, spoken into the folder `synthetic` of `out` where they are not there yet."""
    sentences = read_examples()
    start = 0
    for synthesiser in SYNTHESISERS:
        chosen = sentences[start : start + synthesiser.num_sentences]
        start += len(chosen)
        folder = out / "synthetic" / synthesiser.speaker
        folder.mkdir(parents=True, exist_ok=True)
        tasks = [(folder / f"{number:05}.wav", text) for number, text in enumerate(chosen)]
        _speak(synthesiser, [task for task in tasks if not task[0].exists()])
        for path, text in tasks:
            yield {
                "id": f"synthetic-{synthesiser.speaker}-{path.stem}",
                "audio": str(path.relative_to(out)),
                "text": text,
                "speaker": synthesiser.speaker,
                "language": "en",
            }


def read_examples() -> list[str]:
    """Example sentences of WordNet in a random but repeatable order, without those that the model is judged by."""
    for path in (_DICTIONARY, _KNOWN_WORDS):
        if not path.is_file():
            raise MyXTTSError(f"{path} is missing.", next_step=f"On Debian: apt-get install {_PACKAGES}")
    known = {word.lower() for word in _KNOWN_WORDS.read_text(encoding="utf-8").split()}
    with gzip.open(_DICTIONARY, "rt", encoding="utf-8") as stream:
        flat = " ".join(stream.read().split())
    examples = {match.group(1).strip() for match in _EXAMPLE.finditer(flat)}
    sentences = {_finish(example) for example in examples if _is_readable(example, known)}
    found = sorted(sentences - set(read_prompts("en")))
    random.Random(1).shuffle(found)
    return found


def _is_readable(text: str, known: set[str]) -> bool:
    words = [word.strip("'.!?") for word in re.split(r"[ ,-]+", text.lower()) if word]
    return _FEWEST_WORDS <= len(words) <= _MOST_WORDS and all(word in known for word in words)


def _finish(text: str) -> str:
    """With a capital and a full stop, as sentences are written."""
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else text.rstrip(",- ") + "."


def _speak(synthesiser: Synthesiser, tasks: Sequence[tuple[Path, str]]) -> None:
    batches = [tasks[start : start + _SENTENCES_PER_PROCESS] for start in range(0, len(tasks), _SENTENCES_PER_PROCESS)]
    speak = partial(_speak_festival if synthesiser.program == "festival" else _speak_flite, synthesiser.voice)
    with ThreadPoolExecutor(_NUM_PROCESSES) as pool:
        for number, _ in enumerate(pool.map(speak, batches), 1):
            sys.stdout.write(f"\r{synthesiser.speaker}: {number} of {len(batches)} hundreds of sentences")
            sys.stdout.flush()
    sys.stdout.write("\n" if batches else "")


def _speak_festival(voice: str, tasks: Sequence[tuple[Path, str]]) -> None:
    lines = [f"({voice})"]
    lines += [f'(utt.save.wave (utt.synth (Utterance Text "{text}")) "{path}" \'riff)' for path, text in tasks]
    subprocess.run(["festival", "--pipe"], input="\n".join(lines), text=True, check=True, stdout=subprocess.DEVNULL)


def _speak_flite(voice: str, tasks: Sequence[tuple[Path, str]]) -> None:
    for path, text in tasks:
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(path)], check=True)
