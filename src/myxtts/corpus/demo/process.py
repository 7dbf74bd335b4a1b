"""Speakers shared among processes: each is given its share as JSON and answers a line per clip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from myxtts.corpus.demo.speak import Clip, speak_clips
from myxtts.corpus.demo.voices import Speaker
from myxtts.errors import MyXTTSError, StorageError

_ERRORS = {kind.__name__: kind for kind in MyXTTSError.__subclasses__()}
_PROGRAM = "from myxtts.corpus.demo.process import serve; serve()"


def speak_in_processes(
    speakers: Sequence[Speaker], total_s: float, seed: int, folder: Path, num_processes: int
) -> Iterator[Clip]:
    """The clips of all speakers, about `total_s` seconds of each, as they are done."""
    shares = [speakers[start::num_processes] for start in range(min(num_processes, len(speakers)))]
    answers: SimpleQueue[Clip | MyXTTSError | None] = SimpleQueue()
    processes = [_start_process(share, total_s, seed, folder) for share in shares]
    readers = [threading.Thread(target=_read_answers, args=(process, answers)) for process in processes]
    for reader in readers:
        reader.start()
    try:
        num_running = len(readers)
        while num_running:
            answer = answers.get()
            if isinstance(answer, MyXTTSError):
                raise answer
            if answer is None:
                num_running -= 1
            else:
                yield answer
    finally:
        # After an error or an interrupt nobody waits for the others.
        for process in processes:
            process.kill()
        for reader in readers:
            reader.join()


def _start_process(speakers: Sequence[Speaker], total_s: float, seed: int, folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        encoding="utf-8",
    )
    assert process.stdin is not None
    job = {"speakers": [asdict(speaker) for speaker in speakers], "total_s": total_s, "seed": seed}
    process.stdin.write(json.dumps(job | {"folder": str(folder)}))
    process.stdin.close()
    return process


def _read_answers(process: subprocess.Popen[str], answers: SimpleQueue[Clip | MyXTTSError | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            answer = json.loads(line)
            if "problem" in answer:
                answers.put(_ERRORS[answer["error"]](answer["problem"], next_step=answer["next_step"]))
            else:
                answers.put(Clip(**answer))
    if process.wait() != 0:
        problem = f"A process that speaks for the demo corpus ended with status {process.returncode}."
        answers.put(StorageError(problem, next_step="See what it printed, and run the same command again."))
    answers.put(None)


def serve() -> None:
    job = json.load(sys.stdin)
    try:
        for fields in job["speakers"]:
            reflections = tuple((delay_s, gain) for delay_s, gain in fields["reflections"])
            speaker = Speaker(**fields | {"reflections": reflections})
            for clip in speak_clips(speaker, job["total_s"], job["seed"], Path(job["folder"])):
                print(json.dumps(asdict(clip)), flush=True)
    except MyXTTSError as error:
        answer = {"error": type(error).__name__, "problem": error.problem, "next_step": error.next_step}
        print(json.dumps(answer), flush=True)
