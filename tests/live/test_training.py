"""A real training with its page: followed, heard and stopped from a browser, and the same as without a page."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.browser import Page, needs_chromium, open_page
from tests.cli.test_train import list_settings
from tests.training.trainer_programs import COARSE, make_data

STEPS = 30
SETTINGS = list_settings(checkpoint_steps=15, sample_steps=5, **COARSE)
PATIENCE_S = 200
"""For the first steps and samples, on a machine that is busy with other tests."""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "myxtts", "train", *arguments, *SETTINGS]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)


def find_url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return next(line.split()[-1] for line in process.stderr if line.startswith("The live page of the run is"))


def use(page: Page) -> None:
    """Follows the training until it has its first samples, and stops it."""
    page.wait_for("typeof MyxttsCharts === 'object' && !!MyxttsCharts.charts.loss.plot", PATIENCE_S)
    page.run("window.isSamePage = true; window.confirm = () => true")
    num_points = "MyxttsCharts.charts.loss.spec.curves[0].x.length"
    before = page.run(num_points)
    page.wait_for(f"{num_points} > {before} && !!document.querySelector('#samples audio')", PATIENCE_S)
    page.run("document.querySelector('#stop').click()")
    page.wait_for("document.title.includes('report')", PATIENCE_S)


@needs_chromium
@pytest.mark.timeout(600)
def test_a_training_is_watched_and_stopped_in_a_browser_and_ends_as_one_without_a_page(tmp_path: Path) -> None:
    data = make_data(tmp_path, **COARSE).data
    common = ("--train-data", str(data.train_data), "--cache-dir", str(data.cache_dir), "--steps", str(STEPS))
    with start(tmp_path, *common, "--run-name", "watched", "--page-at", "0") as training:
        url = find_url(training)
        trainer = psutil.Process(training.pid)
        (server,) = (child for child in trainer.children() if "myxtts.live.server" in child.cmdline())
        # The steps wait until the browser has started: on a busy machine they would be over before it has.
        trainer.suspend()
        with open_page(url, tmp_path) as page:
            page.wait_for("document.readyState === 'complete' && !!document.querySelector('#stop')")
            trainer.resume()
            use(page)
            assert page.foreign_addresses(url) == []
        said = training.communicate(timeout=120)[1]
        assert training.returncode == 130, said
        assert "is saved. Continue with: myxtts train --resume" in said
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    assert (tmp_path / "runs" / "watched" / "system.jsonl").is_file()
    for arguments in (("--resume", "runs/watched"), (*common, "--run-name", "alone")):
        with start(tmp_path, *arguments) as training:
            said = training.communicate(timeout=240)[1]
            assert training.returncode == 0, said
    bundles = [
        (tmp_path / "runs" / name / "bundle" / "model.safetensors").read_bytes() for name in ("watched", "alone")
    ]
    assert bundles[0] == bundles[1]


def test_the_page_ends_with_its_training_however_that_ends(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from myxtts.live.server import PageProcess\n"
        "with PageProcess(Path('run'), '0', None, 'en') as page:\n"
        "    print(page.pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        assert server.nice() == min(19, psutil.Process().nice() + 10)
        parent.kill()
    deadline = time.monotonic() + 120
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the server lives on"
        time.sleep(0.05)
