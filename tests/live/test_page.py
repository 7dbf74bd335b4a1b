"""The live page as a reader meets it: values that grow, sound, the end of a run, and who may look."""

from __future__ import annotations

import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
import soundfile
from tests.browser import needs_chromium, open_page
from tests.live.served_page import GrowingRun, serve_live
from tests.synthesis.small_models import write_small_bundle

from myxtts.errors import UsageError
from myxtts.live.follow import LiveRun
from myxtts.live.server import bind, read_address
from myxtts.tools.words import Translator

NUM_POINTS = "MyxttsCharts.charts.loss.spec.curves[0].x.length"
DRAWN = "MyxttsCharts.charts.loss.plot.data[0].length"


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "anna")


@needs_chromium
def test_a_page_grows_without_reload_plays_samples_and_becomes_the_report(run: GrowingRun, tmp_path: Path) -> None:
    with serve_live(run.path, tmp_path) as (url, app), open_page("about:blank", tmp_path) as page:
        with run.training():
            page.call("Page.navigate", url=f"{url}/?lang=fa")
            page.wait_for("typeof MyxttsCharts === 'object' && !!MyxttsCharts.charts.loss.plot")
            before = page.run(NUM_POINTS)
            assert before > 100
            page.run("window.isSamePage = true")
            run.grow(20)
            page.wait_for(f"{NUM_POINTS} >= {before} + 9 && {DRAWN} === {NUM_POINTS}")
            page.wait_for("!!MyxttsCharts.charts.memory.plot")
            assert page.run("window.isSamePage") is True
            assert page.run("document.documentElement.dir") == "rtl"
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), "usable on a phone"
            # Lines may be read while they are written: only the last look at the files has all of them.
            page.wait_for("document.querySelector('#card-state').textContent.includes('در حال اجرا')")
            # (400 - 328) * 0.42 s
            page.wait_for("document.querySelector('#card-time_left strong').textContent === '۳۰ ثانیه'")
            # The recording, the same through Griffin-Lim, and every sample of every checkpoint.
            players = "document.querySelectorAll('#samples .panel:first-child .player span')"
            page.wait_for(f"{players}.length >= 6")
            assert page.run(f"[...{players}].map((label) => label.textContent)") == [
                "ضبط‌شده",
                "ضبط‌شده، از راه Griffin-Lim",
                *(f"گام {step}" for step in ("۴۰۰", "۳۰۰", "۲۰۰", "۱۰۰")),
            ]
            titles = "[...document.querySelectorAll('#samples .panel:first-child .plot span')]"
            assert page.run(f"{titles}.map((title) => title.textContent)") == [
                *("باند mel", "زمان (ثانیه)"),
                *("توکن", "زمان (ثانیه)"),
            ]
            length = page.run(
                "new Promise((give) => { const sound = document.querySelector('#samples audio');"
                "sound.onloadedmetadata = () => give(sound.duration); sound.preload = 'auto'; sound.load(); })"
            )
            assert length > 1
            page.reload()
            page.wait_for(f"typeof MyxttsCharts === 'object' && {NUM_POINTS} >= {before} + 9")
            assert app.num_readers >= 1, "the points came by the stream of events"
        # The title is there as soon as the head is parsed, the charts when the scripts at the end have run.
        page.wait_for("document.title.includes('گزارش') && document.querySelectorAll('.chart canvas').length >= 10")
        assert page.foreign_addresses(url) == []


def test_a_run_that_began_with_another_model_is_not_called_too_short_for_words(run: GrowingRun) -> None:
    for init_from, is_said in (("base", False), (None, True)):
        session = {"from_step": 0, "init_from": init_from}
        (run.path / "environment.json").write_text(json.dumps({"sessions": [session]}), encoding="utf-8")
        live = LiveRun(run.path)
        live.poll()
        assert ("do not expect clear words" in live.judge(Translator())) == is_said
        live.close()


def test_only_pages_of_this_server_may_change_something(run: GrowingRun, tmp_path: Path) -> None:
    with run.training(), serve_live(run.path, tmp_path) as (url, _), httpx.Client(base_url=url, timeout=900) as client:
        form = {"Content-Type": "text/plain"}
        for path in ("/stop", "/say"):
            assert client.post(path, content="{}", headers=form).status_code == 415, "a form of another site"
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 400, "DNS rebinding"
        for body in (
            {"text": ""},
            {"text": "a" * 301},
            {"text": "a", "voice": "/etc/passwd"},
            {"text": "a", "out": "x"},
        ):
            assert client.post("/say", json=body).status_code == 400, body
        for path in ("step-000100/..%2f..%2fconfig/sound", "..%2f/x/sound", "real/01-en/config", "step-1/01-en/sound"):
            assert client.get(f"/samples/{path}").status_code == 404, path
        assert client.get("/samples/step-000100/01-en/sound").headers["content-type"] == "audio/wav"
        assert client.get("/samples/step-000100/01-en/mel").content.startswith(b"\x89PNG")
        assert client.get("/said/1").status_code == 404
    with serve_live(run.path, tmp_path) as (url, _):
        gone = httpx.post(f"{url}/stop", json={}, timeout=200)
        assert gone.status_code == 409
        assert "No training of this run" in gone.json()["error"]["message"]
        assert "Training report" in httpx.get(url, timeout=200).text


@pytest.mark.timeout(900)
def test_sentences_are_said_by_one_process_without_gpu_and_can_be_cancelled(run: GrowingRun, tmp_path: Path) -> None:
    voices = {"anna": {"vector": [0.1] * 8, "latents": [[0.1] * 8] * 2, "language": "en"}}
    write_small_bundle(run.path / "bundle", notes={"step": 5, "voices": voices})
    request = {"text": "Good morning.", "voice": "anna", "language": "en"}
    with run.training(), serve_live(run.path, tmp_path) as (url, _), httpx.Client(base_url=url, timeout=900) as client:
        assert client.get("/voices").json()["voices"] == ["anna"]
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/say", json=request)
            busy = wait_for_speaker()
            # It stands still, so that what follows comes while it speaks.
            busy.suspend()
            assert busy.environ()["CUDA_VISIBLE_DEVICES"] == "-1"
            refused = client.post("/say", json={"text": "Too early."}, headers={"Accept-Language": "fa"})
            assert refused.status_code == 429
            assert refused.json()["error"]["message"] == "جملهٔ دیگری در حال ساخت است. صبر کنید تا تمام شود."
            assert client.post("/say/cancel", json={}).json() == {"cancelled": True}
            assert "was cancelled" in first.result().json()["error"]["message"]
        assert client.post("/say/cancel", json={}).json() == {"cancelled": False}
        said = client.post("/say", json=request).json()
        assert said["step"] == 5
        speaker = wait_for_speaker()
        samples, _ = soundfile.read(io.BytesIO(client.get(f"/{said['url']}").content))
        assert len(samples) > 1000
        wrong = client.post("/say", json={"text": "Guten Morgen.", "voice": "anna", "language": "de"})
        assert wrong.status_code == 409
        assert "'de'" in wrong.json()["error"]["message"]
        write_small_bundle(run.path / "bundle", notes={"step": 6, "voices": voices})
        assert client.post("/say", json=request).json()["step"] == 6, "a newer bundle is loaded"
        assert wait_for_speaker() == speaker, "TensorFlow is loaded once"
    wait_for_end(speaker)


def wait_for_speaker() -> psutil.Process:
    """The process that says sentences for a server in this process, once it has settled its priority."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                is_speaker = "myxtts.live.speech_process" in child.cmdline()
                if is_speaker and child.status() != psutil.STATUS_ZOMBIE and child.nice() > psutil.Process().nice():
                    return child
        time.sleep(0.02)
    raise AssertionError("nobody speaks")


def wait_for_end(process: psutil.Process) -> None:
    deadline = time.monotonic() + 200
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the process lives on"
        time.sleep(0.05)


def test_with_keys_a_reader_logs_in_first(run: GrowingRun, tmp_path: Path) -> None:
    key = "a-long-secret-of-the-lab"
    with run.training(), serve_live(run.path, tmp_path, api_keys=frozenset({key})) as (url, _):
        with httpx.Client(base_url=url, timeout=900) as client:
            assert "needs a key" in client.get("/").text
            assert "anna" not in client.get("/").text
            for path in ("/events", "/voices", "/samples/real/01-en/sound"):
                assert client.get(path).status_code == 401
            assert client.post("/stop", json={}).status_code == 401
            assert client.post("/login", json={"key": "wrong"}).status_code == 401
            assert client.post("/login", json={"key": key}).status_code == 200
            assert "anna" in client.get("/").text
            assert client.get("/voices").json() == {"voices": [], "languages": []}
        with httpx.Client(base_url=url, timeout=200, headers={"Authorization": f"Bearer {key}"}) as client:
            with client.stream("GET", "/events") as events:
                first = next(line for line in events.iter_lines() if line.startswith("data:"))
            news = json.loads(first.removeprefix("data:"))
            assert news["kind"] == "all"
            assert news["figures"]["step"][1] == "of 400"
            assert len(news["points"]["loss/loss"]) > 100


def test_addresses_and_ports() -> None:
    assert read_address(None) == ("127.0.0.1", 8030)
    assert read_address("8021") == ("127.0.0.1", 8021)
    assert read_address("10.0.0.4:8021") == ("10.0.0.4", 8021)
    assert read_address("[::1]:80") == ("::1", 80)
    for wrong in ("runs/anna", "70000", "host:"):
        with pytest.raises(UsageError, match="no address"):
            read_address(wrong)
    with bind("127.0.0.1", 0, is_chosen=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="is used by another program"):
            bind("127.0.0.1", port, is_chosen=True)
        with bind("127.0.0.1", port, is_chosen=False) as other:
            assert other.getsockname()[1] != port
