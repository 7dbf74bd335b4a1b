"""The front end: choice of kind, batches, and one file that carries all of it to another process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.errors import ConfigError, DataError, StorageError
from myxtts.text import frontend as frontend_module
from myxtts.text.espeak import is_espeak_available
from myxtts.text.frontend import MAX_TEXT_LENGTH, FrontEnd
from myxtts.text.tokenizer import Encoding

needs_espeak = pytest.mark.skipif(not is_espeak_available(), reason="needs the extra espeak")

TEXTS = [("Hello there, Tomato!", "en"), ("سلام، حال شما چطور است؟", "fa"), ("Good night.", "en"), ("", "fa")]
KINDS = [pytest.param("phonemes", marks=needs_espeak), "characters"]


def write_lexicon(folder: Path) -> str:
    path = folder / "lexicon.tsv"
    path.write_text("tomato\ttəmˈɑːtoʊ\n", encoding="utf-8")
    return str(path)


def make(kind: Any, folder: Path) -> FrontEnd:
    return FrontEnd.create(kind, write_lexicon(folder) if kind == "phonemes" else None, TEXTS)


def as_lists(encodings: list[Encoding]) -> list[list[int]]:
    return [encoding.ids.tolist() for encoding in encodings]


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_batch_keeps_the_order_of_mixed_languages(self, kind: str, tmp_path: Path) -> None:
        frontend = make(kind, tmp_path)
        batch = frontend.encode_batch(*map(list, zip(*TEXTS, strict=True)))
        assert as_lists(batch) == as_lists([frontend.encode(text, language) for text, language in TEXTS])
        assert all(encoding.unknown == () for encoding in batch)

    def test_saved_front_end_gives_the_same_ids_in_another_process(self, kind: str, tmp_path: Path) -> None:
        frontend = make(kind, tmp_path)
        frontend.save(tmp_path / "frontend.json")
        program = (
            "import json, sys; from myxtts.text.frontend import FrontEnd;"
            "frontend = FrontEnd.load(sys.argv[1]); texts = json.loads(sys.argv[2]);"
            "ids = [frontend.encode(text, language).ids.tolist() for text, language in texts];"
            "print(json.dumps([ids, frontend.fingerprint(), frontend.kind]))"
        )
        (tmp_path / "lexicon.tsv").unlink(missing_ok=True)
        command = [sys.executable, "-c", program, str(tmp_path / "frontend.json"), json.dumps(TEXTS)]
        other = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        expected = [as_lists([frontend.encode(*pair) for pair in TEXTS]), frontend.fingerprint(), kind]
        assert json.loads(other.stdout) == expected

    def test_loading_and_saving_again_gives_the_same_bytes(self, kind: str, tmp_path: Path) -> None:
        make(kind, tmp_path).save(tmp_path / "a.json")
        FrontEnd.load(tmp_path / "a.json").save(tmp_path / "b.json")
        assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()

    def test_text_beyond_the_limit_is_refused(self, kind: str, tmp_path: Path) -> None:
        frontend = make(kind, tmp_path)
        for call in (frontend.encode, frontend.normalize):
            with pytest.raises(DataError, match="100,001 characters"):
                call("a" * (MAX_TEXT_LENGTH + 1), "en")

    def test_description_is_one_line_with_the_kind(self, kind: str, tmp_path: Path) -> None:
        description = make(kind, tmp_path).describe()
        assert description.startswith(kind)
        assert "\n" not in description

    def test_batch_of_unequal_lists_is_refused(self, kind: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="pair up"):
            make(kind, tmp_path).encode_batch(["a", "b"], ["en"])


@needs_espeak
class TestPhonemes:
    def test_auto_takes_phonemes_where_espeak_is_installed(self) -> None:
        frontend = FrontEnd.create("auto")
        assert frontend.kind == "phonemes"
        assert "installed" in frontend.reason

    def test_given_phonemes_are_taken_as_they_are(self) -> None:
        frontend = FrontEnd.create("phonemes")
        given = frontend.encode("whatever is written", "en", "həlˈoʊ")
        assert np.array_equal(given.ids, frontend.encode("hello", "en").ids)
        assert given.unknown == ()

    def test_unknown_signs_in_given_phonemes_are_named(self) -> None:
        assert FrontEnd.create("phonemes").encode("x", "en", "hə☃lo").unknown == ("☃",)

    def test_characters_that_are_not_said_are_named(self) -> None:
        assert "☃" in FrontEnd.create("phonemes").encode("hello ☃", "en").unknown

    def test_lexicon_changes_ids_and_fingerprint(self, tmp_path: Path) -> None:
        plain, other = FrontEnd.create("phonemes"), make("phonemes", tmp_path)
        assert not np.array_equal(plain.encode("tomato", "en").ids, other.encode("tomato", "en").ids)
        assert plain.fingerprint() != other.fingerprint()

    def test_fingerprint_follows_the_espeak_in_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        frontend = FrontEnd.create("phonemes")
        before = frontend.fingerprint()
        monkeypatch.setattr(frontend_module, "read_espeak_version", lambda: "9.9")
        assert frontend.fingerprint() != before

    def test_language_without_a_voice_is_explained(self) -> None:
        frontend = FrontEnd.create("phonemes")
        assert frontend.explain_unsupported("fa") == ""
        assert "'yo'" in frontend.explain_unsupported("yo")

    def test_texts_are_not_read(self) -> None:
        class Unread:
            def __iter__(self) -> Iterator[tuple[str, str]]:
                raise AssertionError("phonemes have no use for the texts")

        assert FrontEnd.create("phonemes", None, Unread()).kind == "phonemes"


class TestWithoutEspeak:
    def test_auto_takes_characters_and_says_why(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(frontend_module, "is_espeak_available", lambda: False)
        frontend = FrontEnd.create("auto", None, TEXTS)
        assert frontend.kind == "characters"
        assert "espeak-ng is not installed" in frontend.reason
        assert frontend.explain_unsupported("tlh") == ""

    def test_phonemes_say_what_is_missing(self) -> None:
        program = (
            "import sys; sys.modules['espeakng_loader'] = None;"
            "from myxtts.text.frontend import FrontEnd; from myxtts.errors import MissingExtraError\n"
            "try: FrontEnd.create('phonemes')\n"
            "except MissingExtraError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
        assert "pip install 'myxtts[espeak]'" in done.stdout


class TestCreate:
    def test_unknown_kind_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="'words'"):
            FrontEnd.create("words")  # type: ignore[arg-type]

    def test_characters_without_texts_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="none were given"):
            FrontEnd.create("characters")

    def test_lexicon_for_characters_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="lexicon"):
            FrontEnd.create("characters", write_lexicon(tmp_path), TEXTS)

    def test_characters_do_not_depend_on_the_order_of_texts(self) -> None:
        forward, backward = (FrontEnd.create("characters", None, texts) for texts in (TEXTS, TEXTS[::-1]))
        assert forward.fingerprint() == backward.fingerprint()

    def test_failed_save_leaves_the_old_file(self, tmp_path: Path) -> None:
        frontend = FrontEnd.create("characters", None, TEXTS)
        (tmp_path / "a-file").write_text("")
        with pytest.raises(StorageError):
            frontend.save(tmp_path / "a-file" / "frontend.json")


HOSTILE_FILES: list[bytes] = [
    b"",
    b"not json",
    b"[]",
    b"null",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"format": "other"}',
    b'{"format": "myxtts-frontend"}',
    b'{"format": "myxtts-frontend", "version": 2}',
    b'{"format": "myxtts-frontend", "version": true}',
    b'{"format": "myxtts-frontend", "version": 1}',
    b'{"format": "myxtts-frontend", "version": 1, "tokenizer": []}',
]


class TestLoad:
    @pytest.mark.parametrize("content", HOSTILE_FILES)
    def test_damaged_file_is_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "frontend.json"
        path.write_bytes(content)
        with pytest.raises(DataError):
            FrontEnd.load(path)

    @pytest.mark.parametrize(
        "damage",
        [
            {"reason": 5},
            {"reason": "x" * 5000},
            {"espeak_version": ["1"]},
            {"lexicon": []},
            {"lexicon": {"a": 1}},
            {"lexicon": {"a": "§"}},
            {"tokenizer": {"kind": "characters", "version": 1, "characters": ["a", "a"]}},
        ],
    )
    def test_field_of_the_wrong_kind_is_refused(self, tmp_path: Path, damage: dict[str, Any]) -> None:
        path = tmp_path / "frontend.json"
        FrontEnd.create("characters", None, TEXTS).save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | damage))
        with pytest.raises(DataError):
            FrontEnd.load(path)

    def test_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="nowhere"):
            FrontEnd.load(tmp_path / "nowhere.json")


def test_a_word_of_the_lexicon_with_a_full_stop_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("z.B.\ttsˈʊm\nDr.\tdˈɔk\nbzgl.\tbətsˈyːk\nno.\tnˈuːm\n", encoding="utf-8")
    frontend = FrontEnd.create("phonemes", str(path))

    def say(text: str, language: str) -> str:
        return frontend.tokenizer.decode(frontend.encode(text, language).ids)

    assert say("Das ist z.B. rot.", "de") == "das ɪst tsˈʊm rˈoːt."
    assert say("Dr. Müller kommt.", "de").startswith("dˈɔk m")
    assert say("Ich frage dr.", "de").endswith(" dˈɔk.")
    assert say("bzgl. 3 km", "de").startswith("bətsˈyːk dɾˈaɪ")
    assert say("Dr. Smith has no. 5", "en").startswith("dˈɔk smˈɪθ hɐz nˈuːm fˈaɪv")
    assert "nˈuːm" not in say("Oh no, he has no time.", "en")
