"""Tokenizers: text to ids and back, and plain JSON that is checked when it is read."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.text.inventory import END, PAD, SPECIALS, START
from myxtts.text.tokenizer import CharacterTokenizer, PhonemeTokenizer, Tokenizer, load_tokenizer

TEXTS = ["Hello, World!", "می‌روم به خانه؛ چرا؟", "नमस्ते दुनिया", "Ça va, l'été?", "你好。", "½ и ещё"]


def make_tokenizers() -> list[Tokenizer]:
    return [PhonemeTokenizer(), CharacterTokenizer.fit(TEXTS)]


@pytest.mark.parametrize("tokenizer", make_tokenizers(), ids=lambda tokenizer: tokenizer.kind)
class TestEveryTokenizer:
    def test_reload_from_json_gives_the_same_ids(self, tokenizer: Tokenizer) -> None:
        again = load_tokenizer(json.loads(json.dumps(tokenizer.to_json())))
        assert again.factor_sizes == tokenizer.factor_sizes
        for text in [*TEXTS, "həlˈoʊ, wˈɜːld?"]:
            assert np.array_equal(again.encode(text).ids, tokenizer.encode(text).ids)
            assert again.encode(text).unknown == tokenizer.encode(text).unknown

    def test_text_stands_between_start_and_end_and_nothing_is_padding(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("a e").ids
        assert ids.dtype == np.int32
        assert (ids > 0).all()
        assert tokenizer.encode("").ids.tolist() == [ids[0], ids[-1]]
        assert ids.max() < np.prod(tokenizer.factor_sizes)

    def test_padding_does_not_change_what_is_decoded(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("a e").ids
        assert tokenizer.decode(np.pad(ids, (0, 5))) == tokenizer.decode(ids) == "a e"

    @pytest.mark.parametrize(
        "damage",
        [
            {"version": 2},
            {"version": "1"},
            {"version": True},
            {"version": None},
            {"kind": "words"},
            {"kind": ["phonemes"]},
            {"symbols": None, "characters": None},
            {"symbols": "abc", "characters": "abc"},
            {"symbols": [1, 2], "characters": [1, 2]},
            {"symbols": ["a", "a"], "characters": ["a", "a"]},
            {"symbols": [["a"]], "characters": [["a"]]},
            {"symbols": ["x" * 1000], "characters": ["x" * 1000]},
            {"symbols": [chr(c) for c in range(0x20000, 0x20000 + 100_001)]} | {"characters": ["a"] * 100_001},
        ],
    )
    def test_damaged_json_is_refused(self, tokenizer: Tokenizer, damage: dict[str, Any]) -> None:
        data = copy.deepcopy(tokenizer.to_json()) | damage
        with pytest.raises(DataError, match="tokenizer cannot be used"):
            load_tokenizer(data)

    def test_missing_fields_are_refused(self, tokenizer: Tokenizer) -> None:
        for field in tokenizer.to_json():
            data = tokenizer.to_json()
            del data[field]
            with pytest.raises(DataError):
                load_tokenizer(data)


@pytest.mark.parametrize("data", [None, [], "text", 5, {}])
def test_json_that_is_no_tokenizer_is_refused(data: object) -> None:
    with pytest.raises(DataError):
        load_tokenizer(data)


@pytest.mark.parametrize(
    ("symbols", "modifiers"),
    [
        (["a", *SPECIALS], ["", "ː"]),
        ([*SPECIALS, "a"], ["ː", ""]),
        ([*SPECIALS, ""], ["", "ː"]),
        ([*SPECIALS, *map(chr, range(0x4E00, 0x4E00 + 20_000))], ["", *map(chr, range(0x4E00, 0x4E00 + 20_000))]),
    ],
)
def test_phoneme_tables_that_cannot_be_right_are_refused(symbols: list[str], modifiers: list[str]) -> None:
    data = {"kind": "phonemes", "version": 1, "symbols": symbols, "modifiers": modifiers}
    with pytest.raises(DataError):
        PhonemeTokenizer.from_json(data)


def test_tables_of_an_older_model_keep_their_ids() -> None:
    old = PhonemeTokenizer().to_json()
    old["symbols"] = [symbol for symbol in old["symbols"] if symbol != "ʘ"]
    tokenizer = load_tokenizer(old)
    assert tokenizer.encode("ʘa").unknown == ("ʘ",)
    assert tokenizer.factor_sizes[0] == PhonemeTokenizer().factor_sizes[0] - 1


class TestCharacters:
    def test_same_ids_whatever_the_order_of_the_texts(self) -> None:
        forward, backward = CharacterTokenizer.fit(TEXTS), CharacterTokenizer.fit(reversed(TEXTS))
        assert forward.characters == backward.characters == tuple(sorted(forward.characters))

    def test_letters_marks_figures_and_punctuation_of_any_script_are_kept(self) -> None:
        tokenizer = CharacterTokenizer.fit(TEXTS)
        for text in TEXTS:
            assert tokenizer.encode(text).unknown == ()
            assert tokenizer.decode(tokenizer.encode(text).ids) == text.lower()

    @pytest.mark.parametrize("character", ["😀", "©", "\x07", "\ue000", "\ud800", "\u0378", "\u202e", "\ufeff"])
    def test_what_is_no_writing_is_never_learnt(self, character: str) -> None:
        tokenizer = CharacterTokenizer.fit([f"a{character}b"])
        encoding = tokenizer.encode(f"a{character}b{character}")
        assert tokenizer.characters == ("a", "b")
        assert encoding.unknown == (character, character)
        assert tokenizer.decode(encoding.ids) == "ab"

    def test_characters_that_were_not_learnt_are_named(self) -> None:
        assert CharacterTokenizer.fit(["abc"]).encode("abxcx").unknown == ("x", "x")

    def test_spaces_are_one_token_inside_and_none_at_the_ends(self) -> None:
        tokenizer = CharacterTokenizer.fit(["ab"])
        assert tokenizer.decode(tokenizer.encode("  a \t\n\u00a0 b ").ids) == "a b"
        assert len(tokenizer.encode("  a   b ").ids) == 5

    def test_special_names_are_not_learnt_as_tokens(self) -> None:
        tokenizer = CharacterTokenizer.fit([f"{PAD}{START}{END}"])
        assert tokenizer.encode(START).ids.tolist()[0] not in tokenizer.encode(START).ids.tolist()[1:-1]

    @pytest.mark.parametrize("characters", [["ab"], [""], [" "], ["😀"], ["\ud800"], ["<pad>"]])
    def test_json_with_characters_that_cannot_be_tokens_is_refused(self, characters: list[str]) -> None:
        with pytest.raises(DataError):
            CharacterTokenizer.from_json({"kind": "characters", "version": 1, "characters": characters})

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.text(max_size=20), max_size=4), st.text(max_size=40))
    def test_decoding_gives_the_canonical_text(self, corpus: list[str], text: str) -> None:
        tokenizer = CharacterTokenizer.fit(corpus)
        encoding = tokenizer.encode(text)
        canonical = tokenizer.canonicalize(text)
        assert tokenizer.decode(encoding.ids) == canonical
        assert tokenizer.canonicalize(canonical) == canonical
        assert tokenizer.encode(canonical).unknown == ()

    @settings(max_examples=100, deadline=None)
    @given(st.text(st.characters(categories=("L", "N", "P", "M")), max_size=40))
    def test_writing_that_was_learnt_loses_nothing(self, text: str) -> None:
        assert CharacterTokenizer.fit([text]).encode(text).unknown == ()
