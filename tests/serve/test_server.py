"""The server gives real clients every format, sentence by sentence, and stays up whatever else is sent to it."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from openai import APIStatusError, OpenAI
from tests.browser import needs_chromium, open_page
from tests.conftest import synthesize_clip
from tests.serve.served import HTTP, PATIENCE_S, open_stream, serve
from tests.synthesis.small_models import DATA
from wyoming.client import AsyncClient
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

from myxtts.serve import guard, http_server
from myxtts.serve.sound_stream import CONTENT_TYPES, SoundStream
from myxtts.serve.speech_queue import SpeechRequest
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.types import Waveform

TEXT = "The quick fox. It jumps over the dog! And again."
KEY = "a-key-of-more-than-sixteen-characters"


@pytest.fixture(scope="module")
def addresses(synthesizer: Synthesizer) -> Iterator[tuple[str, str]]:
    with serve(synthesizer, default_voice="anna") as found:
        yield found


@pytest.fixture(scope="module")
def url(addresses: tuple[str, str]) -> str:
    return addresses[0]


@pytest.fixture(scope="module")
def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def decode(content: bytes) -> tuple[np.ndarray[Any, Any], int]:
    samples, rate = soundfile.read(io.BytesIO(content))
    return samples, rate


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "wav", "pcm"])
def test_the_openai_client_gets_every_format(client: OpenAI, synthesizer: Synthesizer, kind: Any) -> None:
    answer = client.audio.speech.create(model="tts-1", voice="anna", input=TEXT, response_format=kind)
    expected = synthesizer.say(TEXT, "anna", "en")
    if kind == "pcm":
        samples, rate = np.frombuffer(answer.content, "<i2") / 32768, 24_000
    else:
        samples, rate = decode(answer.content)
    assert len(samples) / rate == pytest.approx(expected.duration_s, abs=0.15 if kind == "mp3" else 0.01)
    if kind in ("wav", "flac"):
        np.testing.assert_allclose(samples, expected.samples, atol=1e-4)
    if kind != "pcm":
        with soundfile.SoundFile(io.BytesIO(answer.content)) as file:
            assert "Synthetic speech, made by MyXTTS" in file.comment


def test_the_stream_of_events_and_a_voice_as_an_object(client: OpenAI) -> None:
    streaming = client.audio.speech.with_streaming_response.create(
        model="any", voice={"id": "omid"}, input="به نام خدا. چه خوش.", response_format="pcm", stream_format="sse"
    )
    with streaming as answer:
        events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    assert [event["type"] for event in events] == ["speech.audio.delta"] * 3 + ["speech.audio.done"]


def test_models_voices_health_and_metrics(client: OpenAI, url: str) -> None:
    assert [model.id for model in client.models.list()] == ["small"]
    voices = HTTP.get(f"{url}/v1/audio/voices").json()
    assert [voice["id"] for voice in voices["voices"]] == ["anna", "omid"]
    assert voices["default_voices"] == {}
    assert HTTP.get(f"{url}/health").json() == {"status": "ok"}
    client.audio.speech.create(model="x", voice="anna", input="The fox.")
    metrics = HTTP.get(f"{url}/metrics").text
    assert 'myxtts_requests_total{route="/v1/audio/speech",status="200"}' in metrics
    assert "myxtts_requests_open 0\n" in metrics


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"voice": "nobody"}, "no voice 'nobody'"),
        ({"voice": "../../../etc/passwd"}, "no voice"),
        ({"voice": "/etc/passwd"}, "no voice"),
        ({"input": ""}, "input"),
        ({"input": "Well [laughs]"}, "Line 1, character 6"),
        ({"input": "x" * 20_001}, "input"),
        ({"response_format": "aac"}, "mp3, opus, flac, wav, pcm"),
        ({"speed": 9}, "speed is 9"),
        ({"speed": "fast"}, "speed"),
        ({"language": "de"}, "does not speak"),
        ({"input": "سلام دوست من", "language": "en"}, "Arabic script"),
    ],
)
def test_a_wrong_request_gets_an_error_in_openai_form(url: str, fields: dict[str, Any], words: str) -> None:
    body = {"model": "m", "voice": "anna", "input": "Hello.", **fields}
    answer = HTTP.post(f"{url}/v1/audio/speech", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"\xff\xfe", b'{"input": 3}', b'{"input"' * 1000])
def test_bodies_that_are_no_request_are_refused(url: str, content: bytes) -> None:
    answer = HTTP.post(f"{url}/v1/audio/speech", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_large_body_is_refused_and_a_slow_one_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HTTP.post(f"{url}/v1/audio/speech", content=b" " * 10_000_000).status_code == 413
    monkeypatch.setattr(guard, "BODY_DEADLINE_S", 0.3)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        # The rest of the body never comes.
        connection.sendall(b'POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"input":')
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_half_open_connections_are_closed_and_others_are_served(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADER_DEADLINE_S", 3.0)
    host, port = url.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(200)]
    for number, connection in enumerate(connections):
        if number % 2:
            connection.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n")
    assert HTTP.get(f"{url}/health").status_code == 200
    for connection in connections:
        connection.settimeout(PATIENCE_S)
        with connection:
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                continue


def test_another_site_cannot_reach_the_server_under_its_own_name(url: str) -> None:
    assert HTTP.get(f"{url}/v1/models", headers={"Host": "evil.example"}).status_code == 400
    answer = HTTP.get(f"{url}/v1/models", headers={"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_keys_guard_everything_but_page_and_health(synthesizer: Synthesizer) -> None:
    with serve(synthesizer, api_keys=frozenset({KEY})) as (url, _):
        assert [HTTP.get(f"{url}{path}").status_code for path in ("/", "/health", "/metrics", "/v1/models")] == [
            *(200, 200),
            *(401, 401),
        ]
        wrong = OpenAI(base_url=f"{url}/v1", api_key=f"{KEY}x", max_retries=0)
        with pytest.raises(APIStatusError) as caught:
            wrong.audio.speech.create(model="m", voice="anna", input="Hello.")
        assert caught.value.status_code == 401
        right = OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        assert right.audio.speech.create(model="m", voice="anna", input="The fox.").content
        with open_stream(url) as socket_:
            socket_.send("{}")
            assert json.loads(socket_.recv())["type"] == "error"


def test_requests_beyond_the_limit_are_told_when_to_come_again(
    synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_text, num_made, may_go_on = synthesizer.engine.decode, 0, threading.Event()

    def decode_first_only(*arguments: Any) -> Any:
        """Keeps the first request in the middle of its text, however fast the machine is."""
        nonlocal num_made
        num_made += 1
        assert num_made == 1 or may_go_on.wait(PATIENCE_S)
        return decode_text(*arguments)

    monkeypatch.setattr(synthesizer.engine, "decode", decode_first_only)
    with serve(synthesizer, max_requests=1, default_voice="anna") as (url, _):
        body = {"input": "The fox. " * 40, "response_format": "pcm"}
        with HTTP.stream("POST", f"{url}/v1/audio/speech", json=body) as first:
            assert first.status_code == 200
            refused = HTTP.post(f"{url}/v1/audio/speech", json=body)
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) >= 1
            assert refused.json()["error"]["type"] == "rate_limit_error"
        may_go_on.set()
        # The first client has left in the middle: its place is free after the sentence that was being made.
        deadline = time.monotonic() + PATIENCE_S
        while HTTP.post(f"{url}/v1/audio/speech", json={"input": "The fox."}).status_code == 429:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        made = HTTP.get(f"{url}/metrics").text.split("\nmyxtts_sentences_total ")[1].split()[0]
        assert float(made) < 40


def test_a_sentence_is_sent_before_the_next_is_begun(synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> None:
    from myxtts.serve.metrics import Metrics
    from myxtts.serve.speech_queue import SpeechQueue

    events: list[str] = []
    decode_text = synthesizer.engine.decode

    def note_and_decode(*arguments: Any) -> Any:
        events.append("made")
        return decode_text(*arguments)

    monkeypatch.setattr(synthesizer.engine, "decode", note_and_decode)

    async def run() -> None:
        queue = SpeechQueue(synthesizer, Metrics(), 2)
        async for _ in await queue.open(SpeechRequest(TEXT, "anna")):
            events.append("sent")
        queue.close()

    asyncio.run(run())
    assert events == ["made", "sent"] * 3


def test_a_recording_becomes_a_voice_only_where_that_is_allowed(
    url: str, synthesizer: Synthesizer, bundle: Path
) -> None:
    recording = io.BytesIO()
    soundfile.write(recording, synthesize_clip(4.0), 22_050, format="WAV")
    query = {"name": "guest", "consent": "own voice", "language": "en"}
    refused = HTTP.post(f"{url}/v1/audio/voices", params=query, content=recording.getvalue())
    assert refused.status_code == 403
    with serve(synthesizer, allows_uploads=True) as (open_url, _):

        def upload(content: bytes, **params: str) -> int:
            return HTTP.post(f"{open_url}/v1/audio/voices", params=params, content=content).status_code

        assert upload(recording.getvalue(), **query) == 201
        assert upload(b"RIFF nothing", **query) == 400
        assert upload(recording.getvalue(), **{**query, "name": "../x"}) == 400
        assert upload(recording.getvalue(), name="guest") == 400
        assert upload(b"\0" * 10_000_001, **query) == 413
    assert synthesizer.loaded.voices.load("guest").consent == "own voice"
    (bundle / "voices" / "guest.safetensors").unlink()


def test_text_in_pieces_comes_back_sentence_by_sentence(url: str, synthesizer: Synthesizer) -> None:
    with open_stream(url) as socket_:
        socket_.send(json.dumps({"voice": "anna", "response_format": "wav"}))
        for part in ("The qui", "ck fox. It ju", "mps over"):
            socket_.send(json.dumps({"text": part}))
        assert json.loads(socket_.recv()) == {"type": "sentence", "text": "The quick fox."}
        sound = bytes(socket_.recv(decode=False))
        socket_.send(json.dumps({"text": " the dog!", "end": True}))
        assert json.loads(socket_.recv())["text"] == "It jumps over the dog!"
        sound += bytes(socket_.recv(decode=False))
        rest = bytes(socket_.recv(decode=False))
        assert json.loads(socket_.recv()) == {"type": "done"}
    samples, rate = decode(sound + rest)
    assert rate == synthesizer.rate
    assert len(samples) > rate
    for wrong in ("no json", '{"text": 3}', '{"voice": "nobody"}'):
        with open_stream(url) as socket_:
            socket_.send(wrong)
            socket_.send('{"text": "The fox.", "end": true}')
            while (answer := json.loads(socket_.recv()))["type"] == "sentence":
                continue
            assert answer["type"] == "error"


def test_home_assistant_gets_its_sequence(addresses: tuple[str, str]) -> None:
    async def collect(client: AsyncClient, last: str) -> list[Event]:
        events: list[Event] = []
        while not events or events[-1].type not in (last, "error"):
            event = await client.read_event()
            assert event is not None, "the server has left"
            events.append(event)
        return events

    async def converse() -> None:
        async with AsyncClient.from_uri(addresses[1]) as client:
            await client.write_event(Describe().event())
            (described,) = await collect(client, "info")
            (program,) = Info.from_event(described).tts
            assert program.supports_synthesize_streaming
            assert [voice.name for voice in program.voices] == ["anna", "omid"]
            voice = SynthesizeVoice(name="anna")
            await client.write_event(Synthesize(text="The quick fox.", voice=voice).event())
            events = await collect(client, "audio-stop")
            assert [events[0].type, events[1].type] == ["audio-start", "audio-chunk"]
            assert events[0].data["rate"] == DATA.sample_rate
            await client.write_event(SynthesizeStart(voice=voice).event())
            for part in ("The quick fox. It", " jumps."):
                await client.write_event(SynthesizeChunk(text=part).event())
            await client.write_event(Synthesize(text="The quick fox. It jumps.", voice=voice).event())
            await client.write_event(SynthesizeStop().event())
            kinds = [event.type for event in await collect(client, "synthesize-stopped")]
            assert (kinds.count("audio-start"), kinds.count("audio-stop")) == (1, 1)
            await client.write_event(Synthesize(text="x", voice=SynthesizeVoice(name="nobody")).event())
            (error,) = await collect(client, "error")
            assert "no voice 'nobody'" in error.data["text"]

    asyncio.run(asyncio.wait_for(converse(), PATIENCE_S))


@pytest.mark.parametrize("kind", sorted(CONTENT_TYPES))
def test_a_sound_in_parts_is_the_sound_as_a_whole(kind: str) -> None:
    wave = Waveform(synthesize_clip(3.3), 22_050)
    parts = np.array_split(wave.samples, [5, 9000, 9000, 50_000])
    stream = SoundStream(kind, 22_050, "made by a test")
    content = b"".join([*(stream.add(Waveform(part, 22_050)) for part in parts), stream.finish()])
    if kind == "pcm":
        samples, rate = np.frombuffer(content, "<i2") / 32768, 24_000
    else:
        samples, rate = decode(content)
    assert len(samples) / rate == pytest.approx(wave.duration_s, abs=0.15)
    if kind in ("wav", "flac"):
        np.testing.assert_allclose(samples, wave.samples, atol=1e-4)


@needs_chromium
@pytest.mark.parametrize("language", ["en", "fa"])
def test_the_page_speaks_and_offers_the_sound(url: str, tmp_path: Path, language: str) -> None:
    with open_page(url, tmp_path, language) as page:
        page.wait_for("document.querySelector('#voice')?.options.length == 2")
        assert page.run("document.documentElement.dir || 'ltr'") == ("rtl" if language == "fa" else "ltr")
        page.run("document.querySelector('#text').value = 'The quick fox. It jumps.'")
        page.run("document.querySelector('#say').click()")
        page.wait_for("!document.querySelector('#save').hidden")
        assert page.run("document.querySelector('#save').href").startswith("blob:")
        assert page.run("document.querySelector('#status').textContent").strip("…")
        assert page.run("document.querySelector('#status').className") == ""
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.foreign_addresses(url) == []
