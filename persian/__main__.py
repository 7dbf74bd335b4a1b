"""Makes the data of the Persian front end: `python -m persian DATA`, where DATA holds FarsDat.csv and fa_*.conllu.

Writes ezafe.safetensors, lexicon.tsv and card.json into src/myxtts/text/persian; the same data give the same bytes.
`--scores` also trains with each source left out and prints how well the tagger does on it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.storage.tensor_file import write_tensors
from myxtts.text.persian.pronounce import LEXICON_FILE
from myxtts.text.persian.tagger import WEIGHTS_FILE, Tagger
from myxtts.text.persian.words import WORDS_FILE
from persian.corpora import Sentences, load_corpora
from persian.lexicon import collect_entries
from persian.scores import Accuracy, Score, score_ezafe, score_homographs
from persian.training import Example, make_example, train

_TARGET = Path(__file__).parents[1] / "src" / "myxtts" / "text" / "persian"
_OWN_LIST = Path(__file__).parent / "lexicon.txt"
_NUM_EPOCHS = 5
_TIMES_OWN = 2
"""How often our own sentences are in the training set: they are few, and nearest to what people write."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m persian", description="Make the data of the Persian front end.")
    parser.add_argument("data", type=Path, help="folder with FarsDat.csv and fa_*.conllu")
    parser.add_argument("--scores", action="store_true", help="also score the tagger on each source, left out")
    parser.add_argument("--date", default="2026-11-17", help="date that the card states")
    options = parser.parse_args()
    corpora = load_corpora(options.data)
    entries = collect_entries(corpora.spoken, corpora.known_words, _OWN_LIST)
    lines = [f"{word}\t{ipa}\n" for word, ipa in entries.items()]
    (_TARGET / LEXICON_FILE).write_text(
        "# word<TAB>IPA; made by python -m persian\n" + "".join(lines), encoding="utf-8"
    )
    listed = f"# made by python -m persian\n{' '.join(corpora.nominals)}\n{' '.join(corpora.verbs)}\n"
    (_TARGET / WORDS_FILE).write_text(listed, encoding="utf-8")
    tagger = _train(corpora.training)
    weights = _pack(tagger)
    (_TARGET / WEIGHTS_FILE).write_bytes(weights)
    scores: dict[str, Score | Accuracy] = {name: score_ezafe(tagger, words) for name, words in corpora.tests.items()}
    scores |= {name: score_homographs(words) for name, words in corpora.homographs.items()}
    if options.scores:
        scores |= _score_left_out(corpora.training)
    card = _describe(weights, len(entries), scores, options.date)
    (_TARGET / "card.json").write_text(json.dumps(card, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    for name, score in scores.items():
        sys.stdout.write(f"{name}: {score}\n")


def _train(sources: dict[str, Sentences]) -> Tagger:
    examples: list[Example] = []
    for name, sentences in sources.items():
        times = _TIMES_OWN if name == "own sentences" else 1
        examples += [make_example(words) for words in sentences] * times
    return train(examples, _NUM_EPOCHS, _report)


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _score_left_out(sources: dict[str, Sentences]) -> dict[str, Score]:
    """Trains once for each source on all others, and scores the tagger on the one that it has not seen."""
    scores = {}
    for left_out, sentences in sources.items():
        tagger = _train({name: words for name, words in sources.items() if name != left_out})
        scores[f"{left_out}, left out of training"] = score_ezafe(tagger, sentences)
    return scores


def _pack(tagger: Tagger) -> bytes:
    file = BytesIO()
    arrays: dict[str, NDArray[Any]] = {"weights": tagger.weights, "transitions": tagger.transitions.astype(np.int32)}
    write_tensors(file, arrays, {"card": "card.json"}, seal=True)
    return file.getvalue()


def _describe(weights: bytes, num_words: int, scores: dict[str, Score | Accuracy], date: str) -> dict[str, object]:
    return {
        "what": "Tagger of Persian parts of speech and ezafe (averaged perceptron, int8), and a pronunciation lexicon.",
        "made_by": "python -m persian DATA",
        "date": date,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "num_bytes": len(weights),
        "num_lexicon_words": num_words,
        "sources": [
            {"name": "UD Persian-PerDT (dev, test)", "licence": "CC BY-SA 4.0", "use": "parts of speech, ezafe"},
            {"name": "UD Persian-Seraji (dev, test)", "licence": "CC BY-SA 4.0", "use": "parts of speech, ezafe"},
            {"name": "FarsDat sentences of GE2PE", "licence": "MIT", "use": "ezafe, pronunciations"},
            {"name": "sentences and words of this project", "licence": "Apache-2.0", "use": "ezafe, pronunciations"},
        ],
        "licence_of_the_weights": "CC BY-SA 4.0",
        "scores": {name: score.to_json() for name, score in scores.items()},
    }


if __name__ == "__main__":
    main()
