"""The button "say this sentence now": one sentence at a time, by one process of `speech_process`.

The process is started for the first sentence and kept for the next ones, since TensorFlow and the model take longer to
load than a sentence takes to say. It is ended when a sentence is cancelled, or when nothing was said for some minutes.
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

from myxtts.live.speech_process import HIDE_GPUS
from myxtts.models.bundle import BUNDLE_FILE_NAME, BUNDLE_FOLDER_NAME
from myxtts.serve.protocol import RequestError
from myxtts.storage.json_file import try_read_json

MAX_CHARACTERS = 300
"""Of a sentence that is said beside a training."""
_DEADLINE_S = 900.0
"""Beside a training on the same cores a sentence may take minutes."""
_IDLE_S = 600.0
"""Without a sentence, until the process is ended and its memory is free again."""
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
    """Says one sentence at a time with the newest bundle of a run, by a process without GPU and of low priority."""

    def __init__(self, run_path: Path, folder: Path) -> None:
        self._run_path, self._folder = run_path, folder
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._is_busy = self._is_cancelled = False
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
        self._is_busy, self._is_cancelled = True, False
        try:
            number = self._num_said + 1
            out = self._folder / f"{number}.flac"
            answer = await self._ask({**body.model_dump(), "run": str(self._run_path), "out": str(out)})
            if "problem" in answer:
                raise RequestError(str(answer["problem"]), status=409, next_step=str(answer.get("next_step", "")))
            said = Said(number, body.text, body.voice, answer.get("step"), float(answer["seconds"]))
        finally:
            self._is_busy = False
        if len(self.said) == _MAX_SAID:
            (self._folder / f"{self.said[0].number}.flac").unlink(missing_ok=True)
        self._num_said = number
        self.said.append(said)
        return said

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends the process a request and waits for its answer, the next line that it prints."""
        if self._idle is not None:
            self._idle.cancel()
        process = await self._find_process()
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                with suppress(ConnectionError):
                    await process.stdin.drain()
                    line = await process.stdout.readline()
        except TimeoutError:
            self.close()
            return {"problem": f"The sentence was not ready after {_DEADLINE_S:g} s: the machine is too busy."}
        if self._is_cancelled:
            return {"problem": "The sentence was cancelled."}
        try:
            answer = json.loads(line)
        except ValueError:
            self.close()
            return {"problem": "The process that speaks has failed."}
        self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self.close)
        return dict(answer)

    async def _find_process(self) -> asyncio.subprocess.Process:
        """The process that spoke before, or a new one."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "myxtts.live.speech_process"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, **HIDE_GPUS},
            )
            if self._is_cancelled:
                self._process.kill()
        return self._process

    def cancel(self) -> bool:
        """Ends the process while it says a sentence, which is not said then; False where none is being said."""
        if self._is_busy:
            self._is_cancelled = True
            self.close()
        return self._is_busy

    async def end(self) -> None:
        """Ends the process and waits until it is gone."""
        process = self._process
        if self._idle is not None:
            self._idle.cancel()
        self.close()
        if process is not None:
            await process.wait()

    def close(self) -> None:
        """Ends the process; the next sentence starts another one."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        self._process = None
