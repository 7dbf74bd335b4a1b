"""Sentences to record, composed by the project, and the frequencies of phones in everyday sentences.

`prompt_lists/<language>.txt` holds one sentence a line: phonetically rich, everyday, 4 to 14 words each. Read aloud as
a whole, a list has every sound of its language and nearly all pairs of sounds that are frequent in it.

`prompt_lists/frequencies.json` holds how often phones and pairs occur in the project's own sentences: the list, and
`NUM_DEMO_SENTENCES` sentences of the demo corpus. They stand for everyday speech, not for a subject. `make docs` counts
them again.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from myxtts.config.languages import canonical_language
from myxtts.corpus.coverage import PhoneCounter, PhoneTally, choose_covering
from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.errors import UsageError
from myxtts.text.frontend import FrontEnd
from myxtts.text.tokenizer import PhonemeTokenizer

NUM_DEMO_SENTENCES = 500
_FOLDER = Path(__file__).parent / "prompt_lists"
FREQUENCIES_FILE = _FOLDER / "frequencies.json"
PROMPT_LANGUAGES = tuple(sorted(path.stem for path in _FOLDER.glob("*.txt")))
"""Languages that have a list."""


def has_prompts(language: str) -> bool:
    return _find_list(language) in PROMPT_LANGUAGES


def read_prompts(language: str) -> tuple[str, ...]:
    """The sentences of a language, in the order of the list; raises UsageError for a language without one."""
    code = _find_list(language)
    if code not in PROMPT_LANGUAGES:
        raise UsageError(
            f"There is no list of sentences to record in the language {language!r}.",
            next_step=f"Lists exist for {', '.join(PROMPT_LANGUAGES)}. For another language write a text file with one "
            "sentence a line.",
        )
    return _read_list(code)


def _find_list(language: str) -> str:
    """The code of the list for a language: regions such as en-gb share that of their language."""
    return canonical_language(language).partition("-")[0]


@lru_cache
def _read_list(code: str) -> tuple[str, ...]:
    lines = (_FOLDER / f"{code}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@lru_cache
def read_frequencies(language: str) -> PhoneTally:
    """How often phones and pairs occur in everyday sentences of a language that `has_prompts`."""
    return PhoneTally.from_json(json.loads(FREQUENCIES_FILE.read_text(encoding="utf-8"))[_find_list(language)])


def count_frequencies(language: str) -> PhoneTally:
    """Counts what `read_frequencies` returns, with the espeak-ng that is installed."""
    grammar, generator = load_grammar(language), np.random.default_rng(0)
    demo = [compose_sentence(grammar, generator) for _ in range(NUM_DEMO_SENTENCES)]
    tallies = tally_texts([*read_prompts(language), *demo], language, FrontEnd.create("phonemes"))
    return sum(tallies, PhoneTally())


def tally_texts(texts: list[str], language: str, frontend: FrontEnd) -> list[PhoneTally]:
    """Phones and pairs of each text; the front end must be one of phonemes."""
    assert isinstance(frontend.tokenizer, PhonemeTokenizer)
    tallies = []
    for encoding in frontend.encode_batch(texts, [language] * len(texts)):
        counter = PhoneCounter(frontend.tokenizer.inventory)
        counter.add(encoding.ids)
        tallies.append(counter.tally())
    return tallies


def suggest_prompts(language: str, found: PhoneTally, frontend: FrontEnd, number: int) -> list[str]:
    """The sentences of the language's list whose recording adds most to a corpus, the best first."""
    prompts = list(read_prompts(language))
    tallies = tally_texts(prompts, language, frontend)
    return [prompts[index] for index in choose_covering(tallies, found, read_frequencies(language), number)]
