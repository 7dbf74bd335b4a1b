"""Text front end: normaliser, phonemiser and tokenizer as one frozen object, stored with every corpus and model.

`FrontEnd.encode_batch` runs the steps in order: `normalize` (text to spoken words), `phonemes` (words to IPA, left out
for character models), `tokenizer` (IPA or characters to ids). `frontend.json` holds all of it as plain JSON, the user's
lexicon included, so that a model needs no other file to read text as it did in training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from myxtts.config.languages import canonical_language
from myxtts.errors import ConfigError, DataError, name_place
from myxtts.storage.json_file import FileModel, VersionOne, read_json, write_json
from myxtts.text.directions import read_directions
from myxtts.text.espeak import is_espeak_available, read_espeak_version
from myxtts.text.explain import ExplainedWord, Explanation, explain_words
from myxtts.text.languages.fa import LATEST_RULES
from myxtts.text.lexicon import Lexicon, check_entries, load_lexicon
from myxtts.text.normalize import normalize_text
from myxtts.text.persian.homographs import MAX_TABLE_BYTES, Register, parse_homographs
from myxtts.text.persian.reading import Choice, PersianReading
from myxtts.text.phonemes import Phonemizer, find_voice
from myxtts.text.tokenizer import (
    CharacterTokenizer,
    Encoding,
    PhonemeTokenizer,
    Tokenizer,
    TokenizerKind,
    load_tokenizer,
)

MAX_TEXT_LENGTH = 100_000
"""Characters of one text that are read at once; `corpus.check` rejects longer transcripts."""
DEFINITION_VERSION = 2
"""Raised whenever the same text may give other ids than before: normaliser, clauses, IPA or packing."""
_MAX_FILE_BYTES = 200_000_000
"""Of frontend.json, which holds a lexicon of up to `lexicon.MAX_ENTRIES` words."""
DEFAULT_PERSIAN = PersianReading()
_ShortText = Annotated[str, Field(max_length=1000)]


class _PersianFile(FileModel):
    """How Persian is read, as frontend.json has it."""

    ezafe: bool
    speech: Register
    homographs: Annotated[str, Field(max_length=MAX_TABLE_BYTES)] = ""
    rules: Annotated[int, Field(ge=1, le=LATEST_RULES)] = 1


class _FrontEndFile(FileModel):
    """The content of frontend.json; without `persian` espeak-ng alone reads Persian."""

    format: Literal["myxtts-frontend"]
    version: VersionOne
    reason: _ShortText
    espeak_version: _ShortText | None = None
    lexicon: dict[str, str] | None = None
    tokenizer: dict[str, Any]
    persian: _PersianFile | None = None


@dataclass(frozen=True)
class FrontEnd:
    """Converts texts to token ids. Made by `create` (for a new corpus) or `load` (from frontend.json).

    `reason` says why this kind was chosen; `espeak_version` is that at creation; `persian` is None in front ends of
    older versions, which had no rules for Persian and still read as they did.
    """

    tokenizer: Tokenizer
    lexicon: Lexicon | None
    reason: str
    espeak_version: str | None
    persian: PersianReading | None
    _phonemizer: Phonemizer

    @classmethod
    def create(
        cls,
        kind: Literal["auto", "phonemes", "characters"] = "auto",
        lexicon_path: str | None = None,
        texts: Iterable[tuple[str, str]] | None = None,
        persian: PersianReading = DEFAULT_PERSIAN,
    ) -> Self:
        """Makes a front end of a kind; `auto` takes phonemes where espeak-ng is installed, else characters.

        `texts` are pairs of a text and its language. The character tokenizer is fitted on them; phonemes need none.
        """
        chosen, reason = _choose_kind(kind)
        lexicon = load_lexicon(Path(lexicon_path)) if lexicon_path else None
        if chosen == "phonemes":
            phonemizer = Phonemizer(lexicon, persian)
            return cls(PhonemeTokenizer(), lexicon, reason, read_espeak_version(), persian, phonemizer)
        if lexicon is not None:
            raise ConfigError(
                f"A lexicon gives pronunciations, which characters have no use for ({reason}).",
                next_step="Set text_frontend: phonemes, or leave out data.lexicon.",
            )
        if texts is None:
            raise ConfigError(
                "Characters are learnt from the texts of a corpus, and none were given.",
                next_step="Give the texts, or set text_frontend: phonemes.",
            )
        # `normalize` reads with the first rules where there are no settings for Persian.
        normalized = (normalize_text(_check_length(text), language, 1) for text, language in texts)
        tokenizer = CharacterTokenizer.fit(normalized)
        return cls(tokenizer, None, reason, None, None, Phonemizer())

    @property
    def kind(self) -> TokenizerKind:
        return self.tokenizer.kind

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return self.tokenizer.factor_sizes

    def describe(self) -> str:
        """Returns one line for the screen: kind, versions, lexicon, and why this kind was chosen."""
        details = [f"espeak-ng {self.espeak_version}"] if self.espeak_version else []
        if self.lexicon is not None:
            details.append(f"a lexicon of {len(self.lexicon.entries):,} words")
        details.append(self.reason)
        return f"{self.kind} ({', '.join(details)})"

    def explain_unsupported(self, language: str) -> str:
        """Returns why texts in a language cannot be encoded; empty if they can. Characters serve every language."""
        try:
            canonical_language(language)
            if self.kind == "phonemes":
                find_voice(language)
        except DataError as error:
            return str(error)
        return ""

    def normalize(self, text: str, language: str) -> str:
        """Returns the text as it is spoken; words of the lexicon that have full stops are kept for the phonemiser."""
        _check_length(text)
        rules = self.persian.rules if self.persian else 1
        return normalize_text(self.lexicon.protect_dots(text) if self.lexicon else text, language, rules)

    def encode(self, text: str, language: str, phonemes: str | None = None) -> Encoding:
        return self.encode_batch([text], [language], [phonemes])[0]

    def encode_batch(
        self, texts: Sequence[str], languages: Sequence[str], phonemes: Sequence[str | None] | None = None
    ) -> list[Encoding]:
        """Encodes texts, in order. IPA given in `phonemes` replaces normaliser and phonemiser for that text."""
        _check_pairs(texts, languages, phonemes)
        normalized = [self.normalize(*pair) for pair in zip(texts, languages, strict=True)]
        return self.encode_normalized(normalized, languages, phonemes)

    def encode_normalized(
        self, texts: Sequence[str], languages: Sequence[str], phonemes: Sequence[str | None] | None = None
    ) -> list[Encoding]:
        """As `encode_batch`, for texts that `normalize` returned. Phonemises the texts of each language together."""
        given = phonemes if phonemes is not None else [None] * len(texts)
        _check_pairs(texts, languages, given)
        if self.kind == "characters":
            return [self.tokenizer.encode(text) for text in texts]
        encodings: dict[int, Encoding] = {
            index: self.tokenizer.encode(_check_length(ipa)) for index, ipa in enumerate(given) if ipa
        }
        for language in dict.fromkeys(languages):
            places = [place for place, code in enumerate(languages) if code == language and place not in encodings]
            strings = self._phonemizer.phonemize([texts[place] for place in places], language) if places else []
            for place, string in zip(places, strings, strict=True):
                encoding = self.tokenizer.encode(string.text)
                encodings[place] = Encoding(encoding.ids, (*string.unknown, *encoding.unknown))
        return [encodings[index] for index in range(len(texts))]

    def phonemize_chosen(self, texts: Sequence[str], language: str, choices: Sequence[Sequence[Choice]]) -> list[str]:
        """Returns the IPA of normalised Persian texts, each with words whose reading is known."""
        return [string.text for string in self._phonemizer.phonemize(texts, language, choices)]

    def with_entries(self, entries: Mapping[str, str]) -> Self:
        """Returns this front end with more words in its lexicon, which come before those that it has.

        Raises ConfigError for a model of characters, which has no use for IPA.
        """
        if not entries:
            return self
        if self.kind == "characters":
            raise ConfigError(
                "The model reads characters, so it cannot be given pronunciations in IPA.",
                next_step="Write the word as it sounds, or train with text_frontend: phonemes.",
            )
        lexicon = Lexicon({**(self.lexicon.entries if self.lexicon else {}), **entries})
        return replace(self, lexicon=lexicon, _phonemizer=Phonemizer(lexicon, self.persian))

    def explain(self, text: str, language: str) -> Explanation:
        """Returns what is made of a text in synthesis, word by word; pauses are left out."""
        directed = read_directions(text)
        frontend = self.with_entries(directed.written)
        passages = [frontend.normalize(passage.text, language) for passage in directed.passages]
        normalized = " ".join(passage for passage in passages if passage)
        encoding = frontend.encode_normalized([normalized], [language])[0]
        words = frontend.explain_normalized(normalized, language)
        return Explanation(
            text,
            language,
            directed.restore(normalized),
            tuple(
                replace(word, word=directed.restore(word.word), source="written")
                if word.word in directed.written
                else word
                for word in words
            ),
            encoding.unknown,
            len(encoding.ids),
        )

    def explain_normalized(self, normalized: str, language: str) -> tuple[ExplainedWord, ...]:
        """Returns the words of a text that `normalize` returned, each with its IPA and where that comes from."""
        if self.kind == "phonemes":
            return explain_words(normalized, language, self._phonemizer, self.lexicon)
        return tuple(ExplainedWord(word, "", "characters") for word in normalized.split())

    def fingerprint(self) -> str:
        """Returns the SHA-256 of everything that shapes the ids, to tell whether stored ids are still valid.

        The version of the espeak-ng in use counts, not the one at creation; `reason` does not.
        """
        version = read_espeak_version() if self.espeak_version and is_espeak_available() else self.espeak_version
        shaping = self._to_json() | {"definition": DEFINITION_VERSION, "espeak_version": version, "reason": ""}
        canonical = json.dumps(shaping, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()

    def save(self, path: Path | str) -> None:
        """Writes the front end as one JSON file, whole or not at all."""
        write_json(Path(path), self._to_json())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Reads what `save` wrote; raises DataError where the file is missing, damaged or of another version."""
        try:
            found = read_json(Path(path), _FrontEndFile, what="The front end", max_bytes=_MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DataError(
                f"The front end {path} cannot be read: {error.strerror}.",
                next_step="Prepare the corpus again, or copy the file from where the model was trained.",
            ) from error
        lexicon = None if found.lexicon is None else check_entries(found.lexicon, str(path))
        with name_place(Path(path)):
            tokenizer = load_tokenizer(found.tokenizer)
        persian = None if found.persian is None else _restore_persian(found.persian, str(path))
        phonemizer = Phonemizer(lexicon, persian)
        return cls(tokenizer, lexicon, found.reason, found.espeak_version, persian, phonemizer)

    def _to_json(self) -> dict[str, Any]:
        """Returns the content of frontend.json."""
        persian = self.persian
        return {
            "format": "myxtts-frontend",
            "version": 1,
            "reason": self.reason,
            "espeak_version": self.espeak_version,
            "lexicon": None if self.lexicon is None else dict(self.lexicon.entries),
            "tokenizer": self.tokenizer.to_json(),
            **({} if persian is None else {"persian": _describe_persian(persian)}),
        }


def _describe_persian(persian: PersianReading) -> dict[str, Any]:
    settings: dict[str, Any] = {"ezafe": persian.ezafe, "speech": persian.register}
    if persian.homographs:
        settings["homographs"] = persian.homographs
    # Left out where it is 1, so that the fingerprint of older models stays what it was.
    return {**settings, "rules": persian.rules} if persian.rules > 1 else settings


def _restore_persian(found: _PersianFile, place: str) -> PersianReading:
    parse_homographs(found.homographs, place)
    return PersianReading(found.ezafe, found.speech, found.homographs, 2 if found.rules == LATEST_RULES else 1)


def _choose_kind(kind: str) -> tuple[TokenizerKind, str]:
    """Returns the kind of tokenizer and the reason in words; raises ConfigError for an unknown kind."""
    if kind == "phonemes":
        return "phonemes", "asked for"
    if kind == "characters":
        return "characters", "asked for"
    if kind != "auto":
        raise ConfigError(
            f"There is no text front end {kind!r}.", next_step="Set text_frontend to auto, phonemes or characters."
        )
    if is_espeak_available():
        return "phonemes", "espeak-ng is installed"
    return "characters", "espeak-ng is not installed; phonemes need pip install 'myxtts[espeak]'"


def _check_pairs(texts: Sequence[str], languages: Sequence[str], phonemes: Sequence[str | None] | None) -> None:
    num_phonemes = len(texts) if phonemes is None else len(phonemes)
    if not len(texts) == len(languages) == num_phonemes:
        raise ValueError(f"{len(texts)} texts, {len(languages)} languages and {num_phonemes} phonemes do not pair up")


def _check_length(text: str) -> str:
    if len(text) > MAX_TEXT_LENGTH:
        raise DataError(
            f"The text {text[:40]!r}… has {len(text):,} characters, more than the {MAX_TEXT_LENGTH:,} read at once.",
            next_step="Split it by sentence or paragraph.",
        )
    return text
