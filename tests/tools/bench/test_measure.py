"""The benchmark is fair and counts right: candidates take turns, ratios are of a round, nobody is left out unsaid."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.outline import Outline
from tests.store.corpora import DATA, make_small_corpus

from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, DataError, UsageError
from myxtts.tools.bench.candidates import (
    Candidate,
    Data,
    LeftOut,
    choose_candidates,
    make_pair,
    make_swept,
    parse_sweeps,
)
from myxtts.tools.bench.measure import BenchResult, Figures, Rules, Standing, run_bench
from myxtts.tools.bench.page import make_bench_page
from myxtts.tools.emulate import StepTime
from myxtts.tools.words import Translator
from myxtts.training.run.folder import describe_environment

CORPUS = {"num_utterances": 40, "minutes": 3.0, "batch_size": 4}


def make_slow(name: str, wait_s: float, opened: list[str]) -> Candidate:
    """Batches of four utterances, half of them padding, each a while late."""

    @contextmanager
    def open_batches() -> Iterator[Iterator[dict[str, Any]]]:
        opened.append(name)
        yield make_batches()
        opened.append(f"{name} closed")

    def make_batches() -> Iterator[dict[str, Any]]:
        while True:
            time.sleep(wait_s)
            yield {"mel": np.zeros((4, 10, 2), np.float32), "mel_lengths": np.full(4, 5)}

    return Candidate(name, open_batches)


def test_candidates_take_turns_and_every_other_round_in_reverse() -> None:
    opened: list[str] = []
    rules = Rules(num_steps=3, num_rounds=3, step=StepTime(0.0))
    seen: list[tuple[int, str]] = []
    run_bench(
        [make_slow(name, 0.0, opened) for name in "abc"],
        rules,
        progress=lambda done, name: seen.append((done, name)),
    )
    assert [name for name in opened if len(name) == 1] == list("abccbaabc")
    assert [name for _, name in seen] == list("abccbaabc")
    # Nobody is open while another one runs.
    assert all(later == f"{earlier} closed" for earlier, later in zip(opened[::2], opened[1::2], strict=True))


def test_figures_show_who_keeps_the_accelerator_waiting() -> None:
    rules = Rules(num_steps=20, num_rounds=1, step=StepTime(0.004))
    result = run_bench([make_slow("fast", 0.0, []), make_slow("slow", 0.012, [])], rules)
    fast, slow = (one.figures for one in result.standings)
    # A late clock only lowers what is measured: these hold on a busy machine as well.
    assert slow.au <= 0.25
    assert fast.au > 1.5 * slow.au
    assert fast.effective_au == pytest.approx(fast.au / 2)
    assert fast.padding == 0.5
    assert slow.mean_wait_ms >= 12
    assert fast.ceiling_au <= 1
    (comparison,) = result.compare()
    assert comparison.ratio == pytest.approx(fast.utterances_per_s / slow.utterances_per_s)
    assert result.find_best().name == "fast"
    assert len(result.standings[0].intervals_ms) == 20


def test_a_step_lasts_longer_with_more_frames() -> None:
    rules = Rules(num_steps=3, num_rounds=1, step=StepTime(0.0, 0.0005), host_load_s=0.002)
    (standing,) = run_bench([make_slow("one", 0.0, [])], rules).standings
    # Forty frames of half a millisecond.
    assert min(standing.intervals_ms) >= 20
    assert standing.figures.utterances_per_s <= 200


def make_figures(rate: float, au: float = 0.9) -> Figures:
    return Figures(au, 0.99, 0.8 * au, rate, 0.5, 0.03, 1.2, 0.2, 800.0)


def make_result(left_out: tuple[LeftOut, ...] = ()) -> BenchResult:
    rates = {"cached": (900.0, 1000.0, 950.0), "native": (300.0, 500.0, 380.0), "python": (100.0, 100.0, 95.0)}
    standings = [
        Standing(name, {}, tuple(make_figures(rate, rate / 1000) for rate in rounds), (20.0, 21.0, 60.0, 20.5))
        for name, rounds in rates.items()
    ]
    return BenchResult(Rules(), tuple(standings), left_out)


def make_swept_result() -> BenchResult:
    standings = [
        Standing(
            f"batch_size={size}, loader={loader}",
            {"data.batch_size": size, "loader": loader},
            (make_figures(10.0 * size),),
            (20.0,),
        )
        for size in (16, 32)
        for loader in ("cached", "python")
    ]
    return BenchResult(Rules(), tuple(standings))


def test_ratios_are_taken_round_by_round() -> None:
    native, python = make_result().compare()
    assert (native.name, native.other) == ("cached", "native")
    assert (native.ratio, native.lowest, native.highest) == (2.5, 2.0, 3.0)
    assert python.ratio == 10
    # A median is not that of sorted rounds.
    assert make_result().standings[1].figures.utterances_per_s == 380


def test_a_contender_above_its_ceiling_shows_that_the_machine_was_disturbed(about: dict[str, Any]) -> None:
    quiet = make_result()
    above = Standing("cached", {}, (make_figures(100.0, au=1.1),), (20.0,))
    disturbed = BenchResult(Rules(), (above,))
    assert (quiet.is_disturbed, disturbed.is_disturbed) == (False, True)
    words = Translator("en")
    assert "Measure again" in make_bench_page(disturbed, about, words).render()
    assert "Measure again" not in make_bench_page(quiet, about, words).render()


def test_the_result_is_plain_json() -> None:
    result = json.loads(json.dumps(make_result((LeftOut("cached", "no_store", "there"),)).to_json()))
    assert result["emulated"] is True
    assert result["rules"]["step_ms"] == 20
    assert [one["name"] for one in result["contenders"]] == ["cached", "native", "python"]
    assert len(result["contenders"][0]["rounds"]) == 3
    assert result["left_out"][0]["reason"] == "no_store"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of ten clips with its store."""
    folder = tmp_path_factory.mktemp("bench")
    make_small_corpus(folder).precompute()
    return folder


def make_config(folder: Path, **settings: Any) -> XTTSConfig:
    paths = {"train_data": folder / "corpus", "cache_dir": folder / "store"}
    return XTTSConfig(text_frontend=DATA.text_frontend, batch_size=4, **paths, **settings)


def find_config(candidate: Candidate) -> XTTSConfig:
    config: XTTSConfig = candidate.open.args[0]  # type: ignore[attr-defined]
    return config


def test_sweeps_make_every_combination_and_hold_its_numbers(folder: Path) -> None:
    sweeps = parse_sweeps(["batch_size=2,4", "num_workers=1,3", "loader=cached,python"])
    swept = make_swept(Data.find(make_config(folder)), sweeps)
    assert len(swept) == 8
    assert swept[-1].name == "batch_size=4, num_workers=3, loader=python"
    config = find_config(swept[-1])
    assert (config.data.batch_size, config.data.num_workers) == (4, 3)
    assert config.data.preprocessing_mode == "on_the_fly"
    # Otherwise tuning or the number of cores would decide.
    assert not config.data.auto_tune_performance
    assert not config.data.optimize_cpu_gpu_overlap
    (alone,) = make_swept(Data.find(make_config(folder)), parse_sweeps(["batch_size=4"]))
    assert find_config(alone).data.auto_tune_performance


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("batch_size", UsageError, "KEY=VALUE,VALUE"),
        ("batch_size=", UsageError, "KEY=VALUE,VALUE"),
        ("batch_sise=3", ConfigError, "data.batch_size"),
    ],
)
def test_a_sweep_that_cannot_be_read_is_explained(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        parse_sweeps([text])


def test_what_cannot_be_swept_is_explained(folder: Path) -> None:
    data = Data.find(make_config(folder))
    with pytest.raises(UsageError, match="cached, native, python"):
        make_swept(data, {"loader": ["fast"]})
    with pytest.raises(UsageError, match="40 combinations"):
        make_swept(data, {"data.batch_size": list(range(1, 41))})
    with pytest.raises(UsageError, match="no loader 'fast'"):
        choose_candidates(data, ["fast"])


def test_settings_are_compared_on_the_same_corpus(folder: Path) -> None:
    own, other = make_pair(Data.find(make_config(folder)), XTTSConfig(batch_size=2))
    assert (own.name, other.name) == ("settings", "against")
    assert find_config(other).data.batch_size == 2
    assert find_config(other).data.cache_dir == str(folder / "store")


def test_a_candidate_that_cannot_take_part_is_named_with_the_reason(folder: Path, tmp_path: Path) -> None:
    data = Data.find(XTTSConfig(train_data=folder / "corpus", cache_dir=tmp_path / "none", text_frontend="characters"))
    chosen, left_out = choose_candidates(data, ["cached", "native", "python"])
    assert [one.name for one in chosen] == ["native", "python"]
    reasons = {one.name: one.reason for one in left_out}
    assert reasons == {"cached": "no_store"}
    with pytest.raises(DataError, match="myxtts precompute"):
        data.configure({})
    with pytest.raises(DataError, match="no prepared corpus"):
        Data.find(XTTSConfig(train_data=tmp_path, cache_dir=tmp_path / "none"))


@pytest.fixture(scope="module")
def about() -> dict[str, Any]:
    return {"machine": describe_environment(["myxtts", "bench"]), "corpus": CORPUS}


def test_page_is_whole_and_says_what_was_measured(about: dict[str, Any]) -> None:
    result = make_result((LeftOut("cached", "no_store", "<there>"),))
    page = make_bench_page(result, about, Translator()).render()
    outline = Outline(page)
    for text in (
        "emulated",
        "MyXTTS on the fly, in Python",
        "95.0 % of 99.0 %",
        "2.50 times",
        "<there>",
        "num_utterances: 40",
    ):
        assert text in outline.text
    assert "<there>" not in page


def test_a_sweep_is_drawn_over_the_number_that_was_swept(about: dict[str, Any]) -> None:
    outline = Outline(make_bench_page(make_swept_result(), about, Translator("en")).render())
    assert "Utterances per second by batch_size" in outline.text
    assert "loader=python: 320" in outline.text


def test_persian_page_reads_from_right_to_left(about: dict[str, Any]) -> None:
    outline = Outline(make_bench_page(make_result(), about, Translator("fa")).render())
    for text in ("گزینه‌ها", "مقایسه", "۲٫۵۰ برابر", "MyXTTS به‌صورت on-the-fly با پایتون"):
        assert text in outline.text
    assert "Candidate" not in outline.text
