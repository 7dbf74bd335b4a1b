"""`myxtts bench`: benchmark of the input pipeline against an emulated accelerator: loaders, settings or two configs.

Reports accelerator utilisation (AU), throughput, CPU time and memory of each candidate; candidates alternate in rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from myxtts.cli.help import ADVANCED, WHAT, WHERE, HtmlReport, PageLanguage, option
from myxtts.cli.screen import Screen, mute_decoders, show_progress
from myxtts.cli.settings import CORPUS_FLAGS, DEVICE_FLAGS, LOADING_FLAGS, require_data, takes_settings
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.tools.bench.candidates import Candidate, Data, LeftOut
    from myxtts.tools.bench.measure import BenchResult, Rules
    from myxtts.tools.words import Translator

_ALL = "all"
# AU: accelerator utilisation, the share of time in which the emulated device computes. Effective AU counts batches that
# are padded or not full for less.
_COLUMNS = {
    "au": "emulated AU",
    "ceiling_au": "upper bound",
    "effective_au": "effective",
    "utterances_per_s": "utterances/s",
    "cpu_ms_per_utterance": "CPU ms each",
    "step_variation": "variation",
    "mean_wait_ms": "wait ms",
    "peak_rss_mb": "memory MB",
}


@takes_settings(
    *CORPUS_FLAGS, *DEVICE_FLAGS, *LOADING_FLAGS, "gpu_card", hidden=("val_data", "model_size", "optimization_level")
)
def run_bench_command(
    config: XTTSConfig,
    step_ms: Annotated[float, option("Time of a simulated step.", "MS", ADVANCED, min=0.0)] = 20.0,
    frame_us: Annotated[float, option("Additional time for each frame of the batch.", "US", ADVANCED, min=0.0)] = 0.0,
    host_load_ms: Annotated[
        float, option("Part of a step in which the CPU is busy, too.", "MS", ADVANCED, min=0.0)
    ] = 0.0,
    steps: Annotated[int, option("Steps of each candidate in a round.", "N", ADVANCED, min=2)] = 60,
    rounds: Annotated[int, option("Rounds, in alternating order.", "N", ADVANCED, min=1, max=100)] = 3,
    contenders: Annotated[
        str | None, option("Loaders to compare: cached, native, python or all.", "NAMES", WHAT)
    ] = None,
    sweep: Annotated[
        list[str] | None,
        option("Values to try, such as batch_size=16,32 or loader=cached,native. Can be repeated.", "KEY=A,B", WHAT),
    ] = None,
    against: Annotated[Path | None, option("Compare your settings with those of another file.", "CONFIG", WHAT)] = None,
    demo_minutes: Annotated[
        float, option("Minutes of demo speech, if no corpus is given.", "N", WHAT, min=0.2, max=600)
    ] = 10.0,
    out: Annotated[Path | None, option("Folder for the results.", "DIR", WHERE)] = None,
    report: HtmlReport = None,
    lang: PageLanguage = "en",
    as_json: Annotated[bool, option("Print the result as one JSON object.", flag="--json")] = False,
) -> None:
    """Benchmark the data pipeline: how busy it keeps a simulated GPU, by loader or by setting.

    Works without a GPU: a training step is simulated by a fixed time. Loaders run alternately. Accelerator
    utilisation (AU) is shown with its upper bound, the same loop over batches in memory.

    [bold]Examples[/bold]

    myxtts bench

    myxtts bench --train-data corpus --step-ms 20 --report bench.html

    myxtts bench --train-data corpus --sweep batch_size=16,32

    myxtts bench --config mine.yaml --against old.yaml --json
    """
    from myxtts.config.schema import XTTSConfig
    from myxtts.runtime.load_tensorflow import load_tensorflow
    from myxtts.tools.bench.candidates import parse_sweeps
    from myxtts.tools.bench.measure import Rules
    from myxtts.tools.emulate import StepTime
    from myxtts.tools.words import Translator

    screen, tr = Screen(as_json=as_json), Translator(lang)
    rules = Rules(steps, rounds, StepTime(step_ms / 1000, frame_us / 1e6), host_load_ms / 1000)
    sweeps = parse_sweeps(sweep or ())
    other = XTTSConfig.load(against) if against is not None else None
    with _provide_data(config, demo_minutes, screen) as data:
        load_tensorflow()
        chosen, left_out = _choose(data, contenders, sweeps, other)
        result = _run(chosen, left_out, rules, screen)
        about = _describe(data)
    _show(result, screen)
    summary = {**about, **result.to_json()}
    _write_files(result, summary, out, report, tr, screen)
    screen.finish(summary)


@contextmanager
def _provide_data(config: XTTSConfig, demo_minutes: float, screen: Screen) -> Iterator[Data]:
    """Yields the user's corpus, or a synthetic one in a temporary folder that is deleted afterwards."""
    from myxtts.cli.summaries import ScreenReport
    from myxtts.store.provide import ensure_features
    from myxtts.tools.bench.candidates import Data

    if config.data.train_data is not None or config.data.cache_dir is not None:
        require_data(config)
        yield Data.find(ensure_features(config, ScreenReport(screen)))
        return
    with TemporaryDirectory(prefix="myxtts-demo-") as name:
        yield Data.find(_make_demo(config, Path(name), demo_minutes, screen))


def _make_demo(config: XTTSConfig, folder: Path, minutes: float, screen: Screen) -> XTTSConfig:
    """Synthesises, prepares and precomputes a demo corpus; returns the configuration that names it."""
    from myxtts.corpus.demo import make_demo_corpus
    from myxtts.corpus.prepare import Recordings, prepare_corpus
    from myxtts.store.provide import Report, make_features

    screen.notices.print(f"No corpus is given: making {minutes:g} minutes of demo speech in a temporary folder.")
    make_demo_corpus(folder / "recordings", minutes=minutes)
    paths = {"data.train_data": str(folder / "corpus"), "data.cache_dir": str(folder / "features")}
    config = config.model_copy(update=paths)
    prepare_corpus([Recordings(folder / "recordings")], folder / "corpus", config.data)
    make_features(config, Report())
    return config


def _choose(
    data: Data, names: str | None, sweeps: dict[str, list[Any]], other: XTTSConfig | None
) -> tuple[list[Candidate], list[LeftOut]]:
    """Returns the candidates and those left out: named loaders, swept or compared settings; by default all loaders."""
    from myxtts.tools.bench.candidates import LOADERS, choose_candidates, make_pair, make_swept

    chosen: list[Candidate] = []
    if other is not None:
        chosen += make_pair(data, other)
    if sweeps:
        chosen += make_swept(data, sweeps)
    if names is None and chosen:
        return chosen, []
    wanted = [name.strip() for name in (names or _ALL).split(",") if name.strip()]
    others, left_out = choose_candidates(data, list(LOADERS) if wanted == [_ALL] else wanted)
    if not chosen + others:
        absent = ", ".join(one.name for one in left_out)
        raise UsageError(f"{absent} cannot be benchmarked.", next_step="Compute features first: myxtts precompute.")
    return chosen + others, left_out


def _run(chosen: list[Candidate], left_out: list[LeftOut], rules: Rules, screen: Screen) -> BenchResult:
    """Warns of candidates that cannot take part, then measures the others."""
    from myxtts.tools.bench.measure import run_bench
    from myxtts.tools.bench.page import REASONS, name_candidate
    from myxtts.tools.words import Translator

    tr = Translator()
    for one in left_out:
        screen.warn(f"{name_candidate(one.name, tr)} is left out: {tr(REASONS[one.reason], detail=one.detail)}")
    with show_progress("Measuring", len(chosen) * rules.num_rounds, "blocks") as view, mute_decoders():
        return run_bench(chosen, rules, left_out, lambda done, name: view.update(done, name_candidate(name, tr)))


def _describe(data: Data) -> dict[str, Any]:
    """Returns machine and corpus, without which results cannot be compared."""
    from myxtts.training.run.folder import describe_environment

    utterances = data.corpus.num_utterances if data.corpus is not None else len(data.store) if data.store else 0
    seconds = data.corpus.seconds if data.corpus is not None else 0.0
    corpus = {
        "num_utterances": utterances,
        "minutes": round(seconds / 60, 1),
        "batch_size": data.config.data.batch_size,
    }
    return {"machine": describe_environment(), "corpus": corpus}


def _write_files(
    result: BenchResult, summary: dict[str, Any], out: Path | None, report: Path | None, tr: Translator, screen: Screen
) -> None:
    """Writes the results as JSON and as HTML pages, where --out or --report ask for them."""
    from myxtts.storage.atomic import write_file
    from myxtts.tools.bench.page import make_bench_page

    pages = [report] if report is not None else []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        stem = f"bench-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        write_file(out / f"{stem}.json", (json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode())
        screen.console.print(f"The results are in {out / f'{stem}.json'}", markup=False, soft_wrap=True)
        pages.append(out / f"{stem}.html")
    for page in pages:
        make_bench_page(result, summary, tr).write(page)
        screen.console.print(f"The report is {page}", markup=False, soft_wrap=True)


def _show(result: BenchResult, screen: Screen) -> None:
    """Prints the table of candidates, a warning of disturbed measurements, and pairwise ratios."""
    from myxtts.tools.bench.page import DISTURBED, format_figure, name_step
    from myxtts.tools.charts import make_terminal_table
    from myxtts.tools.words import Translator

    tr = Translator()
    rows = [(one.name, *(format_figure(one.figures, name, tr) for name in _COLUMNS)) for one in result.standings]
    title = f"Emulated accelerator, a step of {name_step(result, tr)}"
    screen.console.print(make_terminal_table(title, ["", *_COLUMNS.values()], rows, is_numeric=True))
    if result.is_disturbed:
        screen.warn(DISTURBED)
    for comparison in result.compare():
        limits = f"{comparison.lowest:.2f} to {comparison.highest:.2f} by round"
        line = f"{comparison.name}: {comparison.ratio:.2f} times the utterances/s of {comparison.other} ({limits}), "
        screen.console.print(
            f"{line}{comparison.effective_au_ratio:.2f} times its effective AU (emulated)", markup=False
        )
