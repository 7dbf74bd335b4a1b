"""Requests and answers of OpenAI's speech interface, and the errors in its form."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from myxtts.errors import ConfigError, MyXTTSError, UsageError
from myxtts.serve.sound_stream import list_formats
from myxtts.serve.speech_queue import QueueFullError, SpeechRequest
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.sentences import MAX_TEXT_LENGTH

MAX_BODY_BYTES = 4 * MAX_TEXT_LENGTH + 20_000
"""Of a request for speech: the longest text in UTF-8, and its other fields."""

_Model = TypeVar("_Model", bound=BaseModel)


class RequestError(MyXTTSError):
    """A request that cannot be answered: the status of HTTP, and the field that is wrong."""

    def __init__(self, problem: str, *, status: int = 400, field: str | None = None, next_step: str = "") -> None:
        super().__init__(problem, next_step=next_step)
        self.status, self.field = status, field


class _VoiceObject(BaseModel):
    model_config = ConfigDict(extra="ignore")
    id: str | None = None
    name: str | None = None


class SpeechBody(BaseModel):
    """Body of POST /v1/audio/speech. Fields of OpenAI's that mean nothing here (model, instructions) are ignored;
    `language`, `seed` and `seconds` are our own."""

    model_config = ConfigDict(extra="ignore")

    input: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH)]
    voice: str | _VoiceObject | None = None
    response_format: str = "mp3"
    speed: float = 1.0
    stream_format: Literal["audio", "sse"] = "audio"
    language: str | None = None
    seed: int = 0
    seconds: float | None = None

    def to_request(self, default_voice: str | None) -> SpeechRequest:
        """Returns the request; raises RequestError for a format that cannot be sent."""
        if self.response_format not in list_formats():
            raise RequestError(
                f"There is no response_format {self.response_format[:20]!r}.",
                field="response_format",
                next_step=f"Choose one of {', '.join(list_formats())}.",
            )
        named = self.voice.id or self.voice.name if isinstance(self.voice, _VoiceObject) else self.voice
        options = SpeechOptions(speed=self.speed, seed=self.seed, seconds=self.seconds)
        return SpeechRequest(self.input, named or default_voice, self.language, options)


def parse_json(content: bytes | str, model: type[_Model], what: str) -> _Model:
    """Parses and checks JSON; raises RequestError that names the field, or `what` it is."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise RequestError(f"{field or what}: {first['msg']}.", field=field or None) from error


def describe_error(
    error: MyXTTSError, translate: Callable[[str], str] = str
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Returns status, body and headers of the answer to a request that failed; `translate` is for readers of a page."""
    status, kind, headers = 400, "invalid_request_error", {}
    if isinstance(error, RequestError):
        status = error.status
    elif isinstance(error, QueueFullError):
        status, kind, headers = 429, "rate_limit_error", {"Retry-After": str(error.retry_after_s)}
    elif not isinstance(error, UsageError | ConfigError) and error.kind != "data":
        status, kind = 500, "server_error"
    message = f"{translate(error.problem)} {translate(error.next_step)}".strip()
    field = error.field if isinstance(error, RequestError) else None
    return status, {"error": {"message": message, "type": kind, "param": field, "code": None}}, headers


def format_sse(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def format_delta(sound: bytes) -> bytes:
    """One event of a stream of events, with a part of the sound."""
    return format_sse({"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()})


def format_done(num_characters: int) -> bytes:
    """The last event; characters stand for tokens of the input, as nothing is billed."""
    usage = {"input_tokens": num_characters, "output_tokens": 0, "total_tokens": num_characters}
    return format_sse({"type": "speech.audio.done", "usage": usage})
