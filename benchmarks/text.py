"""How fast sentences become tokens."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Measurement
from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.runtime.timing import time_calls
from myxtts.text.frontend import FrontEnd
from myxtts.text.persian.tagger import load_tagger
from myxtts.text.persian.words import split_words

_NUM_SENTENCES = 10_000
_NUM_TAGGED = 1000


def measure_text() -> list[Measurement]:
    return [_measure_phonemes("en"), _measure_phonemes("fa"), _measure_tagger()]


def _measure_phonemes(language: str) -> Measurement:
    generator = np.random.default_rng(0)
    sentences = [compose_sentence(load_grammar(language), generator) for _ in range(_NUM_SENTENCES)]
    frontend = FrontEnd.create("phonemes", None, None)
    languages = [language] * len(sentences)
    seconds = time_calls(lambda: frontend.encode_batch(sentences, languages, [None] * len(sentences)), 1)
    return Measurement(f"10,000 sentences to phonemes ({language})", seconds, "s", "at most", 20)


def _measure_tagger() -> Measurement:
    """Time to tag one Persian sentence, the weights loaded and the words known."""
    generator = np.random.default_rng(0)
    sentences = [split_words(compose_sentence(load_grammar("fa"), generator)) for _ in range(_NUM_TAGGED)]
    tagger = load_tagger()
    seconds = time_calls(lambda: [tagger.tag(words) for words in sentences], 3)
    return Measurement("ezafe of one Persian sentence", 1000 * seconds / _NUM_TAGGED, "ms", "at most", 1)
