"""Which files a transcript may point at: those inside the corpus folder, and no others.

A path is judged before anything is opened, with symbolic links followed, and what is opened is a plain file: a
transcript cannot make the program read a key, a device or a pipe.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")
_MAX_PATH_LENGTH = 4000


class CorpusRoot:
    """The folder that holds a corpus; answers where a path of its transcript leads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._real = os.path.realpath(folder)
        self._prefix = self._real.rstrip(os.sep) + os.sep

    @property
    def real(self) -> str:
        return self._real

    def resolve(self, written: str) -> str | None:
        """The real path of `written` (relative to the folder, or absolute), or None if it leaves the folder."""
        if "\0" in written or len(written) > _MAX_PATH_LENGTH:
            return None
        written = written.replace("\\", "/")
        try:
            real = os.path.realpath(os.path.join(self._real, written))  # noqa: PTH118 -- half the cost of Path, per clip
        except (OSError, UnicodeEncodeError):
            return None
        return real if real.startswith(self._prefix) else None

    def relative(self, real: str) -> str:
        assert real.startswith(self._prefix), real
        return real[len(self._prefix) :]

    def find_audio(self, folder: str, name: str) -> str:
        """The path below the root of the recording `name` in `folder`, whatever its format.

        Where there is none, the WAV that was expected: the check that follows reports it as missing.
        """
        start = f"{folder}/{name}" if folder else name
        if name.lower().endswith(AUDIO_SUFFIXES):
            return start
        for suffix in AUDIO_SUFFIXES:
            real = self.resolve(start + suffix)
            if real is None or os.path.exists(real):  # noqa: PTH110 -- per clip, half the cost of Path
                return start + suffix
        return start + AUDIO_SUFFIXES[0]


def open_plain_file(real_path: str) -> int:
    """A read-only descriptor of a regular file. Opening a pipe or device raises OSError instead of waiting."""
    descriptor = os.open(real_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{real_path} is not a plain file")
    return descriptor
