"""How fast sentences become tokens."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Measurement
from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.runtime.timing import time_calls
from myxtts.text.frontend import FrontEnd

_NUM_SENTENCES = 10_000


def measure_text() -> list[Measurement]:
    return [_measure_phonemes("en"), _measure_phonemes("fa")]


def _measure_phonemes(language: str) -> Measurement:
    generator = np.random.default_rng(0)
    sentences = [compose_sentence(load_grammar(language), generator) for _ in range(_NUM_SENTENCES)]
    frontend = FrontEnd.create("phonemes", None, None)
    languages = [language] * len(sentences)
    seconds = time_calls(lambda: frontend.encode_batch(sentences, languages, [None] * len(sentences)), 1)
    return Measurement(f"10,000 sentences to phonemes ({language})", seconds, "s", "at most", 20)
