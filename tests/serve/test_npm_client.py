"""The npm package `openai` gets every format and both kinds of stream.

`.ci/run` installs it into build/node; without it, or without node, these tests are skipped.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.serve.served import serve
from tests.serve.test_server import KEY, decode

from myxtts.synthesis.synthesizer import Synthesizer

MODULES = Path(__file__).parents[2] / "build" / "node" / "node_modules"
SCRIPT = Path(__file__).with_name("openai_client.mjs")
TEXT = "The quick fox. It jumps over the dog! And again."


@pytest.fixture(scope="module")
def results(synthesizer: Synthesizer) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (MODULES / "openai").is_dir():
        pytest.skip("the npm package openai is not in build/node: npm install --prefix build/node openai")
    with serve(synthesizer, default_voice="anna", api_keys=frozenset({KEY})) as (url, _):
        done = subprocess.run(
            [node, str(SCRIPT), f"{url}/v1", KEY],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "NODE_PATH": str(MODULES)},
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "wav", "pcm"])
def test_the_npm_client_gets_every_format(results: dict[str, Any], synthesizer: Synthesizer, kind: str) -> None:
    content = base64.b64decode(results["formats"][kind])
    num_samples, rate = (len(content) // 2, 24_000) if kind == "pcm" else (len(decode(content)[0]), decode(content)[1])
    assert num_samples / rate == pytest.approx(synthesizer.say(TEXT, "anna", "en").duration_s, abs=0.15)


def test_the_npm_client_gets_the_sound_in_parts_and_as_events(results: dict[str, Any]) -> None:
    assert results["num_parts"] >= 3
    assert results["num_streamed"] == len(base64.b64decode(results["formats"]["pcm"]))
    assert results["events"] == ["speech.audio.delta"] * 3 + ["speech.audio.done"]


def test_the_npm_client_understands_errors_and_models(results: dict[str, Any]) -> None:
    assert results["error"] == {"status": 400, "type": "invalid_request_error", "name": "BadRequestError"}
    assert results["models"] == ["small"]
