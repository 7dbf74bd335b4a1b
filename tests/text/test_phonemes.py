"""Text to IPA: punctuation, what is not said, the lexicon in context, and canonical IPA as factored ids."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.text import phonemes as phonemes_module
from myxtts.text.espeak import is_espeak_available
from myxtts.text.espeak_worker import EspeakWorker
from myxtts.text.inventory import MODIFIERS, PUNCTUATION, SPECIALS, STANDARD_INVENTORY, pack_factors, unpack_factors
from myxtts.text.ipa import parse_word
from myxtts.text.lexicon import Lexicon
from myxtts.text.phonemes import Phonemizer, split_clauses
from myxtts.text.tokenizer import PhonemeTokenizer

needs_espeak = pytest.mark.skipif(not is_espeak_available(), reason="needs the extra espeak")

# A few sentences in each language whose every sound must be in the inventory.
SENTENCES = {
    "en": "The measure of a judge's youth is whether she can laugh at things; enjoy the church bells, boys!",
    "fa": "ژاله و غزل در خانه‌ی قدیمی پدربزرگ چای می‌نوشند؛ معلم گفت: آیا صبح زود می‌آیید؟",
    "de": "Fünf böse Jungen möchten ein Ei und Würstchen, doch das Mädchen lacht über die Köche.",
    "fr": "Un bon vin blanc, peut-être ? Jeune fille, la campagne est à l'huile et au beurre noir.",
    "es": "El niño y la chica llueven jamón; ¿quién quiere agua, guitarra y un perro verde?",
    "it": "Gli gnocchi della zia sono buoni, perché c'è lo zucchero e la giraffa sciocca.",
    "pt": "O coração não tem pão; amanhã vão à praia com a mãe e o irmão alemão, não é?",
    "ru": "Съешь же ещё этих мягких французских булок, да выпей чаю!",
    "ar": "صباح الخير، كيف حالك؟ هذا طفل صغير يضحك قرب الظل والغرفة.",
    "tr": "Çocuk ağaçta öğle yemeği yiyor; şöyle bir göz atın, değil mi?",
    "hi": "मैं घर जा रहा हूँ, लड़का पढ़ता है और छोटी चिड़िया ऊँचा उड़ती है।",
    "zh": "你好，世界！我们今天去学校吃饭，是不是？四十四只石狮子，儿子很热。",
    "ja": "こんにちは、きょうはとてもいいてんきですね。しゃしんをとりましょう！",
}


@needs_espeak
class TestPhonemizer:
    def test_punctuation_stands_where_it_stood(self) -> None:
        (string,) = Phonemizer().phonemize(["Hello, world! Wait… who: me; no — you?"], "en")
        assert string.text == "həlˈoʊ, wˈɜːld! wˈeɪt… hˈuː: mˈiː; nˈoʊ— juː?"
        assert string.unknown == ()

    def test_persian_punctuation_becomes_the_same_tokens(self) -> None:
        (string,) = Phonemizer().phonemize(["سلام، خوبی؟ من خوبم؛ ممنون."], "fa")
        assert [mark for mark in string.text if mark in PUNCTUATION] == [",", "?", ";", "."]

    def test_foreign_words_leave_no_language_tags(self) -> None:
        (string,) = Phonemizer().phonemize(["یک computer خوب"], "fa")
        assert string.text == "jˈek kəmpjˈuːtə xˈuːb"

    def test_quotes_brackets_and_invisible_signs_are_left_out(self) -> None:
        plain, quoted = Phonemizer().phonemize(["hello big world", "“hello” (big) \u202b'world'\u202c"], "en")
        assert quoted == plain

    @pytest.mark.parametrize(
        ("text", "language", "unknown"),
        [
            ("Hi 😀 there 😀", "en", ("😀", "😀")),
            ("price © 5 ~", "en", ("©", "~")),
            ("東京は", "ja", ("東", "京")),
            ("hello 人", "en", ("人",)),
            ("سلام 人", "fa", ("人",)),
            ("a\x07b", "en", ("\x07",)),
            ("Guten € Tag", "cmn", ("€",)),
        ],
    )
    def test_what_is_not_said_is_named(self, text: str, language: str, unknown: tuple[str, ...]) -> None:
        (string,) = Phonemizer().phonemize([text], language)
        assert string.unknown == unknown

    def test_letters_that_cannot_be_read_are_not_replaced_by_their_names(self) -> None:
        (string,) = Phonemizer().phonemize(["hello 人 world"], "en")
        assert string.text == "həlˈoʊ wˈɜːld"

    @pytest.mark.parametrize("language", SENTENCES)
    def test_every_sound_of_the_language_is_in_the_inventory(self, language: str) -> None:
        (string,) = Phonemizer().phonemize([SENTENCES[language]], language)
        encoding = PhonemeTokenizer().encode(string.text)
        assert (string.unknown, encoding.unknown) == ((), ())
        assert len(encoding.ids) > 30

    def test_batch_gives_what_single_texts_give(self) -> None:
        texts = ["One, two.", "", "Three four!", "One, two."]
        assert Phonemizer().phonemize(texts, "en") == [Phonemizer().phonemize([text], "en")[0] for text in texts]

    def test_word_that_crashes_espeak_is_named_and_the_rest_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class CrashingWorker(EspeakWorker):
            def texts_to_ipa(self, texts: object, voice: str) -> list[list[str] | None]:
                assert isinstance(texts, list)
                return [None if "boom" in text else [f"{text}".replace(" ", "ə ")] for text in texts]

        monkeypatch.setattr(phonemes_module, "SHARED_WORKER", CrashingWorker())
        (string,) = Phonemizer().phonemize(["so boom, la la"], "en")
        assert string.text == "so, laə la"
        assert string.unknown == ("boom",)

    def test_unknown_language_is_an_error(self) -> None:
        with pytest.raises(DataError, match="'qqq'"):
            Phonemizer().phonemize(["a"], "qqq")

    def test_ten_thousand_sentences_take_seconds(self) -> None:
        words = "the old man saw three bright ships near a quiet island and wrote her name below it".split()
        generator = np.random.default_rng(0)
        texts = [" ".join(generator.choice(words, 9)) + f", {number} times." for number in range(10_000)]
        phonemizer, tokenizer = Phonemizer(), PhonemeTokenizer()
        start = time.process_time()
        strings = phonemizer.phonemize(texts, "en")
        encodings = [tokenizer.encode(string.text) for string in strings]
        assert time.process_time() - start < 30
        assert not any(string.unknown or encoding.unknown for string, encoding in zip(strings, encodings, strict=True))

    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=120))
    def test_any_text_gives_inventory_symbols_or_is_named(self, text: str) -> None:
        (string,) = Phonemizer().phonemize([text], "en")
        assert PhonemeTokenizer().encode(string.text).unknown == ()


@needs_espeak
class TestLexiconInContext:
    def test_word_is_replaced_in_any_case_at_word_borders(self) -> None:
        phonemizer = Phonemizer(Lexicon({"tomato": "təmˈɑːtoʊ"}))
        strings = phonemizer.phonemize(["Tomato, TOMATO tomatoes", "tomato"], "en")
        assert strings[0].text.startswith("təmˈɑːtoʊ, təmˈɑːtoʊ təmˈeɪ")
        assert strings[1].text == "təmˈɑːtoʊ"

    def test_neighbours_sound_as_they_do_in_the_sentence(self) -> None:
        phonemizer = Phonemizer(Lexicon({"ibex": "ˈaɪbɛks", "quoll": "kwˈɔl"}))
        (string,) = phonemizer.phonemize(["A quoll and the ibex"], "en")
        assert string.text == "ɐ kwˈɔl ænd ðɪ ˈaɪbɛks"

    def test_persian_word_is_replaced_among_persian_words(self) -> None:
        (string,) = Phonemizer(Lexicon({"سیب": "sˈiːb"})).phonemize(["یک سیب خوب"], "fa")
        assert string.text == "jˈek sˈiːb xˈuːb"

    def test_voice_that_spells_latin_words_still_uses_it(self) -> None:
        (string,) = Phonemizer(Lexicon({"りんご": "ɽˈiŋɡo"})).phonemize(["これは りんご です"], "ja")
        assert string.text.split()[1] == "ɽˈiŋɡo"

    def test_text_that_holds_the_stand_in_itself_is_still_right(self) -> None:
        (string,) = Phonemizer(Lexicon({"tomato": "təmˈɑːtoʊ"})).phonemize(["zizuvi eats tomato soup"], "en")
        assert string.text == "zˈɪzjuːvi ˈiːts təmˈɑːtoʊ sˈuːp"


class TestClauses:
    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("It is 3.5 at 10:30, isn't it?", ("It is 3.5 at 10:30", ",", "isn't it", "?")),
            ("see www.example.com", ("see www.example.com",)),
            ("the end.Start", ("the end", ".", "Start")),
            ("wait... what -- no - yes", ("wait", "…", "what", "—", "no", "—", "yes")),
            ("well-known -odd 'quoted'", ("well-known odd quoted",)),
            ("你好。世界！", ("你好", ".", "世界", "!")),
            ("What?! No!!!", ("What", "?", "!", "No", "!")),
            ("and/or 1/2", ("and or 1/2",)),
            ("", ()),
        ],
    )
    def test_text_is_cut_at_pauses(self, text: str, parts: tuple[str, ...]) -> None:
        assert split_clauses(text).parts == parts

    @settings(max_examples=200, deadline=None)
    @given(st.text(max_size=300))
    def test_clauses_hold_nothing_that_troubles_espeak(self, text: str) -> None:
        for part in split_clauses(text, max_clause_length=100).parts:
            assert part == part.strip()
            assert part in PUNCTUATION or len(part) <= 100
            assert all(len(word) <= 60 and word[0] not in "'-" for word in part.split())

    def test_long_words_and_clauses_are_cut(self) -> None:
        parts = split_clauses("a" * 1000 + " " + "word " * 1000, max_clause_length=200).parts
        assert max(len(part) for part in parts) <= 200
        assert sum(part.count("word") for part in parts) == 1000


IPA_SIGNS = "aeiouæɑəɚŋθðʃʒtdkɡˈˌːʲʰ\u0303\u0329\u0361.,?…— ⁵¹³"


class TestInventory:
    def test_tables_fit_in_the_ids_and_padding_is_zero(self) -> None:
        assert STANDARD_INVENTORY.symbols[: len(SPECIALS)] == SPECIALS
        assert int(np.prod(STANDARD_INVENTORY.factor_sizes)) < 2**31
        assert STANDARD_INVENTORY.pack(np.zeros((1, 4), np.int32)).tolist() == [0]

    @pytest.mark.parametrize("modifier", MODIFIERS[1:])
    def test_every_modifier_is_read_as_it_is_written(self, modifier: str) -> None:
        phones, unknown = parse_word(f"a{modifier}", STANDARD_INVENTORY)
        assert unknown == []
        assert STANDARD_INVENTORY.modifiers[phones[0][1]] == modifier

    @given(st.lists(st.tuples(*(st.integers(0, size - 1) for size in STANDARD_INVENTORY.factor_sizes)), max_size=20))
    def test_unpacking_undoes_packing(self, rows: list[tuple[int, ...]]) -> None:
        factors = np.asarray(rows, np.int32).reshape(-1, 4)
        ids = STANDARD_INVENTORY.pack(factors)
        assert ids.dtype == np.int32
        assert np.array_equal(STANDARD_INVENTORY.unpack(ids), factors)

    def test_packing_is_the_mixed_radix_number_of_the_factors(self) -> None:
        num_modifiers, num_stresses, num_positions = STANDARD_INVENTORY.factor_sizes[1:]
        expected = ((7 * num_modifiers + 5) * num_stresses + 2) * num_positions + 3
        assert STANDARD_INVENTORY.pack(np.asarray([[7, 5, 2, 3]])).tolist() == [expected]

    @pytest.mark.parametrize("wrong", [-1, 2**31 - 1])
    def test_id_of_another_front_end_is_refused(self, wrong: int) -> None:
        with pytest.raises(DataError, match=str(wrong)):
            unpack_factors(np.asarray([0, wrong]), STANDARD_INVENTORY.factor_sizes)

    def test_one_factor_is_the_id_itself(self) -> None:
        assert pack_factors(np.asarray([[3], [9]]), (10,)).tolist() == [3, 9]


class TestCanonicalIpa:
    @pytest.mark.parametrize(
        ("written", "canonical"),
        [
            ("həˈloʊ ˈwɜːld", "həlˈoʊ wˈɜːld"),
            ("t͡ʃiːz  ,  g", "tʃiːz, ɡ"),
            ("ã c\u0327 ç", "a\u0303 ç ç"),
            ("aː\u0303", "a\u0303ː"),
            ("ma˥˩", "ma⁵¹"),
            ("ˈˌa", "ˈa"),
            ("pˈst", "pˈst"),
            ("ˈbʌtn\u0329", "bˈʌtn\u0329"),
            ("a . . b", "a. b"),
            ("a... b", "a… b"),
            ("؟ a", "? a"),
            ("", ""),
        ],
    )
    def test_spelling_is_made_canonical(self, written: str, canonical: str) -> None:
        tokenizer = PhonemeTokenizer()
        assert tokenizer.decode(tokenizer.encode(written).ids) == canonical

    @settings(max_examples=300, deadline=None)
    @given(st.text(IPA_SIGNS, max_size=40))
    def test_canonical_ipa_is_read_and_written_unchanged(self, written: str) -> None:
        tokenizer = PhonemeTokenizer()
        encoding = tokenizer.encode(written)
        canonical = tokenizer.decode(encoding.ids)
        again = tokenizer.encode(canonical)
        assert again.unknown == ()
        assert np.array_equal(again.ids, encoding.ids)
        assert tokenizer.decode(again.ids) == canonical

    @settings(max_examples=200, deadline=None)
    @given(st.text(max_size=40))
    def test_any_text_can_be_encoded_and_what_is_lost_is_named(self, written: str) -> None:
        encoding = PhonemeTokenizer().encode(written)
        assert PhonemeTokenizer().encode(PhonemeTokenizer().decode(encoding.ids)).unknown == ()
        assert all(encoding.unknown)

    def test_unseen_combination_keeps_what_is_known_of_it(self) -> None:
        tokenizer = PhonemeTokenizer()
        encoding = tokenizer.encode("tʲ\u032aː")
        assert tokenizer.decode(encoding.ids) == "t\u032aʲ"
        assert encoding.unknown == ("tː",)

    def test_stress_and_position_are_factors(self) -> None:
        tokenizer = PhonemeTokenizer()
        factors = tokenizer.inventory.unpack(tokenizer.encode("həˈloʊ a").ids)
        assert factors[:, 2].tolist() == [0, 0, 0, 0, 2, 0, 0, 0, 0]
        assert factors[:, 3].tolist() == [0, 1, 0, 0, 0, 2, 0, 3, 0]

    @pytest.mark.parametrize(
        ("written", "unknown"), [("haˈ", ("ˈ",)), ("ːa", ("ː",)), ("a5b", ("5",)), ("ʘ我", ("我",))]
    )
    def test_what_the_inventory_lacks_is_named(self, written: str, unknown: tuple[str, ...]) -> None:
        assert PhonemeTokenizer().encode(written).unknown == unknown
