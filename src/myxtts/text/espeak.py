"""espeak-ng through ctypes: grapheme-to-phoneme conversion (text to IPA) and formant synthesis (text to samples).

The library keeps its state in global variables and is not safe for threads, so there is one instance per process behind
a lock. It is GPL-3 and comes with the optional extra `espeak`, which is imported when first used.

`clean_ipa` and `restore_tones` turn the printed phonemes into IPA: they remove language tags, replace the internal
mnemonics that espeak prints where a voice defines no IPA for a phone, and restore tones of several figures. Their
tables come from listing what all voices print. `espeak_worker` runs `text_to_ipa` in a process of its own.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from myxtts.errors import ConfigError, DataError, MissingExtraError
from myxtts.text.inventory import VOWELS
from myxtts.types import Waveform

SEPARATOR = "|"
"""Printed between phones where a mode asks for it (bits 8 to 23 of the mode). It occurs in no phone's name."""

# Constants of speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_CHARS_UTF8 = 1
_POSITION_CHARACTER = 1
_PHONEMES_MNEMONIC = 0
_PHONEMES_IPA = 2
_RATE, _VOLUME, _PITCH, _RANGE = 1, 2, 3, 4
_FULL_VOLUME = 100
_RANDOM_SEED = 1
"""Any fixed value: the same arguments shall give the same samples."""

_SynthCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class _VoiceRecord(ctypes.Structure):
    """espeak_VOICE of speak_lib.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of espeak-ng. `languages` are the codes it serves, each with a rank; the lowest is the best fit."""

    name: str
    title: str
    languages: tuple[tuple[str, int], ...]


class _Library:
    """One loaded and initialised espeak-ng. Not safe for threads."""

    def __init__(self) -> None:
        library_path, data_path = _find_files()
        self._library = ctypes.CDLL(library_path)
        self._declare_functions()
        # Where the folder itself is given, espeak takes it; it would also take the folder's parent.
        rate = self._library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, os.fsencode(data_path), _DO_NOT_EXIT)
        if rate <= 0:
            raise MissingExtraError(
                f"espeak-ng could not read its data in {data_path}.",
                next_step="Install it again: pip install --force-reinstall 'myxtts[espeak]'.",
            )
        self.rate_hz = int(rate)
        self._voice = ""
        self._sound: list[bytes] = []
        # The library keeps the pointer: the object must live as long as it does.
        self._callback = _SynthCallback(self._collect)
        self._library.espeak_SetSynthCallback(self._callback)

    def _declare_functions(self) -> None:
        """Argument and result types of the C functions that are called."""
        library, text = self._library, ctypes.c_char_p
        library.espeak_Initialize.argtypes = (ctypes.c_int, ctypes.c_int, text, ctypes.c_int)
        library.espeak_Info.restype = text
        library.espeak_Info.argtypes = (ctypes.c_void_p,)
        library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_VoiceRecord))
        library.espeak_ListVoices.argtypes = (ctypes.c_void_p,)
        library.espeak_SetVoiceByName.argtypes = (text,)
        library.espeak_SetParameter.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
        library.espeak_TextToPhonemes.restype = text
        library.espeak_TextToPhonemes.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int)
        library.espeak_Synth.argtypes = (
            *(text, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_uint),
            *(ctypes.c_void_p, ctypes.c_void_p),
        )
        library.espeak_ng_SetRandSeed.argtypes = (ctypes.c_long,)

    def close(self, *, terminate: bool) -> None:
        """Unloads the library, so that loading it again gives it new global variables.

        After a fork `terminate` must be false: another thread of the parent may have been inside the library.
        """
        if terminate:
            self._library.espeak_Terminate()
        system = ctypes.CDLL(None)
        system.dlclose.argtypes = (ctypes.c_void_p,)
        system.dlclose(self._library._handle)

    def read_version(self) -> str:
        return str(self._library.espeak_Info(None).decode("ascii"))

    def list_voices(self) -> list[Voice]:
        """Reads the library's array of voices, which ends in a null pointer. `name` is the last part of the path."""
        records = self._library.espeak_ListVoices(None)
        voices = []
        index = 0
        while records[index]:
            record = records[index].contents
            name = record.identifier.decode("utf-8").rpartition("/")[2].lower()
            voices.append(Voice(name, record.name.decode("utf-8"), _read_languages(record.languages)))
            index += 1
        return voices

    def select_voice(self, voice: str) -> None:
        """Loads a voice unless it is the present one; raises ConfigError where there is none of this name."""
        if voice == self._voice:
            return
        if self._library.espeak_SetVoiceByName(voice.encode("utf-8")) != 0:
            self._voice = ""
            raise ConfigError(f"espeak-ng has no voice {voice!r}.", next_step="Choose one that list_voices() names.")
        self._voice = voice

    def print_phonemes(self, text: str, mode: int) -> list[str]:
        """Returns the phonemes of each clause as espeak prints them; `mode` is the phoneme mode of speak_lib.h.

        The library moves `pointer` behind the clause that it has read, and sets it to null at the end of the text.
        """
        buffer = ctypes.create_string_buffer(text.replace("\0", " ").encode("utf-8", "replace"))
        pointer = ctypes.c_void_p(ctypes.addressof(buffer))
        clauses = []
        while pointer.value:
            printed = self._library.espeak_TextToPhonemes(ctypes.byref(pointer), _CHARS_UTF8, mode) or b""
            clauses.append(printed.decode("utf-8", "replace"))
        return clauses

    def speak(self, text: str, parameters: Sequence[tuple[int, int]]) -> bytes:
        """Synthesises a text; returns 16-bit mono samples, collected from the callback of the library."""
        for parameter, value in parameters:
            self._library.espeak_SetParameter(parameter, value, 0)
        # Breath noise comes from espeak's own generator and from the C library's.
        self._library.espeak_ng_SetRandSeed(_RANDOM_SEED)
        ctypes.CDLL(None).srand(_RANDOM_SEED)
        self._sound.clear()
        encoded = text.replace("\0", " ").encode("utf-8", "replace")
        status = self._library.espeak_Synth(
            encoded, len(encoded) + 1, 0, _POSITION_CHARACTER, 0, _CHARS_UTF8, None, None
        )
        if status != 0:
            raise DataError(
                f"espeak-ng could not speak {text[:60]!r} (status {status}).", next_step="Leave this sentence out."
            )
        return b"".join(self._sound)

    def _collect(self, samples: ctypes._Pointer[ctypes.c_short], num_samples: int, _events: int | None) -> int:
        """The synthesis callback: copies a block of samples. Returning 0 tells the library to go on."""
        if samples and num_samples > 0:
            self._sound.append(ctypes.string_at(samples, 2 * num_samples))
        return 0


_lock = threading.RLock()
_library: _Library | None = None
_was_forked = False


def _notice_fork() -> None:
    # Another thread may have held the lock, or been inside the library, when the process was forked.
    global _lock, _was_forked  # noqa: PLW0603 - the library is one per process, and so is this state
    _lock = threading.RLock()
    _was_forked = _library is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notice_fork)


@contextmanager
def _use_library(*, afresh: bool = False) -> Iterator[_Library]:
    """Yields the library under its lock; loads it first, and again after a fork or when asked `afresh`."""
    global _library, _was_forked  # noqa: PLW0603 - see _notice_fork
    with _lock:
        if _library is not None and (afresh or _was_forked):
            _library.close(terminate=not _was_forked)
            _library = None
        _was_forked = False
        if _library is None:
            _library = _Library()
        yield _library


def _find_files() -> tuple[str, str]:
    """Paths of the shared library and its data; raises MissingExtraError without the extra."""
    if not is_espeak_available():
        raise MissingExtraError(
            "Phonemes need espeak-ng, which is not installed.",
            next_step="Run: pip install 'myxtts[espeak]', or set text_frontend: characters.",
        )
    import espeakng_loader

    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path()


def _read_languages(address: int) -> tuple[tuple[str, int], ...]:
    """Parses a C list of language codes: a rank in one byte, then a zero-terminated code; a rank of zero ends it."""
    languages = []
    while rank := ctypes.string_at(address, 1)[0]:
        code = ctypes.string_at(address + 1)
        languages.append((code.decode("utf-8").lower(), rank))
        address += len(code) + 2
    return tuple(languages)


def is_espeak_available() -> bool:
    """Whether the extra is installed; nothing is loaded."""
    spec = find_spec("espeakng_loader")
    return bool(spec and spec.origin and list(Path(spec.origin).parent.glob("*espeak-ng.*")))


def read_espeak_version() -> str:
    with _use_library() as library:
        return library.read_version()


def list_voices() -> list[Voice]:
    """All voices of espeak-ng, one per language or accent."""
    with _use_library() as library:
        return library.list_voices()


def text_to_ipa(text: str, voice: str) -> list[str]:
    """Returns the clauses of a text in IPA as espeak prints it, but with whole tones; `clean_ipa` does the rest.

    Tonal voices are printed twice, as `restore_tones` needs.
    """
    with _use_library() as library:
        library.select_voice(voice)
        if voice.partition("-")[0] not in TONAL_LANGUAGES:
            return library.print_phonemes(text, _PHONEMES_IPA)
        separator = ord(SEPARATOR) << 8
        clauses = library.print_phonemes(text, _PHONEMES_IPA | separator)
        names = library.print_phonemes(text, _PHONEMES_MNEMONIC | separator)
        return [restore_tones(*pair, voice) for pair in zip(clauses, names, strict=True)]


def synthesize(
    text: str, voice: str, *, variant: str = "", rate_wpm: int = 175, pitch: int = 50, pitch_range: int = 50
) -> Waveform:
    """Synthesises a text with an espeak-ng voice; the samples are quantised to 16 bits. Same arguments, same samples.

    `variant` is a speaker of espeak's voices/!v, such as f2; `pitch` and `pitch_range` are on espeak's own scales.
    The library carries the phase of its slow pitch variation from clip to clip and offers no way to set it, so each
    clip is made by a library that was just loaded; that takes a few milliseconds.
    """
    parameters = ((_RATE, rate_wpm), (_VOLUME, _FULL_VOLUME), (_PITCH, pitch), (_RANGE, pitch_range))
    with _use_library(afresh=True) as library:
        library.select_voice(f"{voice}+{variant}" if variant else voice)
        sound = np.frombuffer(library.speak(text, parameters), np.int16)
        return Waveform((sound / 32768.0).astype(np.float32), library.rate_hz)


TONAL_LANGUAGES = frozenset({"cmn", "yue", "hak", "vi", "th", "shn", "my"})
"""Voices whose mnemonics end in the number of a tone."""

_LANGUAGE_TAG = re.compile(r"\(([a-zA-Z][a-zA-Z0-9]{1,8}(?:-[a-zA-Z0-9]+)*)\)")
"""Printed where espeak switches voices for a foreign word: (en) in front, the own language behind."""
_SUPERSCRIPTS = str.maketrans("123456789", "¹²³⁴⁵⁶⁷⁸⁹")

# Mnemonics in the output of any voice.
_EVERYWHERE: Mapping[str, str] = {
    **{f"{letter}.": ipa for letter, ipa in zip("tdnlrszi", "ʈɖɳɭɽʂʐɨ", strict=True)},
    **dict(zip("SZNXKAΦ?:", "ʃʒŋχɬɑɸʔː", strict=True)),
} | {'u"': "ʉ", "ʰχ": "χ", "_h": "ʰ", "#": "\u0325", "[": "\u032a"}
# Mnemonics with another meaning in one language; applied to words in the voice's own language, before the table above.
_BY_LANGUAGE: Mapping[str, Mapping[str, str]] = {
    "cmn": {"o-": "ɤ", "nɡ": "ŋ", "h": "ʰ"},
    "yue": {"nɡ": "ŋ"},
    "hak": {"o-": "ɤ"},
    "ko": {"p-": "p\u0348", "t-": "t\u0348", "k-": "k\u0348", "q-": "k\u0348", "d-": "t\u0348", "s-": "s\u0348"},
    "ky": {"l-": "ɫ"},
    "ar": {"a.": "aˤ", "i.": "iˤ", "u.": "uˤ"},
}
# After a consonant ^ means palatalised and ` ejective; after a vowel they mean nothing. The signs of _VARIANT_SIGNS
# tell allophones apart that are the same in IPA.
_PALATAL_OR_EJECTIVE = re.compile(rf"(?P<vowel>[{VOWELS}][\u0300-\u036fː]*)?(?P<mark>[\^`])")
_VARIANT_SIGNS = re.compile(r"[-+_.\"~0-9]")
# At the start of a word a glide is a phone of its own. A length mark at the start and a stress mark at the end of a
# word belong to no phone and are dropped.
_FIRST_GLIDE = re.compile(r"(?<!\S)([ˈˌ]?)([ʲʰʷ])")
_GLIDE_LETTERS = {"ʲ": "j", "ʰ": "h", "ʷ": "w"}
_BORNE_BY_NOTHING = re.compile(r"(?<!\S)ː+|[ˈˌ]+(?=[ʲː]*(?:\s|$))")


def _compile(table: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(key) for key in sorted(table, key=len, reverse=True)))


_EVERYWHERE_PATTERN = _compile(_EVERYWHERE)
_LANGUAGE_PATTERNS = {language: _compile(table) for language, table in _BY_LANGUAGE.items()}


def clean_ipa(printed: str, voice: str) -> str:
    """Converts the printed phonemes of `voice` to IPA: stress marks, letters and modifiers, single spaces."""
    own_language = voice.partition("-")[0]
    pattern = _LANGUAGE_PATTERNS.get(own_language)
    parts = []
    for language, part in _split_by_language(printed, own_language):
        if pattern and language == own_language:
            parts.append(pattern.sub(lambda match: _BY_LANGUAGE[own_language][match[0]], part))
        else:
            parts.append(part)
    ipa = _EVERYWHERE_PATTERN.sub(lambda match: _EVERYWHERE[match[0]], "".join(parts))
    ipa = _PALATAL_OR_EJECTIVE.sub(_resolve_mark, ipa)
    ipa = _FIRST_GLIDE.sub(lambda match: match[1] + _GLIDE_LETTERS[match[2]], _VARIANT_SIGNS.sub("", ipa))
    return " ".join(_BORNE_BY_NOTHING.sub("", ipa).split())


def restore_tones(printed_ipa: str, printed_mnemonics: str, voice: str) -> str:
    """Returns the printed IPA with whole tones as superscript figures, read from the mnemonics of the same text.

    In IPA espeak prints only the first figure of a tone, which makes one of two tones of Mandarin, and prints 3 as the
    vowel ɜ. Both texts were printed with separators, so that phones correspond one to one.
    """
    ipa_words, mnemonic_words = printed_ipa.split(), printed_mnemonics.split()
    if len(ipa_words) != len(mnemonic_words):
        mnemonic_words = [""] * len(ipa_words)
    own_language = language = voice.partition("-")[0]
    words = []
    for ipa_word, mnemonic_word in zip(ipa_words, mnemonic_words, strict=True):
        phones = [phone for phone in ipa_word.split(SEPARATOR) if phone]
        names: list[str] = [name for name in mnemonic_word.split(SEPARATOR) if name and name[0] not in "_;"]
        if len(names) != len(phones):
            names = phones
        for index, phone in enumerate(phones):
            if tag := _LANGUAGE_TAG.fullmatch(phone):
                language = tag[1].partition("-")[0]
            elif language == own_language:
                phones[index] = _put_tone(phone, names[index])
        words.append("".join(phones))
    return " ".join(words)


def _split_by_language(printed: str, own_language: str) -> list[tuple[str, str]]:
    """Splits printed phones at language tags; returns pairs of a language code and the phones printed in it."""
    pieces = _LANGUAGE_TAG.split(printed)
    languages = [own_language, *(tag.partition("-")[0] for tag in pieces[1::2])]
    return list(zip(languages, pieces[::2], strict=True))


def _put_tone(phone: str, name: str) -> str:
    """Returns the phone with the tone of its mnemonic `name` as superscript figures."""
    tone = re.search(r"(?<=[^\d'ˈˌ,])\d+$", name)
    if tone is None:
        # No mnemonic: the printed IPA still ends in the first figure of the tone, with ɜ for 3.
        tone = re.search(r"(?<=[^\d'ˈˌ,])[\dɜ]$", name)
    if tone is None:
        return phone
    return re.sub(r"[\dɜ]$", "", phone) + tone[0].replace("ɜ", "3").translate(_SUPERSCRIPTS)


def _resolve_mark(match: re.Match[str]) -> str:
    if match["vowel"]:
        return match["vowel"]
    return {"^": "ʲ", "`": "ʼ"}[match["mark"]]
