"""A corpus to try refinement by recordings on: marked sentences, spoken by espeak-ng as they are marked, without marks.

`python -m persian.spoken make OUT` writes OUT/metadata.csv, wavs and truth.json. `turn CORPUS 0.2` writes a
readings.jsonl with that share of the open words turned at random into a prepared corpus, before precompute.
`score CORPUS TRUTH [--before FOLDER]` says how many wrong readings were found.

espeak-ng gets each word in a spelling with all vowels, so that it says the front end's IPA with the true ezafe and the
true reading; sentences with a word that it cannot say so are left out.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import wave
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.readings import ReadingOfWord, UtteranceReadings, load_readings, save_readings
from myxtts.text.espeak import clean_ipa, synthesize, text_to_ipa
from myxtts.text.frontend import DEFAULT_PERSIAN, FrontEnd
from myxtts.text.persian.pronounce import clean_espeak
from myxtts.text.persian.reading import Choice
from myxtts.text.persian.variants import OpenWord, list_open_words
from myxtts.text.phonemes import split_clauses
from myxtts.types import Waveform
from persian.lexicon import latin_to_ipa
from persian.scores import simplify
from persian.sentences import MarkedWord, read_sentences

_SENTENCES = Path(__file__).parent / "sentences"
_NUM_TRAINING_SENTENCES = 220
"""Of those that the tagger was trained on; all test sentences are taken."""
_CONSONANTS = dict(zip("bptshxdzrʒʃqfkɡlmnvjʔ", "بپتسهخدزرژشقفکگلمنویع", strict=True)) | {"dʒ": "ج", "tʃ": "چ"}
_SHORT = {"a": "\u064e", "e": "\u0650", "o": "\u064f"}
_LONG = {"ɑ": ("آ", "ا"), "uː": ("او", "و"), "i": ("ای", "ی")}
_PHONE = re.compile("dʒ|tʃ|uː|[^ːˈˌ]")
_SUKUN, _ZWNJ = "\u0652", "\u200c"
_MARKS = ".,!?;:—…"
_VARIANT, _RATE_WPM, _PITCH = "f2", 150, 50


def _spell(ipa: str) -> str:
    """Returns a Persian spelling of IPA with all its vowels."""
    spelt = ""
    for phone in _PHONE.findall(ipa):
        if phone in _SHORT:
            spelt += ("" if spelt else "ا") + _SHORT[phone]
        elif phone in _LONG:
            spelt += _LONG[phone][bool(spelt)]
        else:
            spelt += _CONSONANTS.get(phone, "?")
    return spelt


def _list_spellings(ipa: str) -> Iterator[str]:
    spelt = _spell(ipa)
    yield spelt
    if spelt.endswith("ی\u0650"):
        yield from (spelt[:-1], f"{spelt[:-2]}\u0650")
    yield re.sub("(?<=[بپتسجچهخدزرژشقفکگلمنع])(?=[بپتسجچهخدزرژشقفکگلمنع])", _SUKUN, spelt)
    yield from (f"{spelt[:place]}{_ZWNJ}{spelt[place:]}" for place in range(2, len(spelt) - 1))


def _find_spelling(ipa: str) -> str | None:
    """Returns the spelling that espeak-ng reads most like the IPA; None if none is near, or ends as it does."""
    wanted, best = clean_espeak(ipa), (2, "")
    for spelling in _list_spellings(ipa):
        said = clean_espeak(clean_ipa(" ".join(text_to_ipa(spelling, "fa")), "fa")).replace("ii", "i")
        if said[-2:] == wanted[-2:]:
            best = min(best, (_count_edits(said, wanted), spelling))
        if best[0] == 0:
            break
    return best[1] or None


def _count_edits(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for index, sign in enumerate(first, start=1):
        before, row = row, [index]
        for column, other in enumerate(second, start=1):
            row.append(min(before[column] + 1, row[-1] + 1, before[column - 1] + (sign != other)))
    return row[-1]


def make(out: Path) -> None:
    generator = np.random.default_rng(1)
    trained = [words for path in sorted(_SENTENCES.glob("train-*.txt")) for words in read_sentences(path)]
    sentences = [words for path in sorted(_SENTENCES.glob("test-*.txt")) for words in read_sentences(path)]
    frontend, rows = FrontEnd.create("phonemes"), ["id|audio|text|speaker|language\n"]
    (out / "wavs").mkdir(parents=True)
    truth: dict[str, list[dict[str, Any]]] = {}
    for words in (
        *sentences,
        *(trained[place] for place in generator.permutation(len(trained))[:_NUM_TRAINING_SENTENCES]),
    ):
        text = re.sub(r" (?=[.،؟!؛:»])", "", " ".join(word.word for word in words))
        said = _speak(frontend, text, [word for word in words if word.word[0].isalnum()], generator)
        if said is not None:
            id = f"s{len(rows):04}"
            _write(out / "wavs" / f"{id}.wav", said[1], len(rows))
            rows.append(f"{id}|wavs/{id}.wav|{text}|espeak|fa\n")
            truth[id] = [{"word": choice.word, "ezafe": choice.ezafe, "ipa": choice.ipa} for choice in said[0]]
    (out / "metadata.csv").write_text("".join(rows), encoding="utf-8")
    (out / "truth.json").write_text(json.dumps(truth, ensure_ascii=False), encoding="utf-8")
    sys.stdout.write(f"{len(truth)} of {len(sentences) + _NUM_TRAINING_SENTENCES} sentences are in {out}\n")


def _speak(
    frontend: FrontEnd, text: str, words: list[MarkedWord], generator: np.random.Generator
) -> tuple[list[Choice], Waveform] | None:
    """Returns the true readings of a text and its sound; None where espeak-ng cannot say it."""
    normalized = frontend.normalize(text, "fa")
    read = [word for row in DEFAULT_PERSIAN.read(split_clauses(normalized).parts) for word in row]
    if [word.word for word in read] != [word.word for word in words]:
        return None
    choices = [
        Choice(place, word.word, word.ezafe, latin_to_ipa(word.reading) or guess.reading)
        for place, (word, guess) in enumerate(zip(words, read, strict=True))
    ]
    ipa = frontend.phonemize_chosen([normalized], "fa", [choices])[0].split()
    spellings = [_find_spelling(word.strip(_MARKS)) for word in ipa]
    if not all(spellings):
        return None
    ends = (word[len(word.rstrip(_MARKS)) :] for word in ipa)
    spoken = " ".join(f"{spelling}{end}" for spelling, end in zip(spellings, ends, strict=True))
    rate, pitch = _RATE_WPM + int(generator.integers(-8, 9)), _PITCH + int(generator.integers(-4, 5))
    return choices, synthesize(spoken, "fa", variant=_VARIANT, rate_wpm=rate, pitch=pitch)


def _write(path: Path, sound: Waveform, seed: int) -> None:
    """Writes a recording with a little noise and silence around."""
    padded = np.pad(0.5 * sound.samples, (int(0.15 * sound.rate), int(0.2 * sound.rate)))
    noisy = padded + 8e-4 * np.random.default_rng(seed).standard_normal(len(padded))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sound.rate)
        file.writeframes(np.rint(np.clip(noisy, -1, 1) * 32767).astype("<i2").tobytes())


def _list_open(folder: Path) -> Iterator[tuple[str, str, list[OpenWord]]]:
    corpus = open_corpus(folder)
    frontend = corpus.load_frontend()
    reading = frontend.persian or DEFAULT_PERSIAN
    for utterance in corpus.utterances():
        parts = split_clauses(frontend.normalize(utterance.text, "fa")).parts
        yield utterance.id, utterance.text, list_open_words(reading, parts)


def turn(folder: Path, share: float) -> None:
    """Writes readings.jsonl into the folder of a prepared corpus, with a share of the open words turned at random."""
    generator, lines, num_turned = np.random.default_rng(5), [], 0
    for id, text, words in _list_open(folder):
        turned = [word for word in words if generator.random() < share]
        chosen = [word.others[generator.integers(len(word.others))].choice for word in turned]
        words_read = tuple(ReadingOfWord.of(choice, 0.01) for choice in chosen)
        lines.append(UtteranceReadings(id=id, text=text, words=words_read))
        num_turned += len(chosen)
    sys.stdout.write(f"{num_turned} words are turned in {save_readings(folder, lines)}\n")


def score(folder: Path, truth_file: Path, before_folder: Path | None) -> None:
    """Counts wrong readings before refining that are right after it, and right ones that became wrong."""
    truth = json.loads(truth_file.read_text(encoding="utf-8"))
    after, before = load_readings(folder), load_readings(before_folder) if before_folder else {}
    counts: Counter[str] = Counter()
    for id, _, words in _list_open(folder):
        old, new = ({c.place: c for c in found[id].choices} if id in found else {} for found in (before, after))
        for word in words:
            place, true = word.guess.place, truth[id][word.guess.place]
            pair = old.get(place, word.guess), new.get(place, word.guess)
            counts[_judge("ezafe", *(choice.ezafe == true["ezafe"] for choice in pair))] += 1
            if word.is_homograph:
                is_right = [simplify(choice.ipa) == simplify(true["ipa"]) for choice in pair]
                counts[_judge("homographs", *is_right)] += 1
    sys.stdout.write(json.dumps(dict(sorted(counts.items())), indent=2) + "\n")


def _judge(what: str, was_right: bool, is_right: bool) -> str:
    return f"{what}, {'right' if was_right else 'wrong'} before, {'right' if is_right else 'wrong'} after"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m persian.spoken", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="speak the sentences").add_argument("out", type=Path)
    turning = commands.add_parser("turn", help="turn a share of the open words of a prepared corpus")
    turning.add_argument("corpus", type=Path)
    turning.add_argument("share", type=float)
    scoring = commands.add_parser("score", help="count what refinement found")
    scoring.add_argument("corpus", type=Path)
    scoring.add_argument("truth", type=Path)
    scoring.add_argument("--before", type=Path, help="folder with the readings.jsonl from before refining")
    options = parser.parse_args()
    if options.command == "make":
        make(options.out)
    elif options.command == "turn":
        turn(options.corpus, options.share)
    else:
        score(options.corpus, options.truth, options.before)


if __name__ == "__main__":
    main()
