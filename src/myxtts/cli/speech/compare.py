"""`myxtts compare`: a page on which a listener compares two models blindly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.help import ADVANCED, WHAT, WHERE, PageLanguage, option
from myxtts.cli.screen import Screen, mute_decoders, print_note, show_progress
from myxtts.errors import UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow

if TYPE_CHECKING:
    from myxtts.synthesis.loaded_bundle import LoadedBundle
    from myxtts.types import Say


def run_compare(
    first: Annotated[Path, typer.Argument(help="Folder of a run or exported model, or base.", metavar="RUN_A")],
    second: Annotated[
        Path | None, typer.Argument(help="The other one. Not needed with --checkpoints.", metavar="RUN_B")
    ] = None,
    checkpoints: Annotated[str | None, option("Compare two checkpoints that the run kept.", "STEP,STEP", WHAT)] = None,
    texts: Annotated[
        Path | None,
        option("Sentences to say, one per line. \\[default: held-out sentences of RUN_A's corpus]", "FILE", WHAT),
    ] = None,
    pairs: Annotated[int, option("Sentences to compare.", "N", WHAT, min=1)] = 20,
    voice: Annotated[
        str | None, option("Recording or name of the voice. \\[default: speaker of each sentence]", panel=WHAT)
    ] = None,
    language: Annotated[str | None, option("Language of the sentences, such as en or fa.", "CODE", WHAT)] = None,
    out: Annotated[Path, option("Page to write.", "FILE.html", WHERE)] = Path("compare.html"),
    seed: Annotated[int, option("Another seed gives another order and another rendering.", "N", ADVANCED, min=0)] = 0,
    vocoder: Annotated[str, option("auto, griffin_lim or neural.", "VOCODER", ADVANCED)] = "auto",
    lang: PageLanguage = "en",
    as_json: Annotated[bool, option("Print what was made as one JSON object.", flag="--json")] = False,
) -> None:
    """Make a page for a blind listening test of two models.

    You hear each sentence from both models without knowing which is which: press 1 or 2 for the better one, 0 for
    no difference, space to hear both again. Real recordings are mixed in, if the corpus has them. The end of the
    page shows which model was preferred, with a confidence interval, and saves the answers as JSON.

    [bold]Examples[/bold]

    myxtts compare runs/anna runs/anna-2 --out compare.html

    myxtts compare runs/anna --checkpoints 2000,8000

    myxtts compare runs/anna base --texts lines.txt --voice anna.wav
    """
    from myxtts.tools.words import Translator

    screen, tr = Screen(as_json=as_json), Translator(lang)
    steps = _read_steps(checkpoints)
    runs = _choose_runs(first, second, steps)
    load_tensorflow()
    with mute_decoders():
        from myxtts.synthesis.synthesizer import Synthesizer
        from myxtts.tools.compare.page import write_comparison
        from myxtts.tools.compare.pairs import Side, choose_sentences, make_pairs, name_sides, read_sentences

    names = name_sides(*runs, steps)
    models = [_load(run, step, screen.warn) for run, step in zip(runs, steps or (None, None), strict=True)]
    if texts is not None:
        sentences = read_sentences(texts, voice, language)[:pairs]
    else:
        sentences = choose_sentences(first, models[0], pairs, voice, language)
    for loaded in models:
        for sentence in sentences:
            loaded.choose_voice(sentence.voice, sentence.language, sentence.text)
    synthesizers = [Synthesizer(loaded, vocoder=vocoder, warn=screen.warn) for loaded in models]
    sides = Side(names[0], synthesizers[0]), Side(names[1], synthesizers[1])
    with show_progress("Speaking", len(sentences), "sentences", screen.notices) as view:
        made = make_pairs(sentences, sides, seed=seed, progress=view.update)
    write_comparison(out, made, names, seed, tr)
    num_recorded = len(made) - len(sentences)
    screen.console.print(f"{len(made):,} pairs, {num_recorded:,} of them with a recording. Open {out}", markup=False)
    screen.finish({"page": str(out), "sides": names, "num_pairs": len(made), "num_with_recording": num_recorded})


def _read_steps(given: str | None) -> tuple[int, int] | None:
    """The two steps of --checkpoints."""
    if given is None:
        return None
    parts = given.replace(" ", "").split(",")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise UsageError(
            f"--checkpoints takes two steps with a comma between them, not {given[:40]!r}.",
            next_step="For example: --checkpoints 2000,8000",
        )
    return int(parts[0]), int(parts[1])


def _choose_runs(first: Path, second: Path | None, steps: tuple[int, int] | None) -> tuple[Path, Path]:
    if second is None and steps is None:
        raise UsageError(
            "Only one model is named.", next_step="Name a second run, or two checkpoints: --checkpoints STEP,STEP."
        )
    return first, second or first


def _load(run: Path, step: int | None, warn: Say) -> LoadedBundle:
    from myxtts.synthesis.loaded_bundle import load_bundle
    from myxtts.tools.compare.checkpoints import load_checkpoint

    return load_bundle(run, print_note) if step is None else load_checkpoint(run, step, warn)
