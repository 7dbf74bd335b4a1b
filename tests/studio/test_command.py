"""`myxtts studio` as a process: a kill at any moment loses no edit that was answered; a taken port is named."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import httpx
import pytest
from tests.studio.conftest import TEXTS
from tests.studio.process import run_studio

from myxtts.corpus.edits import read_journal
from myxtts.errors import DataError, UsageError
from myxtts.serve.http_server import name_address, open_socket
from myxtts.studio.editor import Studio
from myxtts.studio.recording import list_prompts


def test_a_kill_loses_no_edit_that_was_answered(corpus: Path) -> None:
    answered: list[str] = []
    with run_studio(corpus) as studio:
        assert studio.printed["corpus"] == str(corpus)
        assert studio.printed["used"] == len(TEXTS)
        revision = 1
        with httpx.Client(base_url=studio.address, timeout=120) as client:
            try:
                while True:
                    text = f"Text {revision}."
                    body = {"revision": revision, "kind": "change", "id": "a1", "text": text}
                    answer = client.post("/api/edit", json=body)
                    assert answer.status_code == 200, answer.text
                    revision = answer.json()["revision"]
                    answered.append(text)
                    if len(answered) == 5:
                        threading.Timer(random.uniform(0, 0.2), studio.process.kill).start()
            except httpx.HTTPError:
                pass
        assert studio.process.wait(120) == -signal.SIGKILL
    assert len(answered) >= 5
    edits = read_journal(corpus / "studio/edits.jsonl").edits
    # The last edit may have been written without an answer.
    assert edits.entries["a1"].text in (answered[-1], f"Text {revision}.")
    assert edits.number in (revision, revision + 1)


def test_a_torn_line_is_left_out_and_said(corpus: Path) -> None:
    with Studio(corpus) as studio:
        studio.measure({})
    journal = corpus / "studio/edits.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"crc32":"00000000","number":1,"ed')
    said: list[str] = []
    with Studio(corpus, say=said.append) as studio:
        assert studio.revision == 1
    assert "was not complete and is left out" in said[0]
    assert journal.read_bytes().endswith(b"}\n")


def test_a_taken_port_is_named() -> None:
    with open_socket("127.0.0.1", 0) as taken:
        port = int(name_address(taken).rpartition(":")[2])
        with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 is used by another program") as refused:
            open_socket("127.0.0.1", port)
    assert "Choose another" in refused.value.next_step


def test_prompts_that_cannot_be_read_are_called_prompts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^The list of prompts .*nope.txt cannot be used"):
        list_prompts(tmp_path / "nope.txt", "en")
