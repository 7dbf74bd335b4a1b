"""espeak-ng through ctypes: text to IPA, and text to sound.

The library keeps its state in global variables and is not safe for threads, so there is one instance per process behind
a lock. It is GPL-3 and comes with the optional extra `espeak`, which is imported when first used.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from myxtts.errors import ConfigError, DataError, MissingExtraError
from myxtts.text.espeak_output import SEPARATOR, is_tonal, restore_tones
from myxtts.types import Waveform

_AUDIO_OUTPUT_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_CHARS_UTF8 = 1
_POSITION_CHARACTER = 1
_PHONEMES_MNEMONIC = 0
_PHONEMES_IPA = 2
_RATE, _VOLUME, _PITCH, _RANGE = 1, 2, 3, 4
_RANDOM_SEED = 1

_SynthCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class _VoiceRecord(ctypes.Structure):
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
        """Unloads the library, so that loading it again gives it new global variables."""
        if terminate:
            self._library.espeak_Terminate()
        system = ctypes.CDLL(None)
        system.dlclose.argtypes = (ctypes.c_void_p,)
        system.dlclose(self._library._handle)

    def read_version(self) -> str:
        return str(self._library.espeak_Info(None).decode("ascii"))

    def list_voices(self) -> list[Voice]:
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
        if voice == self._voice:
            return
        if self._library.espeak_SetVoiceByName(voice.encode("utf-8")) != 0:
            self._voice = ""
            raise ConfigError(f"espeak-ng has no voice {voice!r}.", next_step="Choose one that list_voices() names.")
        self._voice = voice

    def print_phonemes(self, text: str, mode: int) -> list[str]:
        """What espeak prints for each clause of the text."""
        buffer = ctypes.create_string_buffer(text.replace("\0", " ").encode("utf-8", "replace"))
        pointer = ctypes.c_void_p(ctypes.addressof(buffer))
        clauses = []
        while pointer.value:
            printed = self._library.espeak_TextToPhonemes(ctypes.byref(pointer), _CHARS_UTF8, mode) or b""
            clauses.append(printed.decode("utf-8", "replace"))
        return clauses

    def speak(self, text: str, parameters: Sequence[tuple[int, int]]) -> bytes:
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
    if not is_espeak_available():
        raise MissingExtraError(
            "Phonemes need espeak-ng, which is not installed.",
            next_step="Run: pip install 'myxtts[espeak]', or set text_frontend: characters.",
        )
    import espeakng_loader

    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path()


def _read_languages(address: int) -> tuple[tuple[str, int], ...]:
    """A list in C of a rank in one byte and a code that ends in a zero byte, ended by a rank of zero."""
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
    """The clauses of a text in IPA as espeak prints it, but with whole tones; `clean_ipa` does the rest."""
    return texts_to_ipa([text], voice)[0]


def texts_to_ipa(texts: Sequence[str], voice: str) -> list[list[str]]:
    """`text_to_ipa` for many texts, taking the lock once."""
    with _use_library() as library:
        library.select_voice(voice)
        if not is_tonal(voice):
            return [library.print_phonemes(text, _PHONEMES_IPA) for text in texts]
        separator = ord(SEPARATOR) << 8
        printed = []
        for text in texts:
            clauses = library.print_phonemes(text, _PHONEMES_IPA | separator)
            names = library.print_phonemes(text, _PHONEMES_MNEMONIC | separator)
            printed.append([restore_tones(*pair, voice) for pair in zip(clauses, names, strict=True)])
        return printed


def synthesize(
    text: str,
    voice: str,
    *,
    variant: str = "",
    rate_wpm: int = 175,
    pitch: int = 50,
    pitch_range: int = 50,
    volume: int = 100,
) -> Waveform:
    """The text spoken by a voice, as 16 bit sound would hold it. The same arguments give the same samples.

    The library carries the phase of its slow pitch variation from clip to clip and offers no way to set it, so each
    clip is made by a library that was just loaded; that takes a few milliseconds.
    """
    parameters = ((_RATE, rate_wpm), (_VOLUME, volume), (_PITCH, pitch), (_RANGE, pitch_range))
    with _use_library(afresh=True) as library:
        library.select_voice(f"{voice}+{variant}" if variant else voice)
        sound = np.frombuffer(library.speak(text, parameters), np.int16)
        return Waveform((sound / 32768.0).astype(np.float32), library.rate_hz)
