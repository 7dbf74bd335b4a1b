"""The studio over HTTP: edits are kept and reach `prepare`, recordings stay untouched, and hostile requests fail."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from starlette.testclient import TestClient
from tests.studio.conftest import PAUSE_S, RATE_HZ, TEXTS, speak

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.errors import BusyError, DataError
from myxtts.serve.http_server import read_api_keys
from myxtts.studio.app import StudioApp, StudioSettings
from myxtts.studio.doubts import read_collect_doubts, read_doubts
from myxtts.studio.editor import Studio
from myxtts.studio.recording import MAX_TAKE_BYTES
from myxtts.studio.sound import LIMITS


def list_clips(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.get("/api/clips", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def edit(client: TestClient, kind: str, status: int = 200, **fields: Any) -> dict[str, Any]:
    revision = fields.pop("revision", None)
    body = {"revision": list_clips(client)["revision"] if revision is None else revision, "kind": kind, **fields}
    answer = client.post("/api/edit", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def list_ids(client: TestClient, **query: Any) -> list[str]:
    return [clip["id"] for clip in list_clips(client, **query)["clips"]]


def prepare(corpus: Path, out: Path, doubtful: int = 0) -> dict[str, str]:
    """What `myxtts prepare` makes of a corpus: the texts by id. It misses no recording, and counts doubtful ones."""
    summary = prepare_corpus([Recordings(corpus)], out, DataConfig(text_frontend="characters"))
    assert "named by no transcript line" not in " ".join(summary.notes)
    assert summary.doubtful == ({str(corpus): doubtful} if doubtful else {})
    return {utterance.id: utterance.text for utterance in open_corpus(out).utterances()}


def make_wav(samples: Any, rate: int = RATE_HZ) -> bytes:
    content = io.BytesIO()
    soundfile.write(content, samples, rate, format="WAV", subtype="PCM_16")
    return content.getvalue()


def send_take(client: TestClient, content: bytes, **query: str) -> Any:
    fields = {"take": "take-00001", "prompt": "The first prompt.", "speaker": "Omid", "language": "en", **query}
    return client.post("/api/take", params=fields, content=content, headers={"Content-Type": "audio/wav"})


def test_every_edit_reaches_prepare_and_no_recording_changes(
    client: TestClient, studio: Studio, corpus: Path, tmp_path: Path
) -> None:
    before = {file: file.read_bytes() for file in (*corpus.glob("wavs/*"), corpus / "metadata.csv")}
    edit(client, "change", id="a1", text="  Good morning,\n everyone. ")
    edit(client, "drop", id="b1")
    detail = client.get("/api/clip", params={"id": "a2"}).json()
    [pause] = detail["pauses"]
    assert PAUSE_S[0] - 0.05 < pause["start"] < pause["cut"] < pause["end"] < PAUSE_S[1] + 0.05
    parts = edit(client, "split", id="a2", at_s=pause["cut"], texts=["The train", "leaves soon."])
    merged = edit(client, "merge", id=parts["shown"], other="a1")["shown"]
    texts = prepare(corpus, tmp_path / "prepared")
    second = next(id for id in list_ids(client) if id.endswith("_2"))
    assert texts == {
        merged: "Good morning, everyone. The train",
        second: "leaves soon.",
        "a3": TEXTS["a3"],
    }
    assert {file: file.read_bytes() for file in before} == before
    # The parts are the original, sample for sample.
    original = soundfile.read(corpus / "wavs/a2.wav", dtype="int16")[0]
    first, rest = (soundfile.read(file, dtype="int16")[0] for file in sorted(corpus.glob("studio/clips/a2_*.wav")))
    np.testing.assert_array_equal(np.concatenate([first, rest]), original)
    joined = soundfile.info(corpus / "studio/clips" / f"{merged}.wav").frames
    assert joined == len(first) + soundfile.info(corpus / "wavs/a1.wav").frames
    assert (corpus / "studio/edits.jsonl").read_bytes().count(b"\n") == studio.revision == 5


def test_undo_goes_back_over_all_edits_and_redo_forth(client: TestClient, corpus: Path) -> None:
    edit(client, "drop", id="a1")
    edit(client, "split", id="a2", at_s=1.1, texts=["The train", ""])
    after = list_ids(client, sort="order")
    assert after == ["a1", "a2_r2_1", "a3", "b1"]
    edit(client, "undo")
    edit(client, "undo")
    assert list_clips(client)["undo"] is False
    assert {clip["id"]: clip["status"] for clip in list_clips(client)["clips"]} == dict.fromkeys(TEXTS, "used")
    edit(client, "redo")
    edit(client, "redo")
    assert list_ids(client, sort="order") == after
    assert list_ids(client, filter="dropped") == ["a1"]
    edit(client, "use", id="a1")
    assert list_ids(client, filter="dropped") == []
    with pytest.raises(BusyError, match="myxtts studio"):
        Studio(corpus)


def test_an_edit_of_an_old_revision_is_refused(client: TestClient) -> None:
    revision = list_clips(client)["revision"]
    edit(client, "change", id="a1", text="The first tab.", revision=revision)
    refused = edit(client, "change", id="a1", text="The second tab.", revision=revision, status=409)
    assert "another tab" in refused["error"]["message"]
    assert list_clips(client)["clips"][0]["text"] == "The first tab."


def test_lists_are_filtered_searched_and_sorted_by_doubt(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "doubts.jsonl").write_text(
        json.dumps({"id": "a3", "doubt": 0.9, "reasons": ["noise"]}) + '\n{"id": "b1", "doubt": 0.4, "score": 3}\n',
        encoding="utf-8",
    )
    (corpus / "wavs/a2.wav").unlink()
    (corpus / "wavs/silent.wav").write_bytes((corpus / "wavs/a1.wav").read_bytes())
    with (corpus / "metadata.csv").open("a", encoding="utf-8") as file:
        file.write("c1|wavs/silent.wav|...|anna|en\n")
    with Studio(corpus) as studio:
        assert studio.measure(read_doubts(tmp_path / "doubts.jsonl")) == []
        client = TestClient(StudioApp(studio, StudioSettings()).build(), base_url="http://127.0.0.1")
        assert list_ids(client) == ["a2", "c1", "a3", "b1", "a1"]
        assert list_ids(client, filter="doubtful") == ["a2", "c1", "a3"]
        assert list_clips(client)["counts"]["used"] == 3, "those without a recording or a text are not"
        assert "no text" in edit(client, "use", id="c1", status=400)["error"]["message"]
        assert list_clips(client)["clips"][2]["reasons"] == [{"text": "noise", "values": {}}]
        assert "cannot be read" in list_clips(client)["clips"][0]["reasons"][0]["text"]
        assert client.get("/texts.json").json()["reasons"]["there is no text"] == "متن ندارد"
        assert "cannot be played" in client.get("/api/clip", params={"id": "a2"}).json()["problem"]
        assert list_ids(client, search="COFFEE") == ["a3"]
        assert list_ids(client, search="اين يک") == ["b1"]
        assert list_clips(client, around="b1")["place"] == 3
        edit(client, "use", id="a3")
        assert list_ids(client, filter="doubtful") == ["a2", "c1"]
        edit(client, "change", id="b1", text="جملهٔ دیگر.")
        assert list_ids(client, filter="changed") == ["b1"]


def test_a_file_of_doubts_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "doubts.jsonl").write_text('{"id": "a", "doubt": 3}\n', encoding="utf-8")
    with pytest.raises(DataError, match="line 1"):
        read_doubts(tmp_path / "doubts.jsonl")


@pytest.mark.parametrize(
    ("written", "shown", "values"),
    [
        (
            "other-voice: its voice is 1.7 times as far from the main voice as is usual",
            "it sounds like another voice",
            {},
        ),
        ("doubtful-text: no pause is near its end", "there is no pause at its end", {}),
        ("doubtful-text: 31 letters a second, 14 are usual", "{found} letters", {"found": "31", "usual": "14"}),
        ("noisy: something new", "noisy: something new", {}),
    ],
)
def test_reasons_of_collect_are_said_in_words_that_the_page_translates(
    tmp_path: Path, written: str, shown: str, values: dict[str, str]
) -> None:
    (tmp_path / "doubtful.jsonl").write_text(json.dumps({"id": "a", "doubt": written}) + "\n", encoding="utf-8")
    (reason,) = read_collect_doubts(tmp_path)["a"].reasons
    assert reason.text.startswith(shown)
    assert reason.values == values


def test_doubtful_clips_of_collect_are_used_once_they_are_accepted(corpus: Path, tmp_path: Path) -> None:
    (corpus / "metadata.csv").unlink()
    (corpus / "wavs/b1.wav").unlink()
    rows = [
        {"id": id, "audio": f"wavs/{id}.wav", "text": text, "speaker": "anna", "language": "en"}
        for id, text in TEXTS.items()
        if id != "b1"
    ]
    (corpus / ".collect").mkdir()
    (corpus / "manifest.jsonl").write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    doubtful = [{**row, "doubt": "noisy: 9 dB above the noise"} for row in rows[1:]]
    (corpus / "doubtful.jsonl").write_text("".join(json.dumps(row) + "\n" for row in doubtful), encoding="utf-8")
    with Studio(corpus / "manifest.jsonl") as studio:
        studio.measure({})
        client = TestClient(StudioApp(studio, StudioSettings()).build(), base_url="http://127.0.0.1")
        assert list_ids(client, filter="doubtful") == ["a2", "a3"]
        assert list_clips(client)["clips"][0]["reasons"][0]["text"] == "noisy: 9 dB above the noise"
        assert prepare(corpus, tmp_path / "before", 2) == {"a1": TEXTS["a1"]}
        edit(client, "change", id="a3", text="Tea or coffee.")
        assert prepare(corpus, tmp_path / "after", 1) == {"a1": TEXTS["a1"], "a3": "Tea or coffee."}
        edit(client, "drop", id="a2")
        assert prepare(corpus, tmp_path / "dropped") == {"a1": TEXTS["a1"], "a3": "Tea or coffee."}


def test_takes_are_recorded_into_a_new_folder(tmp_path: Path) -> None:
    corpus = tmp_path / "voice"
    with Studio(corpus) as studio:
        studio.measure({})
        app = StudioApp(studio, StudioSettings(prompts={"en": ["The first prompt.", "The second prompt."]}))
        client = TestClient(app.build(), base_url="http://127.0.0.1")
        sound = make_wav(speak(1))
        assert send_take(client, sound).status_code == 403, "nobody has said who speaks"
        consent = {"speaker": " Omid ", "note": "It is my own voice."}
        assert client.post("/api/consent", json=consent).status_code == 200
        answer = send_take(client, sound)
        assert answer.status_code == 201
        assert answer.json()["warnings"] == []
        first = answer.json()["clip"]["id"]
        assert send_take(client, sound).json()["clip"]["id"] == first, "the same upload counts once"
        again = send_take(client, make_wav(speak(2)), take="take-00002").json()["clip"]["id"]
        assert list_ids(client) == [again], "a new take replaces the old one"
        send_take(client, make_wav(speak(3)), take="take-00003", prompt="The second prompt.")
        edit(client, "skip", prompt="The second prompt.")
        assert [one["clip"] for one in client.get("/api/prompts").json()["prompts"]] == [again, ""]
        edit(client, "undo")
    assert "It is my own voice." in (corpus / "studio/edits.jsonl").read_text(encoding="utf-8")
    assert sorted(prepare(corpus, tmp_path / "out").values()) == ["The first prompt.", "The second prompt."]


@pytest.mark.parametrize(
    ("sound", "problem"),
    [
        (make_wav(np.zeros(RATE_HZ)), "digital silence"),
        (make_wav(speak(0)[:100]), "at least 0.3 s"),
        (make_wav(np.tile(speak(0), 15)), f"at most {LIMITS.max_duration_s:g} s"),
        (b"RIFF" + bytes(100), "not a recording"),
        (b"<html>", "neither WAV nor FLAC"),
        (bytes(MAX_TAKE_BYTES + 1), "more than 16,000,000 bytes"),
    ],
    ids=["silent", "short", "long", "damaged", "html", "huge"],
)
def test_takes_that_cannot_be_used_are_refused(client: TestClient, sound: bytes, problem: str) -> None:
    client.post("/api/consent", json={"speaker": "Omid", "note": "Yes."})
    answer = send_take(client, sound)
    assert answer.status_code in (400, 413)
    assert problem in answer.json()["error"]["message"]
    assert len(list_ids(client)) == len(TEXTS)


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (lambda wave: np.clip(8 * wave, -1, 1), "takeClipped"),
        (lambda wave: wave / 30, "takeQuiet"),
        (lambda wave: wave / 3 + np.random.default_rng(0).normal(0, 0.02, len(wave)), "takeNoisy"),
    ],
    ids=["clipped", "quiet", "noisy"],
)
def test_the_page_is_warned_of_takes_that_sound_bad(client: TestClient, change: Any, warning: str) -> None:
    client.post("/api/consent", json={"speaker": "Omid", "note": "Yes."})
    assert warning in send_take(client, make_wav(change(speak(0)))).json()["warnings"]


def test_splits_and_merges_that_prepare_would_reject_are_refused(client: TestClient) -> None:
    assert "0.10 s" in edit(client, "split", id="a1", at_s=0.1, texts=["a", "b"], status=400)["error"]["message"]
    edit(client, "split", id="a1", at_s=-5.0, texts=["a", "b"], status=400)
    edit(client, "split", id="a1", at_s=1.1, texts=["", " "], status=400)
    edit(client, "merge", id="a1", other="b1", status=400)
    edit(client, "change", id="a1", text="\u0000", status=400)
    edit(client, "change", id="a1", text=" ", status=400)
    edit(client, "change", id="a1", language="?!", status=400)
    assert list_clips(client)["revision"] == 1


@pytest.mark.parametrize("id", ["../metadata.csv", "/etc/passwd", "wavs/a1.wav", "a1/../a1", "%2e%2e%2fa1", ""])
def test_ids_are_names_and_never_paths(client: TestClient, id: str) -> None:
    for path in ("/api/clip", "/api/sound"):
        assert client.get(path, params={"id": id}).status_code == 404
    edit(client, "drop", id=id, status=404)
    assert client.get(f"/{id}.js").status_code in (404, 307)


def test_nothing_is_written_through_a_link(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (corpus / "studio").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="is a link"):
        Studio(corpus)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_recordings_may_lie_in_another_folder(corpus: Path, tmp_path: Path) -> None:
    transcript = tmp_path / "texts" / "all.csv"
    transcript.parent.mkdir()
    (corpus / "metadata.csv").rename(transcript)
    with Studio(transcript, audio_root=corpus) as studio:
        studio.measure({})
        client = TestClient(StudioApp(studio, StudioSettings()).build(), base_url="http://127.0.0.1")
        edit(client, "split", id="a1", at_s=1.1, texts=["Good", "morning."])
    inputs = [Recordings(transcript, audio_root=corpus)]
    prepare_corpus(inputs, tmp_path / "out", DataConfig(text_frontend="characters"))
    assert {one.text for one in open_corpus(tmp_path / "out").utterances()} >= {"Good", "morning."}


def test_requests_of_other_sites_are_refused(client: TestClient) -> None:
    body = {"revision": 1, "kind": "drop", "id": "a1"}
    foreign = client.post("/api/edit", json=body, headers={"Origin": "https://example.org"})
    assert foreign.status_code == 403
    form = client.post("/api/edit", content=json.dumps(body), headers={"Content-Type": "text/plain"})
    assert form.status_code == 415
    assert client.get("/", headers={"Host": "example.org"}).status_code == 400
    assert list_ids(client, filter="dropped") == []


def test_another_address_needs_a_key_and_the_page_names_no_other(studio: Studio, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("a-key-of-more-than-sixteen-characters\n", encoding="utf-8")
    settings = StudioSettings("0.0.0.0", read_api_keys(tmp_path / "keys.txt", "0.0.0.0"))  # noqa: S104
    client = TestClient(StudioApp(studio, settings).build(), base_url="http://studio.example")
    page = client.get("/")
    assert page.status_code == 200
    assert "http" not in page.headers["Content-Security-Policy"]
    assert client.get("/api/clips").status_code == 401
    assert client.get("/api/sound", params={"id": "a1"}).status_code == 401
    known = {"Authorization": "Bearer a-key-of-more-than-sixteen-characters"}
    assert client.get("/api/clips", headers=known).status_code == 200
