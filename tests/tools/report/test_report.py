"""The report command and its parts: the verdict claims only what was measured, several runs share their pictures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.browser import needs_chromium, open_page
from tests.outline import Outline
from tests.tools.fake_run import write_fake_run

from myxtts.errors import UsageError
from myxtts.tools.report.side_by_side import make_comparison_page
from myxtts.tools.report.verdict import Progress, judge
from myxtts.tools.run_files import read_run
from myxtts.tools.words import Translator
from myxtts.training.vocoder.data import VOCODER_SPEC_FILE_NAME

FALLING = [(1000 * number, 2.0 - 0.1 * number) for number in range(1, 11)]
FLAT = [(1000 * number, 1.0 + abs(number - 4) / 10) for number in range(1, 11)]
USUAL = Progress("runs/anna", 10_000, 10_000, FALLING, {"speaker_similarity": 0.98})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [write_fake_run(folder / "anna", 400), write_fake_run(folder / "ben", 300)]


@pytest.mark.parametrize(
    ("change", "said", "unsaid"),
    [
        ({}, "still improves (best 1.00 at step 10,000). Train longer: myxtts train --resume runs/anna", "clearly"),
        ({}, "speaker encoder, which is too optimistic", "recogniser"),
        ({}, "was not measured: listen", "recogniser"),
        ({"total_steps": 16_000}, "Continue to step 16,000.", "--resume"),
        ({"step": 300, "scores": FALLING[:1]}, "After 300 steps, do not expect clear words", "improves ("),
        ({"step": 300, "is_fine_tuned": True}, "was not measured: listen", "do not expect"),
        ({"scores": FLAT}, "has not improved since step 4,000 (best 1.00). More steps alone", "Train longer"),
        ({"scores": FLAT, "patience": 6}, "Early stopping ended it", "Train longer"),
        ({"scores": FLAT}, "More or cleaner recordings will, or a larger model.", "diagnose"),
        ({"scores": FLAT, "is_fine_tuned": True}, "ones: myxtts diagnose --clips runs/anna", "larger model"),
        ({"scores": FLAT, "is_fine_tuned": True, "patience": 6}, "myxtts diagnose --clips", "larger model"),
        (
            {"scores": FLAT, "is_fine_tuned": True, "total_steps": 20_000},
            "Continue to step 20,000. More minutes",
            "larger",
        ),
        ({"evaluation": {"character_error": 0.03, "word_error": 0.08, "step": 9000}}, "speaks clearly.", "listen to"),
        ({"evaluation": {"character_error": 0.6, "word_error": 0.9}}, "not understood yet", "clearly"),
        ({"evaluation": {"character_error": 0.3, "word_error": 0.5}}, "50.0 % of the words and 30.0 %", "clearly"),
        ({"step": 0}, "No step has been recorded", "improves"),
        (
            {"is_vocoder": True, "last": {"spectral_distance": 0.9, "griffin_lim_spectral_distance": 0.7}},
            "still worse than Griffin-Lim: spectral distance 0.900 against 0.700",
            "too optimistic",
        ),
    ],
)
def test_the_verdict_says_what_was_measured_and_what_to_do(change: dict[str, Any], said: str, unsaid: str) -> None:
    verdict = judge(replace(USUAL, **change), Translator())
    assert said in verdict
    assert unsaid not in verdict
    assert re.search("[آ-ی]", judge(replace(USUAL, **change), Translator("fa")))


def test_two_runs_share_every_picture(runs: list[Path]) -> None:
    page = make_comparison_page([read_run(run) for run in runs], Translator()).render()
    specs = [json.loads(text) for text in re.findall(r'<div class="chart"><script[^>]*>(.*?)</script>', page)]
    # Both are called "voice" by their settings: their folders tell them apart.
    assert all([curve["label"] for curve in spec["curves"]] == ["anna", "ben"] for spec in specs)
    assert {spec["x"] for spec in specs} == {"step"}
    assert len(specs) > 15
    outline = Outline(page)
    assert outline.count["audio"] == 2 * 3, "the recording and the newest sample of each run"
    assert "training.steps" in outline.text


def test_a_voice_and_a_vocoder_are_not_compared(runs: list[Path], tmp_path: Path) -> None:
    vocoder = write_fake_run(tmp_path / "vocoder")
    (vocoder / VOCODER_SPEC_FILE_NAME).write_text("{}")
    with pytest.raises(UsageError, match="different parts"):
        make_comparison_page([read_run(runs[0]), read_run(vocoder)], Translator())


def test_the_command_makes_the_report_again(runs: list[Path], tmp_path: Path) -> None:
    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "myxtts", "report", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    both = tmp_path / "both.html"
    done = call(*runs, "--lang", "fa", "--out", both, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [run["step"] for run in result["runs"]] == [400, 300]
    assert result["bytes"] == both.stat().st_size
    assert 'dir="rtl"' in both.read_text(encoding="utf-8")
    alone = call(runs[0])
    assert f"The report is {runs[0] / 'report.html'}" in alone.stdout
    assert "do not expect clear words yet" in alone.stdout
    for wrong, code, words in (((tmp_path,), 3, "There is no run"), ((runs[0], runs[0]), 2, "named twice")):
        failed = call(*wrong)
        assert failed.returncode == code
        assert words in failed.stderr


@needs_chromium
def test_a_chart_shows_values_zooms_and_changes_its_scale(runs: list[Path], tmp_path: Path) -> None:
    page_file = make_comparison_page([read_run(run) for run in runs], Translator()).write(tmp_path / "page.html")
    with open_page(page_file.as_uri(), tmp_path) as page:
        page.wait_for("document.querySelectorAll('.chart canvas').length > 15")
        page.run("window.element = document.querySelector('.chart'); element.scrollIntoView({block: 'center'})")
        rect = page.run(
            "(({left, top, width, height}) => [left, top, width, height])("
            "element.querySelector('.u-over').getBoundingClientRect())"
        )
        left, top, width, height = rect

        def move(share: float, kind: str = "mouseMoved", button: str = "none", clicks: int = 0) -> None:
            place = {"x": left + share * width, "y": top + height / 2}
            page.call("Input.dispatchMouseEvent", type=kind, button=button, clickCount=clicks, **place)

        legend = "[...element.querySelectorAll('.u-series:not(.faint) .u-value')].map((cell) => cell.textContent)"
        before = page.run(legend)
        move(0.02)
        page.wait_for(f"JSON.stringify({legend}) !== {json.dumps(json.dumps(before, separators=(',', ':')))}")
        assert page.run(legend)[0] == "100", "the step under the pointer"
        ticks = "(({min, max}) => [min, max])(MyxttsCharts.drawn[0].plot.scales.x)"
        whole = page.run(ticks)
        for share, kind in ((0.3, "mousePressed"), (0.6, "mouseMoved"), (0.6, "mouseReleased")):
            move(share, kind, "left", 1)
        page.wait_for(f"({ticks})[0] > {whole[0]}")
        zoomed = page.run(ticks)
        assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
        for clicks in (1, 2):
            move(0.5, "mousePressed", "left", clicks)
            move(0.5, "mouseReleased", "left", clicks)
        page.wait_for(f"({ticks})[0] === {whole[0]}")
        places = "(({min, max}) => [min, max])(MyxttsCharts.drawn[0].plot.scales.y)"
        values = "MyxttsCharts.drawn[0].plot.data.slice(1).flat().filter((value) => value != null)"
        lowest, highest = page.run(f"[Math.min(...{values}), Math.max(...{values})]")
        low, high = page.run(places)
        assert low < lowest < highest < high, "no curve touches the frame"
        page.run("element.querySelector('.scale').click()")
        assert page.run("MyxttsCharts.drawn[0].plot.scales.y.distr") == 3
        assert page.run("element.querySelector('.scale').textContent") == "linear"
        low, high = page.run(places)
        assert 0.8 * lowest < low < lowest < highest < high < 1.25 * highest, "whole decades would squeeze the curves"
        page.run(f"MyxttsCharts.drawn[0].plot.setScale('x', {{min: {zoomed[0]}, max: {zoomed[1]}}})")
        page.run("element.querySelector('.scale').click()")
        page.wait_for(f"({ticks})[0] === {zoomed[0]}")
        assert page.run("MyxttsCharts.drawn[0].plot.scales.y.distr") == 1, "the other scale shows the same steps"
        page.run("element.querySelectorAll('.u-series:not(.faint) th')[2].click()")
        assert page.run("element.querySelectorAll('.u-off').length") >= 1, "the legend switches a curve off"
        assert page.foreign_addresses("file:") == []
