"""`myxtts demo`: the base model speaks; then a run on a synthetic corpus: prepare, precompute, train, synthesise.

The corpus is made with espeak-ng, so that nothing has to be downloaded. Training starts from the base model, so that
the speech can be understood after a few minutes; where the package has none, it starts from random weights.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from myxtts.cli.help import ADVANCED, WHAT, WHERE, option
from myxtts.cli.screen import Screen, show_progress

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.store.provide import Report
    from myxtts.types import Split

DEMO_STEPS = 300
"""Two checkpoints' worth; see `_configure`."""
_BASE_SENTENCES = {
    "en": "Hello. This is the base model, which comes with the package.",
    "fa": "سلام. این مدل پایه است که همراه برنامه نصب می‌شود.",
}
_BASE_LIMIT_S = 300.0
"""A process that loads TensorFlow and says two sentences takes seconds; on a busy machine a minute."""
_SENTENCES = {
    "en": "This voice learned to speak a few minutes ago.",
    "fa": "این صدا چند دقیقه پیش حرف زدن را یاد گرفت.",
}


def make_demo(
    out: Annotated[Path, option("Folder for everything the demo makes.", "DIR", WHERE, flag="--out")] = Path("demo"),
    minutes: Annotated[float, option("Minutes of speech to make.", "N", WHAT, min=0.2, max=600)] = 20.0,
    num_speakers: Annotated[int, option("Voices in the corpus.", "N", WHAT, min=2, max=64)] = 8,
    steps: Annotated[
        int, option("Steps to train; more steps resume the same run, 0 trains nothing.", "N", WHAT, min=0)
    ] = DEMO_STEPS,
    seed: Annotated[int, option("The same seed gives the same corpus, byte for byte.", "N", ADVANCED)] = 0,
    lang: Annotated[str, option("Language of the report: en or fa.")] = "en",
    as_json: Annotated[bool, option("Print the summary as one JSON object.", flag="--json")] = False,
) -> None:
    """Try everything: hear the base model, make a small corpus, train the model on its voices, and let it speak.

    The corpus is English and Persian, made with espeak-ng. Training starts from the base model, so most words
    can be understood after 300 steps.

    [bold]Examples[/bold]

    myxtts demo

    myxtts demo --steps 2000

    myxtts demo --out /tmp/demo --minutes 60 --num-speakers 12 --steps 0
    """
    from myxtts.cli.summaries import ScreenReport, show_training
    from myxtts.store.provide import make_features
    from myxtts.synthesis.loaded_bundle import has_base_model
    from myxtts.tools.words import Translator
    from myxtts.training.trainer import Trainer

    screen, tr = Screen(as_json=as_json), Translator(lang)
    report = ScreenReport(screen)
    has_base = has_base_model()
    config = _configure(out, steps, seed, has_base=has_base)
    spoken = _speak_base(out, screen, has_base=has_base) if steps else {}
    summary = _make_corpus(config, out, minutes, num_speakers, screen, report)
    summary["base"] = spoken
    screen.notices.print("3. Computing features …")
    summary["precompute"] = make_features(config, report)
    if steps:
        start = "from the base model" if has_base else "a tiny model"
        screen.notices.print(f"4. Training {start} up to step {steps:,} …")
        origin = "base" if has_base else None
        result = Trainer(config, say=report.say, resume=True, init_from=origin).fit()
        summary["train"] = {"part": "voice", **show_training(result, screen, tr)}
        screen.notices.print("5. Speaking …")
        summary["speech"] = _speak(config, out, screen)
    screen.finish(summary)


def _speak_base(out: Path, screen: Screen, *, has_base: bool) -> dict[str, str]:
    """Lets the base model of the package say a sentence in each language; returns the files, none where it has no such.

    A process of its own does it: this one may not load TensorFlow before the training has set it up.
    """
    if not has_base:
        screen.notices.print("This installation has no base model, so the first sound is that of the demo's own model.")
        return {}
    screen.notices.print("0. The base model speaks …")
    out.mkdir(parents=True, exist_ok=True)
    texts = out / "base.jsonl"
    rows = [{"id": f"base-{code}", "text": text, "language": code} for code, text in _BASE_SENTENCES.items()]
    texts.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "myxtts", "synth", "--file", str(texts), "--out", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BASE_LIMIT_S)
    except subprocess.TimeoutExpired:
        screen.warn(f"The base model did not speak within {_BASE_LIMIT_S:.0f} s. The demo continues without it.")
        return {}
    if done.returncode:
        screen.warn(f"The base model could not speak: {done.stderr.strip()[-500:]} The demo continues without it.")
        return {}
    files = {code: str(out / f"base-{code}.wav") for code in _BASE_SENTENCES}
    for code, path in files.items():
        screen.console.print(f"   {code}: {path}", markup=False)
    return files


def _configure(out: Path, steps: int, seed: int, *, has_base: bool) -> XTTSConfig:
    """Configures a run that two CPU cores finish in minutes, with few checkpoints.

    From the base model all weights are adapted: the voices are new, and synthetic.
    """
    from myxtts.config.schema import XTTSConfig

    start: dict[str, Any] = (
        {"adapt": "all", "batch_size": 8, "crop_frames": 256} if has_base else {"model_size": "tiny"}
    )
    return XTTSConfig(
        train_data=out / "corpus",
        cache_dir=out / "features",
        run_dir=out / "run",
        steps=steps or None,
        checkpoint_steps=150,
        seed=seed,
        **start,
    )


def _make_corpus(
    config: XTTSConfig, out: Path, minutes: float, num_speakers: int, screen: Screen, report: Report
) -> dict[str, Any]:
    """Makes recordings unless they are there already, and prepares them strictly; returns a summary for JSON."""
    from myxtts.config.load import write_resolved
    from myxtts.corpus.demo import make_demo_corpus
    from myxtts.corpus.prepare import Recordings
    from myxtts.store.provide import check_recordings

    recordings, corpus, seed = out / "recordings", out / "corpus", config.training.seed
    screen.notices.print(f"1. Synthesising {minutes:g} minutes of speech with espeak-ng …")
    with show_progress("Speaking", None, "clips") as view:
        made = make_demo_corpus(
            recordings,
            minutes=minutes,
            seed=seed,
            num_speakers=num_speakers,
            progress=lambda done, _total: view.update(done),
        )
    kept = " (kept from before)" if made.was_kept else ""
    screen.notices.print(f"   {made.num_clips:,} clips in {recordings}{kept}", markup=False)
    screen.notices.print("2. Checking every clip and its text …")
    prepared = check_recordings([Recordings(recordings)], corpus, config.data, report, seed=seed, strict=True)
    write_resolved(config, corpus)
    return {"recordings": str(recordings), "prepare": prepared.to_json()}


def _speak(config: XTTSConfig, out: Path, screen: Screen) -> dict[str, str]:
    """Synthesises a sentence in each language, with a recording of that language as reference, held-out if possible."""
    from myxtts.corpus.corpus_file import open_corpus
    from myxtts.features.wave_file import write_sound
    from myxtts.synthesis.synthesizer import Synthesizer

    synthesizer = Synthesizer.load(config.training.run_path)
    corpus = open_corpus(out / "corpus")
    splits: tuple[Split, ...] = ("train", "val")  # Held-out recordings come last and replace those of training.
    voices = {item.language: item.audio for split in splits for item in corpus.utterances(split)}
    files = {}
    for language, text in _SENTENCES.items():
        path = config.training.run_path / f"demo-{language}.wav"
        write_sound(path, synthesizer.say(text, voice=voices[language], language=language))
        screen.console.print(f"   {language}: {path}", markup=False)
        files[language] = str(path)
    return files
