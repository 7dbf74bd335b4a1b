"""The button "say this sentence now": one process of `say_once` at a time, and the sentences that were said.

Sounds are kept in a temporary folder of the server: nothing is written to the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from myxtts.live.say_once import HIDE_GPUS
from myxtts.models.bundle import BUNDLE_FILE_NAME, BUNDLE_FOLDER_NAME
from myxtts.serve.protocol import RequestError
from myxtts.storage.json_file import try_read_json

MAX_CHARACTERS = 300
"""Of a sentence that is said beside a training."""
_DEADLINE_S = 300.0
_MAX_SAID = 20


class SayBody(BaseModel):
    """Body of POST /say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
    voice: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence that was said: its number, its text, the step of the weights, and its length."""

    number: int
    text: str
    voice: str | None
    step: int | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {"url": f"said/{self.number}", "text": self.text, "voice": self.voice, "step": self.step}


class Speaker:
    """Says one sentence at a time with the newest bundle of a run, in a process without GPU and of low priority."""

    def __init__(self, run_path: Path, folder: Path) -> None:
        self._run_path, self._folder = run_path, folder
        self._process: asyncio.subprocess.Process | None = None
        self._is_busy = False
        self._num_said = 0
        self.said: deque[Said] = deque(maxlen=_MAX_SAID)

    def describe_voices(self) -> dict[str, list[str]]:
        """Voices and languages of the newest bundle; empty before there is one."""
        description = try_read_json(self._run_path / BUNDLE_FOLDER_NAME / BUNDLE_FILE_NAME, dict[str, Any]) or {}
        notes, spec = description.get("notes"), description.get("model_spec")
        voices = notes.get("voices") if isinstance(notes, dict) else None
        languages = spec.get("languages") if isinstance(spec, dict) else None
        return {
            "voices": sorted(map(str, voices)) if isinstance(voices, dict) else [],
            "languages": [str(one) for one in languages] if isinstance(languages, list) else [],
        }

    def find_sound(self, number: int) -> Path | None:
        """File of a sentence that was said, FLAC; None where there is none, or it is too old."""
        return self._folder / f"{number}.flac" if any(one.number == number for one in self.said) else None

    async def say(self, body: SayBody) -> Said:
        """Says a sentence; raises RequestError while another is being said, or where the model cannot say it."""
        if self._is_busy:
            raise RequestError("Another sentence is being said.", status=429, next_step="Wait until it is done.")
        self._is_busy = True
        try:
            number = self._num_said + 1
            out = self._folder / f"{number}.flac"
            answer = await self._run({**body.model_dump(), "run": str(self._run_path), "out": str(out)})
            if "error" in answer:
                raise RequestError(str(answer["error"]), status=409)
            said = Said(number, body.text, body.voice, answer.get("step"), float(answer["seconds"]))
        finally:
            self._is_busy = False
        if len(self.said) == _MAX_SAID:
            (self._folder / f"{self.said[0].number}.flac").unlink(missing_ok=True)
        self._num_said = number
        self.said.append(said)
        return said

    async def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs the process to its end; its answer is the last line that it printed."""
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "myxtts.live.say_once"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **HIDE_GPUS},
        )
        try:
            async with asyncio.timeout(_DEADLINE_S):
                output, _ = await process.communicate(json.dumps(request).encode() + b"\n")
        except TimeoutError:
            return {"error": f"The sentence was not ready after {_DEADLINE_S:g} s: the machine is too busy."}
        finally:
            self._end(process)
            self._process = None
        lines = output.decode("utf-8", "replace").splitlines()
        try:
            answer = json.loads(lines[-1]) if lines else None
        except ValueError:
            answer = None
        return answer if isinstance(answer, dict) else {"error": "The process that speaks has failed."}

    def close(self) -> None:
        if self._process is not None:
            self._end(self._process)

    @staticmethod
    def _end(process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
