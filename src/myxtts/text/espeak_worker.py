"""Runs espeak-ng in a worker process, so that a crash of the C library loses one text and not the whole run.

Some inputs crash the library whatever is filtered. The worker reads requests as lines of JSON and answers text by text,
so the text it crashed on is known; that text is tried once more and then given up.

Protocol: the worker writes one line when the library is loaded; a request is {"voice": …, "texts": […]} on one line;
the answer is one line per text, a JSON list of clauses in IPA. The worker ends at the end of its input.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence

from myxtts.errors import DataError, MissingExtraError
from myxtts.text.espeak import is_espeak_available, read_espeak_version, text_to_ipa

_TEXTS_PER_REQUEST = 256
"""Bounds what is sent again after a crash, and the work that one time limit covers."""
_REQUEST_TIME_LIMIT_S = 60.0
"""A worker that takes longer for one request hangs: it is killed, which counts as a crash."""
_MAX_CRASHES = 200
"""Per call; more end it with an error, since so many bad texts are rather a wrong language."""


class EspeakWorker:
    """A child process that turns texts into IPA. Safe for threads; a forked child process gets its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner_id = os.getpid()
        self.num_crashes = 0

    def texts_to_ipa(self, texts: Sequence[str], voice: str) -> list[list[str] | None]:
        """Returns the clauses of each text in IPA, None for a text on which espeak-ng crashed. Takes the lock once."""
        if self._owner_id != os.getpid():
            # The pipes and the lock belong to the parent process.
            self._lock, self._process, self._owner_id = threading.Lock(), None, os.getpid()
        with self._lock:
            num_crashes_before = self.num_crashes
            answers: list[list[str] | None] = []
            for start in range(0, len(texts), _TEXTS_PER_REQUEST):
                answers += self._ask(texts[start : start + _TEXTS_PER_REQUEST], voice)
                if self.num_crashes - num_crashes_before > _MAX_CRASHES:
                    raise DataError(
                        f"espeak-ng crashed {_MAX_CRASHES} times on texts in the voice {voice!r}.",
                        next_step="Check the language of these texts, or set text_frontend: characters.",
                    )
            return answers

    def close(self) -> None:
        """Ends the process; only the process that started it may do so."""
        if self._process is None or self._owner_id != os.getpid():
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait()
        process.stdout.close()

    def _ask(self, texts: Sequence[str], voice: str) -> list[list[str] | None]:
        """Sends the texts that have no answer yet until all have one. A text that killed the worker twice gets None.

        Answers come in order, so the first text without one is the text on which the worker died.
        """
        answers: list[list[str] | None] = []
        was_tried = False
        while len(answers) < len(texts):
            received = self._request(texts[len(answers) :], voice)
            answers += received
            if len(answers) == len(texts):
                break
            self.num_crashes += 1
            if was_tried and not received:
                answers.append(None)
                was_tried = False
            else:
                was_tried = True
        return answers

    def _request(self, texts: Sequence[str], voice: str) -> list[list[str]]:
        """Sends one request; returns the answers, fewer than there are texts if the worker died or took too long."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(_REQUEST_TIME_LIMIT_S, process.kill)
        timer.start()
        answers: list[list[str]] = []
        try:
            process.stdin.write(json.dumps({"voice": voice, "texts": list(texts)}) + "\n")
            process.stdin.flush()
            while len(answers) < len(texts) and (line := process.stdout.readline()).endswith("\n"):
                answers.append(json.loads(line))
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        if len(answers) < len(texts):
            self._discard(process)
        return answers

    def _start(self) -> subprocess.Popen[str]:
        """Starts a worker and waits until it has loaded the library."""
        if not is_espeak_available():
            # Raises the message about the missing extra.
            read_espeak_version()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "myxtts.text.espeak_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            encoding="utf-8",
            # Ctrl-C in a terminal reaches all processes in front; this one ends with its parent instead.
            start_new_session=True,
        )
        assert process.stdout is not None
        if not process.stdout.readline():
            self._discard(process)
            raise MissingExtraError(
                "The process that runs espeak-ng ended as soon as it was started.",
                next_step="Run python -m myxtts.text.espeak_worker to see why, or set text_frontend: characters.",
            )
        return process

    def _discard(self, process: subprocess.Popen[str]) -> None:
        """Ends a worker that crashed or hangs, and closes its pipes."""
        self._process = None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                # The worker is dead; unsent requests are dropped.
                continue


SHARED_WORKER = EspeakWorker()
atexit.register(SHARED_WORKER.close)


def serve() -> None:
    """Answers requests until the input ends, which it also does when the parent process dies."""
    # espeak-ng prints messages to stdout: answers go to a copy of the descriptor, and stdout to /dev/null.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    read_espeak_version()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        for text in request["texts"]:
            print(json.dumps(text_to_ipa(text, request["voice"])), file=answers, flush=True)


if __name__ == "__main__":
    serve()
