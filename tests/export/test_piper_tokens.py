"""Phoneme ids of Piper become the tokens that the front end makes of the same IPA."""

from __future__ import annotations

import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.export.piper_tokens import PhonemeReader, make_id_map
from myxtts.text.inventory import CONSONANTS, MODIFIER_LETTERS, STANDARD_INVENTORY, TONE_FIGURES, VOWELS
from myxtts.text.tokenizer import PhonemeTokenizer

TOKENIZER = PhonemeTokenizer()
ID_MAP = make_id_map(STANDARD_INVENTORY)
READ = tf.function(PhonemeReader(STANDARD_INVENTORY), input_signature=[tf.TensorSpec([None], tf.int64)])


def spell(ipa: str) -> list[int]:
    """Ids as Piper sends them: padding between them, signs that it does not know left out."""
    ids = [*ID_MAP["^"], *ID_MAP["_"]]
    for sign in unicodedata.normalize("NFD", ipa):
        ids += [*ID_MAP.get(sign, []), *ID_MAP["_"]]
    return [*ids, *ID_MAP["$"]]


def read(ids: list[int]) -> list[int]:
    tokens: list[int] = READ(tf.constant(ids, tf.int64)).numpy().tolist()
    return tokens


@pytest.mark.parametrize(
    "ipa",
    [
        "",
        "həlˈoʊ wˈɜːld.",
        "ðə kwˈɪk bɹˈaʊn fˈɑːks, dʒˈʌmps: ˌoʊvɚ ðə lˈeɪzi dˈɑːɡ!",
        "salˈɒːm,  dust-e mˈan؟",
        "ɪç ˈɪç çʊ",
        "tʰˤa ʦɑ̃ː n̩ˈs ˈtn̩ ˌˈa",
        " ˈ , . ˈk ˈs!! !",
        "a\u0361b 1 2",
    ],
)
def test_ids_of_piper_become_the_tokens_of_the_front_end(ipa: str) -> None:
    assert read(spell(ipa)) == TOKENIZER.encode(ipa).ids.tolist()


SIGNS = st.sampled_from([*VOWELS[:12], *CONSONANTS[:12], "ç", "ˈ", "ˌ", " ", " ", ".", ",", "?"])
PHONES = st.tuples(SIGNS, st.sampled_from(["", "", "", *MODIFIER_LETTERS, *TONE_FIGURES])).map(
    lambda pair: pair[0] + (pair[1] if pair[0].isalpha() and pair[0] not in "ˈˌ" else "")
)


@given(st.lists(PHONES, max_size=30).map("".join))
@settings(deadline=None, max_examples=150)
def test_any_string_of_phones_becomes_the_same_tokens(ipa: str) -> None:
    ipa = ipa.replace("..", ".")
    assert read(spell(ipa)) == TOKENIZER.encode(ipa).ids.tolist()


def test_ids_that_nobody_gave_are_left_out() -> None:
    assert read([99_999, -3, *spell("a")]) == TOKENIZER.encode("a").ids.tolist()
