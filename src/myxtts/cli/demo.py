"""`myxtts demo`: the main job on an embedded default, from nothing but this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from myxtts.cli.precompute import make_features
from myxtts.cli.prepare import run_prepare, summarize
from myxtts.cli.screen import Screen, show_progress


def make_demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything the demo makes.", metavar="DIR")] = Path(
        "demo"
    ),
    minutes: Annotated[float, typer.Option(min=0.2, max=600, help="Minutes of speech to synthesise.")] = 20.0,
    num_speakers: Annotated[int, typer.Option(min=2, max=64, help="Voices in the corpus.")] = 8,
    seed: Annotated[int, typer.Option(help="The same seed gives the same corpus, byte for byte.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Make a small English and Persian corpus with several voices, prepare it and compute its features.

    [bold]Examples[/bold]

    myxtts demo

    myxtts demo --out /tmp/demo --minutes 60 --num-speakers 12
    """
    from myxtts.config.schema import XTTSConfig
    from myxtts.config.write import write_resolved
    from myxtts.corpus.demo import make_demo_corpus
    from myxtts.corpus.prepare import Recordings

    screen = Screen(as_json=as_json)
    recordings, corpus = out / "recordings", out / "corpus"
    screen.notices.print(f"1. Synthesising {minutes:g} minutes of speech with espeak-ng …")
    with show_progress("Speaking", None, "clips") as view:
        made = make_demo_corpus(
            recordings,
            minutes=minutes,
            seed=seed,
            num_speakers=num_speakers,
            progress=lambda done, _total: view.update(done),
        )
    kept = " (they were there already)" if made.was_kept else ""
    screen.notices.print(f"   {made.num_clips:,} clips in {recordings}{kept}", markup=False)
    screen.notices.print("2. Checking every clip and its text …")
    config = XTTSConfig(train_data=corpus, cache_dir=out / "features", seed=seed)
    prepared = run_prepare([Recordings(recordings)], corpus, config.data, screen, seed=seed, strict=True, quick=False)
    write_resolved(config, corpus)
    screen.notices.print("3. Computing features once, for every epoch to come …")
    computed = make_features(config, out / "features", screen, rebuild=False)
    screen.finish({"recordings": str(recordings), "prepare": summarize(prepared), "precompute": computed})
