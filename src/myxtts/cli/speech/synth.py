"""`myxtts synth`: synthesises text with a reference voice, to a WAV file, a folder of them, or a stream.

Everything that can be refused (arguments, texts, voice) is checked before TensorFlow and the model are loaded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.screen import Screen, mute_decoders, show_progress
from myxtts.errors import MyXTTSError, UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.synthesis.options import SpeechOptions

if TYPE_CHECKING:
    from myxtts.synthesis.loaded_bundle import LoadedBundle
    from myxtts.synthesis.sentences import Piece, TextLine
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.synthesis.voices import SpeakerEmbedding
    from myxtts.types import Waveform

_STREAM = "-"
_USUAL = SpeechOptions()


def run_synth(
    text: Annotated[str | None, typer.Argument(help="What to say; - reads it from standard input.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder of a run or bundle.", metavar="RUN_OR_BUNDLE")] = None,
    voice: Annotated[
        list[str] | None,
        typer.Option(help="Recording of the voice, 3 to 8 s, or the name of a saved one; repeatable: averaged."),
    ] = None,
    language: Annotated[str | None, typer.Option(help="Language of the text, such as en or fa.")] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="File to write (.wav, .flac, .ogg, .opus, .mp3), a folder with --file, or - for a stream.",
            metavar="PATH",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Say every line of this file, or of a table (.csv, .tsv, .jsonl) with id and text."),
    ] = None,
    speed: Annotated[float, typer.Option(help="2 is twice as fast.")] = _USUAL.speed,
    seed: Annotated[int, typer.Option(help="Another number gives another rendering.")] = _USUAL.seed,
    ode_steps: Annotated[int, typer.Option(help="Steps of the decoder: more are finer, slower.")] = _USUAL.num_steps,
    guidance: Annotated[
        float | None, typer.Option(help="Above 1 leans on the voice; for models of several speakers.")
    ] = None,
    vocoder: Annotated[
        str,
        typer.Option(
            help="griffin_lim, neural, auto: neural where the bundle has it, or the run that trained one.",
            metavar="KIND_OR_RUN",
        ),
    ] = "auto",
    save_voice: Annotated[
        str | None, typer.Option(help="Keep the voice beside the model under this name.", metavar="NAME")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as one JSON object.")] = False,
) -> None:
    """Say a text in someone's voice.

    Long texts are said sentence by sentence; with --out - each sentence is in the pipe before the next is begun.

    [bold]Examples[/bold]

    myxtts synth "Good morning." --model runs/anna --voice reference.wav --out good-morning.wav

    myxtts synth "صبح بخیر" --model runs/anna --voice reference.wav --language fa --out sobh.wav --save-voice anna

    myxtts synth --file lines.txt --model runs/anna --voice anna --out spoken

    myxtts synth - --model runs/anna --voice anna --out - < chapter.txt | aplay
    """
    from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
    from myxtts.synthesis.synthesizer import Synthesizer

    screen = Screen(as_json=as_json)
    model = _check_request(text, model, out, file, save_voice, as_json=as_json)
    options = SpeechOptions(speed=speed, seed=seed, num_steps=ode_steps, guidance=guidance)
    lines = _read_lines(text, file)
    loaded, kind = choose_vocoder(load_bundle(model), vocoder)
    name = loaded.check_new_name(save_voice) if save_voice is not None else None
    language = loaded.find_language(language)
    jobs = _plan_jobs(loaded, lines, language, out, is_batch=file is not None)
    # A voice that cannot be found is reported before TensorFlow is loaded.
    with mute_decoders():
        source = loaded.find_voice(voice or None, screen.warn)
    load_tensorflow()
    synthesizer = Synthesizer(loaded, vocoder=kind, warn=screen.warn)
    embedding = synthesizer.resolve(source)
    result: dict[str, Any] = {"model": str(loaded.folder), "sample_rate_hz": synthesizer.rate, "language": language}
    if name is not None:
        result["voice"] = str(loaded.voices.save(name, embedding, source.references))
        screen.notices.print(f"Voice {name!r} saved in {result['voice']}.", markup=False)
    speak = partial(_speak, synthesizer, embedding, options)
    if out == _STREAM:
        _stream(jobs[0], speak, synthesizer.rate)
    else:
        result["files"] = _write_files(jobs, speak, screen)
    screen.finish(result)


@dataclass(frozen=True, slots=True)
class _Job:
    """A text split into pieces for the model, its language, and the file to write."""

    pieces: list[Piece]
    language: str
    path: Path


def _check_request(
    text: str | None, model: Path | None, out: str | None, file: Path | None, save_voice: str | None, *, as_json: bool
) -> Path:
    """Returns the model folder; raises UsageError for missing or contradictory arguments."""
    if text is not None and file is not None:
        raise UsageError("Both a text and --file are given.", next_step="Give one of them.")
    is_silent = text is None and file is None
    missing = ["--model RUN_OR_BUNDLE"] if model is None else []
    if is_silent and (save_voice is None or out is not None):
        missing.append("a text to say (or --file)")
    if out is None and not (is_silent and save_voice is not None):
        missing.append("--out FILE.wav (or - for a stream)")
    if missing or model is None:
        example = 'myxtts synth "Good morning." --model runs/run --voice reference.wav --out hello.wav'
        raise UsageError(f"Not given: {', '.join(missing)}.", next_step=f"For example: {example}")
    if out == _STREAM:
        if file is not None:
            raise UsageError("A file of texts becomes a folder of WAV files.", next_step="Give --out FOLDER.")
        if as_json:
            raise UsageError("Sound and JSON cannot both go to standard output.", next_step="Leave out --json.")
        if sys.stdout.isatty():
            raise UsageError("A terminal cannot play sound.", next_step="Send it to a player: … --out - | aplay")
    elif out is not None and file is None:
        _check_ending(Path(out))
    return model


def _check_ending(path: Path) -> None:
    """Raises UsageError for the ending of a format that cannot be written; a name without one becomes a WAV file."""
    from myxtts.features.wave_file import list_endings

    if path.is_dir():
        raise UsageError(f"{path} is a folder.", next_step="Give --out FILE.wav.")
    if path.suffix and path.suffix.lower() not in list_endings():
        raise UsageError(
            f"Sound cannot be written as {path.suffix} ({path}).",
            next_step=f"Choose one of the endings {', '.join(list_endings())}.",
        )


def _read_lines(text: str | None, file: Path | None) -> list[TextLine]:
    """Returns the texts: the lines of --file, or a single one from the argument or stdin."""
    from myxtts.synthesis.sentences import TextLine, read_stdin, read_texts

    if file is not None:
        return read_texts(file)
    if text is None:
        return []
    if text == _STREAM:
        text = read_stdin()
    return [TextLine("", text, "")]


def _plan_jobs(
    loaded: LoadedBundle, lines: list[TextLine], language: str, out: str | None, *, is_batch: bool
) -> list[_Job]:
    """Splits every text into pieces; errors name the line of the file, before the model is loaded."""
    jobs = []
    for line in lines:
        try:
            spoken = loaded.find_language(line.language or language)
            pieces = list(loaded.plan(line.text, spoken))
        except MyXTTSError as error:
            if line.place:
                raise type(error)(f"{line.place}: {error.problem}", next_step=error.next_step) from error
            raise
        path = Path(out or "")
        jobs.append(_Job(pieces, spoken, path / f"{line.id}.wav" if is_batch else path))
    return jobs


def _speak(synthesizer: Synthesizer, voice: SpeakerEmbedding, options: SpeechOptions, job: _Job) -> Iterator[Waveform]:
    return synthesizer.speak(job.pieces, voice, job.language, options)


def _write_files(jobs: list[_Job], speak: Callable[[_Job], Iterator[Waveform]], screen: Screen) -> list[dict[str, Any]]:
    """Synthesises each job as a whole and writes its file; returns paths and timings for JSON."""
    import numpy as np

    from myxtts.features.wave_file import write_sound
    from myxtts.types import Waveform

    made: list[dict[str, Any]] = []
    with show_progress("Speaking", len(jobs), "texts") as view:
        for number, job in enumerate(jobs, 1):
            if job.path.exists():
                screen.notices.print(f"Replacing {job.path}.", markup=False)
            started = time.perf_counter()
            parts = list(speak(job))
            wave = Waveform(np.concatenate([part.samples for part in parts]), parts[0].rate)
            took_s = time.perf_counter() - started
            write_sound(job.path, wave)
            fields = {"duration_s": round(wave.duration_s, 3), "took_s": round(took_s, 3), "num_pieces": len(parts)}
            made.append({"path": str(job.path), **fields})
            view.update(number)
    for row in made[:3]:
        screen.console.print(f"{row['path']}: {row['duration_s']:.1f} s, made in {row['took_s']:.1f} s", markup=False)
    if len(made) > 3:
        total_s = sum(row["duration_s"] for row in made)
        screen.console.print(f"… {len(made):,} files with {total_s:.1f} s in all", markup=False)
    return made


def _stream(job: _Job, speak: Callable[[_Job], Iterator[Waveform]], rate: int) -> None:
    """Writes a WAV header of unknown length, then each piece as soon as it is synthesised.

    A player that closes the pipe before the end gives exit code 1, without a message.
    """
    from myxtts.features.wave_file import encode_samples, make_wav_header

    sound = sys.stdout.buffer
    try:
        sound.write(make_wav_header(rate))
        for part in speak(job):
            sound.write(encode_samples(part))
            sound.flush()
    except BrokenPipeError as error:
        # Python flushes stdout at exit, which would raise again: send the rest of the buffer to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from error
