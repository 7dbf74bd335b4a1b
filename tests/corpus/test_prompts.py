"""Lists of sentences to record: no duplicates, right length and script, every frequent sound of the language."""

from __future__ import annotations

import numpy as np
import pytest

from myxtts.corpus.coverage import PhoneTally, measure_coverage
from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.corpus.prompts import (
    PROMPT_LANGUAGES,
    count_frequencies,
    has_prompts,
    read_frequencies,
    read_prompts,
    tally_texts,
)
from myxtts.errors import UsageError
from myxtts.text.espeak import is_espeak_available
from myxtts.text.frontend import FrontEnd
from myxtts.text.script import wrong_script

both = pytest.mark.parametrize("language", PROMPT_LANGUAGES)


@both
def test_sentences_are_many_distinct_and_short_enough_to_read(language: str) -> None:
    prompts = read_prompts(language)
    assert len(prompts) >= 300
    assert len(set(prompts)) == len(prompts)
    for prompt in prompts:
        assert 4 <= len(prompt.split()) <= 14, prompt
        assert prompt == " ".join(prompt.split()), prompt
        assert prompt[-1] in ".?!؟", prompt
        assert wrong_script(prompt, language) is None, prompt


def test_persian_is_spelt_with_persian_letters_and_half_spaces() -> None:
    for prompt in read_prompts("fa"):
        assert not set(prompt) & set("يكىة0123456789"), prompt
        words = prompt.split()
        assert not {"می", "نمی", "ها", "های"} & {word.strip("،.؟!") for word in words}, prompt


@pytest.mark.skipif(not is_espeak_available(), reason="needs the extra espeak")
@both
def test_list_has_the_sounds_and_pairs_of_everyday_sentences(language: str) -> None:
    frontend = FrontEnd.create("phonemes")
    grammar, generator = load_grammar(language), np.random.default_rng(5)
    everyday = [compose_sentence(grammar, generator) for _ in range(150)]
    found = sum(tally_texts(list(read_prompts(language)), language, frontend), PhoneTally())
    coverage = measure_coverage(language, found, sum(tally_texts(everyday, language, frontend), PhoneTally()))
    assert coverage.missing_phones == []
    assert coverage.pair_share >= 0.99, coverage


def test_language_without_a_list_is_refused_with_those_that_have_one() -> None:
    assert has_prompts("English")
    assert read_prompts("en-gb") == read_prompts("en")
    assert not has_prompts("de")
    with pytest.raises(UsageError, match=r"'de'.*Lists exist for en, fa"):
        read_prompts("de")


@pytest.mark.skipif(not is_espeak_available(), reason="needs the extra espeak")
def test_frequencies_are_those_of_the_projects_sentences() -> None:
    assert count_frequencies("en").to_json() == read_frequencies("en").to_json(), "run make docs"
