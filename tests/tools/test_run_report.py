"""The report of a run: a whole page without anything outside of it, in two languages, from whatever files there are."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.outline import Outline
from tests.tools.fake_run import SENTENCES, write_fake_run, write_lines

from myxtts.errors import DataError, StorageError
from myxtts.tools.charts import draw_shares
from myxtts.tools.line_charts import Curve, draw_curves, thin
from myxtts.tools.page import Card, Page, make_panel, make_section, make_table
from myxtts.tools.run_files import read_run, read_telemetry
from myxtts.tools.run_report import make_run_page, write_run_report
from myxtts.tools.words import Translator
from myxtts.training.vocoder.data import VOCODER_SPEC_FILE_NAME


def make_lines(times: list[float], frames: list[int]) -> list[dict[str, object]]:
    usual = {"wait_s": 0.001, "load_s": 0.01, "num_frames": 4000, "num_utterances": 16}
    pairs = zip(times, frames, strict=True)
    return [
        {"position": place, "step_s": step_s, "num_padded_frames": count, **usual}
        for place, (step_s, count) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("times", "frames", "batches_per_step"),
    [([0.1, 0.3] * 30, [4800, 14400] * 30, 1), ([0.0, 0.0, 0.4] * 20, [4800] * 60, 3)],
    ids=["two shapes", "gradient accumulation"],
)
def test_shapes_and_accumulation_are_no_variation_of_the_step(
    tmp_path: Path, times: list[float], frames: list[int], batches_per_step: int
) -> None:
    write_lines(tmp_path / "telemetry.jsonl", make_lines(times, frames))
    feed = read_telemetry(tmp_path / "telemetry.jsonl")
    assert feed is not None
    assert feed.group_steps(feed.is_retraced, batches_per_step).variation < 0.01
    assert feed.group_steps(np.ones(len(feed.position), bool), batches_per_step).variation == 0.0, (
        "no step that only trained"
    )
    uneven = [step_s * (2 if place % 7 == 0 else 1) for place, step_s in enumerate(times)]
    write_lines(tmp_path / "telemetry.jsonl", make_lines(uneven, frames))
    feed = read_telemetry(tmp_path / "telemetry.jsonl")
    assert feed is not None
    assert feed.group_steps(feed.is_retraced, batches_per_step).variation > 0.2


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake_run(tmp_path_factory.mktemp("runs") / "voice")


@pytest.fixture(scope="module")
def page(run_path: Path) -> str:
    path = write_run_report(run_path)
    assert path == run_path / "report.html"
    return path.read_text(encoding="utf-8")


def test_page_shows_curves_sound_time_and_configuration(page: str, run_path: Path) -> None:
    outline = Outline(page)
    assert page.count('<div class="chart">') == 13
    # Recorded, the same through Griffin-Lim, and three steps of two sentences; spectrograms, and the last alignment.
    assert outline.count["audio"] == 2 * 5
    assert outline.count["img"] == 2 * 3
    assert page.count("data:audio/flac") == 2 * 5
    sounds = (run_path / "samples").rglob("*.wav")
    assert len(page) < 0.6 * sum(4 / 3 * sound.stat().st_size for sound in sounds), "smaller than its sounds as WAV"
    for text in (
        "400",
        "of 400",
        "data.batch_size",
        "tensorflow 2.21.0",
        "4f4f4f4f",
        "waiting for data",
        "mel distance",
    ):
        assert text in outline.text
    assert "Skipped steps: 1. Loss spikes: 1. Rollbacks: 0." in outline.text


def test_shares_are_per_cent_in_charts_and_tables_alike(page: str) -> None:
    specs = [json.loads(text) for text in re.findall(r'<div class="chart"><script[^>]*>(.*?)</script>', page)]
    by_label = {curve["label"]: (curve["y"][-1], spec["unit"]) for spec in specs for curve in spec["curves"]}
    # 0.22 + 0.3 e^(-400 / 120) and 0.08 + 0.2 e^(-400 / 120)
    assert by_label["token duration error"] == (pytest.approx(23.07, abs=0.01), "%")
    assert by_label["utterance length error"] == (pytest.approx(8.71, abs=0.01), "%")
    assert by_label["score"] == (pytest.approx(0.816, abs=0.001), "")
    assert "token duration error: 23.1 % (step 400)" in page, "what a reader without JavaScript sees"
    assert re.search(r"<td>token duration error</td><td>23\.1 %</td><td>23\.1 %</td>", page)


@pytest.mark.parametrize(
    ("lang", "titles"),
    [("en", ("mel band", "token", "time (s)")), ("fa", ("باند mel", "توکن", "زمان (ثانیه)"))],
)
def test_pictures_of_samples_have_titles_on_their_axes(run_path: Path, lang: str, titles: tuple[str, str, str]) -> None:
    page = make_run_page(read_run(run_path), Translator(lang)).render()
    pictures = re.findall(r'<figure>.*?<span class="y"[^>]*>(.*?)</span>.*?<span class="x"[^>]*>(.*?)</span>', page)
    mel, token, time = titles
    assert pictures == [(mel, time), (mel, time), (token, time)] * 2


def test_text_of_the_corpus_cannot_become_markup(page: str) -> None:
    assert "<b>train</b>" not in page
    assert SENTENCES["01-en"]["text"] in Outline(page).text
    assert "</td>" in Outline(page).text


def test_persian_page_reads_from_right_to_left(run_path: Path) -> None:
    path = write_run_report(run_path, lang="fa")
    assert path.name == "report.fa.html"
    outline = Outline(path.read_text(encoding="utf-8"))
    for text in ("نمودارهای یادگیری", "نمونه‌های صدا", "زمان صرف چه شد", "تنظیمات", "۴۰۰", "data.batch_size"):
        assert text in outline.text
    assert "Learning curves" not in outline.text


def test_cards_say_what_the_files_say(run_path: Path) -> None:
    run = read_run(run_path)
    cards = {card.label: card for card in make_run_page(run, Translator()).cards}
    assert cards["Steps"].value == "400"
    assert cards["Training time"].value == "2.5 min"
    assert cards["Training time"].remark == "0.360 s per step, training only"
    assert cards["Validation score"].remark == "best: 0.816 at step 400"
    assert run.feed is not None
    waited, stepped = run.feed.wait_s.sum(), run.feed.step_s.sum()
    assert cards["AU"].value == f"{100 * (1 - waited / (waited + stepped)):.1f} %"
    assert float(cards["Step-time variation"].value.split()[0]) < 4


def test_the_page_of_a_vocoder_shows_its_own_terms_and_validation(tmp_path: Path) -> None:
    path = tmp_path / "vocoder"
    path.mkdir()
    (path / VOCODER_SPEC_FILE_NAME).write_text("{}")
    numbers = {"score": 0.4, "mel_distance": 0.4, "griffin_lim_mel_distance": 0.3, "spectral_distance": 0.7}
    lines: list[dict[str, object]] = [
        {"step": step, "loss": 9.0, "mel": 0.5, "stft": 0.9, "adversarial": 1.1, "features": 0.1, name: 1.9}
        for step, name in enumerate([*["critic_loss"] * 4, *["discriminator_loss"] * 4], start=1)
    ]
    write_lines(path / "metrics.jsonl", [*lines, *({"step": step, "validation": numbers} for step in (4, 8))])
    run = read_run(path)
    assert [record["discriminator_loss"] for record in run.records] == [1.9] * 8, "older runs called it critic_loss"
    text = Outline(make_run_page(run, Translator()).render()).text
    for own in ("feature matching", "loss of the discriminators", "mel distance of Griffin-Lim", "held-out recordings"):
        assert own in text
    for foreign in ("prior", "durations", "flow", "similarity"):
        assert foreign not in text


@pytest.mark.parametrize(("lang", "expected"), [("en", "frozen from step 200"), ("fa", "از گام ۲۰۰")])
def test_page_says_from_which_step_the_text_encoder_is_frozen(tmp_path: Path, lang: str, expected: str) -> None:
    path = write_fake_run(tmp_path / "voice")
    assert expected not in make_run_page(read_run(path), Translator(lang)).render()
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 200, "text_rests": true}\n')
    assert expected in make_run_page(read_run(path), Translator(lang)).render()


@pytest.mark.parametrize(("lang", "expected"), [("en", "become stable at step 3,000"), ("fa", "در گام ۳٬۰۰۰")])
def test_page_says_from_which_step_durations_were_not_searched(tmp_path: Path, lang: str, expected: str) -> None:
    path = write_fake_run(tmp_path / "voice")
    assert expected not in make_run_page(read_run(path), Translator(lang)).render()
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3000, "changed_durations": 0.01, "durations_written": true, "watch_seconds": 60.0}\n')
    assert expected in make_run_page(read_run(path), Translator(lang)).render()


def test_the_first_step_of_each_session_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    positions = [0, 1, 2, 1, 2, 3, 4, 5]
    lines = [{"position": position, "wait_s": 1.0, "step_s": 3.0, "load_s": 0.5} for position in positions]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"position": 6, "wa')
    feed = read_telemetry(path, first_positions={4})
    assert feed is not None
    assert feed.position.tolist() == [1, 2, 2, 3, 5]
    assert feed.au == 0.75
    assert read_telemetry(tmp_path / "missing.jsonl") is None


def test_a_run_that_has_only_begun_gets_a_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"step":1,"loss":null}\nnonsense\n{"step":1,"validation":{"score":null}}\n'
    )
    (tmp_path / "environment.json").write_text("{")
    for lang in ("en", "fa"):
        outline = Outline(make_run_page(read_run(tmp_path), Translator(lang)).render())
        assert outline.count["section"] >= 1
        assert "audio" not in outline.count


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no run"):
        write_run_report(tmp_path)


def test_a_page_that_cannot_be_written_leaves_the_old_one(run_path: Path, page: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError):
        make_run_page(read_run(run_path), Translator()).write(tmp_path / "file" / "report.html")
    assert (run_path / "report.html").read_text(encoding="utf-8") == page


def test_a_report_is_made_without_tensorflow(run_path: Path) -> None:
    program = (
        "import sys; from myxtts.tools.run_report import write_run_report; "
        "write_run_report(sys.argv[1], lang='fa'); sys.exit('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run_path)], timeout=60)
    assert done.returncode == 0
    assert (run_path / "report.fa.html").stat().st_size > 10_000


def test_curves_without_values_are_no_chart() -> None:
    tr = Translator()
    assert draw_curves([Curve("a", [], []), Curve("b", [1.0], [float("nan")])], tr) == ""
    assert "a: 2.00 (step 5)" in draw_curves([Curve("a", [5.0], [2.0])], tr), "for readers without JavaScript"
    assert draw_shares([("a", 0.0)], str) == ""
    assert make_section("heading", make_panel("empty", make_table(["a"], []))) == ""


@given(st.lists(st.floats(), min_size=1, max_size=200), st.text())
def test_any_values_and_labels_become_data_that_a_browser_reads(values: list[float], label: str) -> None:
    chart = draw_curves([Curve(label, list(range(len(values))), values)], Translator(), unit=label)
    data = re.findall(r"<script[^>]*>(.*?)</script>", chart, re.DOTALL)
    for spec in map(json.loads, data):
        (curve,) = spec["curves"]
        assert curve["label"] == spec["unit"] == label
        assert len(curve["x"]) == len(curve["y"]) == sum(map(math.isfinite, values))
    assert bool(data) == any(map(math.isfinite, values))


def test_a_long_curve_keeps_its_ends_and_its_spikes() -> None:
    values = np.zeros(50_000)
    values[31_417] = 9.0
    steps, kept = thin(np.arange(50_000.0), values)
    assert len(steps) <= 1500
    assert kept.max() == 9.0
    assert (steps[0], steps[-1]) == (0, 49_999)


def test_a_page_without_cards_or_sections_is_a_page() -> None:
    outline = Outline(Page("<Title>", "lead", [Card("a", "1")], []).render())
    assert "<Title>" in outline.text
