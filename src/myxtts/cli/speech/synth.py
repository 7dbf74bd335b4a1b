"""`myxtts synth`: synthesises text with a reference voice, to a WAV file, a folder of them, or a stream.

Everything that can be refused (arguments, texts, voice) is checked before TensorFlow and the model are loaded.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
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
    from myxtts.synthesis.loaded_bundle import LoadedBundle, VoiceLike
    from myxtts.synthesis.sentences import Piece, TextLine
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.synthesis.timing import SpokenPiece
    from myxtts.synthesis.voices import SpeakerEmbedding, VoiceSource
    from myxtts.types import Say

_STREAM = "-"
_USUAL = SpeechOptions()
_WEIGHTED = re.compile(r"(?P<name>.+)=(?P<weight>\d+(?:\.\d+)?|\.\d+)")


def run_synth(
    text: Annotated[str | None, typer.Argument(help="What to say; - reads it from standard input.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder of a run or bundle.", metavar="RUN_OR_BUNDLE")] = None,
    voice: Annotated[
        list[str] | None,
        typer.Option(
            help="Recording of the voice, 3 to 8 s, or the name of a saved one. Repeat it for the average of several "
            "recordings, or as NAME=WEIGHT for a mixture."
        ),
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
    dialogue: Annotated[
        bool, typer.Option(help="Every line of the text begins with a voice and a colon, as in 'anna: Hello.'")
    ] = False,
    subtitles: Annotated[
        Path | None,
        typer.Option(help="Write when each sentence and word is spoken: .srt, .vtt or .json.", metavar="FILE"),
    ] = None,
    lexicon: Annotated[
        Path | None, typer.Option(help="Pronunciations of your own: a word, a tab and its IPA on each line.")
    ] = None,
    speed: Annotated[float, typer.Option(help="2 is twice as fast.")] = _USUAL.speed,
    seconds: Annotated[
        float | None, typer.Option(help="Say it in exactly this time, instead of --speed.", show_default=False)
    ] = None,
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
    consent: Annotated[
        str | None,
        typer.Option(
            help='Who agreed to the use of the voice, kept with --save-voice: "own voice", or the name of a file.',
            metavar="WORDS",
        ),
    ] = None,
    mark: Annotated[
        bool, typer.Option("--mark/--no-mark", help="Write into the file that it is synthetic, and by which model.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as one JSON object.")] = False,
) -> None:
    """Say a text in someone's voice.

    Long texts are said sentence by sentence; with --out - each sentence is in the pipe before the next is begun.
    In a text, \\[pause 0.8s] is silence, and \\[\\[ɹˈeɪzə]] is said as its IPA.

    [bold]Examples[/bold]

    myxtts synth "Good morning." --model runs/anna --voice reference.wav --out good-morning.wav

    myxtts synth "صبح بخیر" --model runs/anna --voice reference.wav --language fa --out sobh.wav --save-voice anna

    myxtts synth --file lines.txt --model runs/anna --voice anna --out spoken

    myxtts synth - --model runs/anna --voice anna --out - < chapter.txt | aplay
    """
    from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.text.lexicon import load_lexicon

    screen = Screen(as_json=as_json)
    model = _check_request(text, model, out, file, save_voice, is_dialogue=dialogue, as_json=as_json)
    _check_additions(out, file, voice, save_voice, subtitles, is_dialogue=dialogue)
    options = SpeechOptions(speed=speed, seconds=seconds, seed=seed, num_steps=ode_steps, guidance=guidance)
    lines = _read_lines(text, file, is_dialogue=dialogue)
    loaded, kind = choose_vocoder(load_bundle(model), vocoder)
    name = loaded.check_new_name(save_voice) if save_voice is not None else None
    # Voices and texts that cannot be used are reported before TensorFlow is loaded.
    with mute_decoders():
        sources = _find_voices(loaded, lines, _read_weights(voice), screen.warn)
    turns = _plan_turns(loaded, lines, sources, language, load_lexicon(lexicon).entries if lexicon else None)
    if loaded.exported is None:
        load_tensorflow()
    synthesizer = Synthesizer(loaded, vocoder=kind, warn=screen.warn)
    embeddings = {speaker: synthesizer.resolve(source) for speaker, source in sources.items()}
    result: dict[str, Any] = {"model": str(loaded.folder), "sample_rate_hz": synthesizer.rate}
    result["language"] = turns[0].pieces[0].language if turns else loaded.find_language(language)
    if name is not None:
        result["voice"] = str(_save_voice(loaded, name, sources[""], embeddings[""], language, consent, screen))
    jobs = _make_jobs(turns, embeddings, out, is_batch=file is not None and not dialogue)
    speak = partial(synthesizer.speak, options=options)
    label = loaded.describe_mark() if mark else ""
    if jobs and not mark:
        screen.warn("The sound is not marked as synthetic (--no-mark).")
    if out == _STREAM:
        _stream(jobs[0], speak, synthesizer.rate, label)
    elif jobs:
        result["files"] = _write_files(jobs, speak, synthesizer, subtitles, label, screen)
    screen.finish(result)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A text, and its pieces for the model."""

    line: TextLine
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class _Job:
    """What goes into one file: pieces with their voices."""

    pieces: list[tuple[Piece, SpeakerEmbedding]]
    path: Path


def _check_additions(
    out: str | None,
    file: Path | None,
    voice: list[str] | None,
    save_voice: str | None,
    subtitles: Path | None,
    *,
    is_dialogue: bool,
) -> None:
    """Raises UsageError where --dialogue or --subtitles contradict other arguments."""
    if is_dialogue and (voice or save_voice is not None):
        given = "--voice" if voice else "--save-voice"
        raise UsageError(
            f"With --dialogue each line names its voice, and {given} is given.", next_step=f"Leave out {given}."
        )
    if subtitles is not None:
        from myxtts.synthesis.timing import check_subtitle_path

        check_subtitle_path(subtitles)
        if file is not None and not is_dialogue:
            raise UsageError("Subtitles belong to one sound in a file.", next_step="Say one text, with --out FILE.")


def _check_request(
    text: str | None,
    model: Path | None,
    out: str | None,
    file: Path | None,
    save_voice: str | None,
    *,
    is_dialogue: bool,
    as_json: bool,
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
        if file is not None and not is_dialogue:
            raise UsageError("A file of texts becomes a folder of WAV files.", next_step="Give --out FOLDER.")
        if as_json:
            raise UsageError("Sound and JSON cannot both go to standard output.", next_step="Leave out --json.")
        if sys.stdout.isatty():
            raise UsageError("A terminal cannot play sound.", next_step="Send it to a player: … --out - | aplay")
    elif out is not None and (file is None or is_dialogue):
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


def _read_lines(text: str | None, file: Path | None, *, is_dialogue: bool) -> list[TextLine]:
    """Returns the texts: the lines of --file or of a dialogue, or a single one from the argument or stdin."""
    from myxtts.synthesis.sentences import TextLine, read_dialogue, read_stdin, read_texts

    if file is not None:
        return read_dialogue(file) if is_dialogue else read_texts(file)
    if text is None:
        return []
    text = read_stdin() if text == _STREAM else text
    return read_dialogue(text) if is_dialogue else [TextLine("", text, "")]


def _save_voice(
    loaded: LoadedBundle,
    name: str,
    source: VoiceSource,
    embedding: SpeakerEmbedding,
    language: str | None,
    consent: str | None,
    screen: Screen,
) -> Path:
    """Saves the voice with its language and who consented, and says where."""
    own = loaded.find_language(language) if language is not None else source.language
    agreed = consent or source.consent
    path = loaded.voices.save(name, embedding, source.references, language=own, consent=agreed)
    screen.notices.print(f"Voice {name!r} saved in {path}.", markup=False)
    if not agreed:
        screen.warn('It does not say who agreed to its use: add --consent, such as --consent "own voice".')
    return path


def _plan_turns(
    loaded: LoadedBundle,
    lines: list[TextLine],
    sources: Mapping[str, VoiceSource],
    language: str | None,
    lexicon: Mapping[str, str] | None,
) -> list[_Turn]:
    """Splits every text into pieces, in the language of its line, else of --language, else of its voice."""
    turns = []
    for line in lines:
        try:
            spoken = loaded.find_language(line.language or language, sources[line.speaker])
            turns.append(_Turn(line, list(loaded.plan(line.text, spoken, lexicon))))
        except MyXTTSError as error:
            if line.place:
                raise type(error)(f"{line.place}: {error.problem}", next_step=error.next_step) from error
            raise
    return turns


def _find_voices(loaded: LoadedBundle, lines: list[TextLine], asked: VoiceLike, warn: Say) -> dict[str, VoiceSource]:
    """Returns the voice of each speaker of a dialogue, or under '' that of --voice."""
    sources: dict[str, VoiceSource] = {}
    for line in [line for line in lines if line.speaker]:
        try:
            sources.setdefault(line.speaker, loaded.find_voice(line.speaker, warn))
        except MyXTTSError as error:
            raise type(error)(f"{line.place}: {error.problem}", next_step=error.next_step) from error
    return sources or {"": loaded.find_voice(asked, warn)}


def _read_weights(voices: list[str] | None) -> VoiceLike:
    """Returns voices given as NAME=WEIGHT with their weights, any others as they are."""
    pairs = [_WEIGHTED.fullmatch(voice) for voice in voices or ()]
    if not any(pairs) or any(Path(voice).exists() for voice in voices or ()):
        return voices or None
    if not all(pairs):
        raise UsageError(
            f"Some voices have a weight and some have none: {', '.join(voices or ())}.",
            next_step="Give each its weight, such as --voice anna=0.7 --voice reza=0.3.",
        )
    return {match["name"]: float(match["weight"]) for match in pairs if match}


def _make_jobs(
    turns: list[_Turn], embeddings: Mapping[str, SpeakerEmbedding], out: str | None, *, is_batch: bool
) -> list[_Job]:
    """Returns a job for each text of a file, or one for all turns of a dialogue."""
    from myxtts.synthesis.sentences import join_turns

    voiced = [(embeddings[turn.line.speaker], turn.pieces) for turn in turns]
    if not is_batch:
        return [_Job(list(join_turns(voiced)), Path(out or ""))] if turns else []
    paths = [Path(out or "") / f"{turn.line.id}.wav" for turn in turns]
    return [_Job(list(join_turns([turn])), path) for turn, path in zip(voiced, paths, strict=True)]


def _write_files(
    jobs: list[_Job],
    speak: Callable[..., Iterator[SpokenPiece]],
    synthesizer: Synthesizer,
    subtitles: Path | None,
    label: str,
    screen: Screen,
) -> list[dict[str, Any]]:
    """Synthesises each job as a whole and writes its file; returns paths and timings for JSON."""
    from myxtts.features.wave_file import write_sound
    from myxtts.synthesis.timing import write_subtitles

    made: list[dict[str, Any]] = []
    with show_progress("Speaking", len(jobs), "texts") as view:
        for number, job in enumerate(jobs, 1):
            if job.path.exists():
                screen.notices.print(f"Replacing {job.path}.", markup=False)
            started = time.perf_counter()
            wave, sentences = synthesizer.join(speak(job.pieces))
            took_s = time.perf_counter() - started
            write_sound(job.path, wave, label)
            fields: dict[str, Any] = {
                "duration_s": round(wave.duration_s, 3),
                "took_s": round(took_s, 3),
                "num_pieces": len(job.pieces),
            }
            if subtitles is not None:
                write_subtitles(subtitles, sentences)
                fields["subtitles"] = str(subtitles)
            made.append({"path": str(job.path), **fields})
            view.update(number)
    for row in made[:3]:
        screen.console.print(f"{row['path']}: {row['duration_s']:.1f} s, made in {row['took_s']:.1f} s", markup=False)
    if len(made) > 3:
        total_s = sum(row["duration_s"] for row in made)
        screen.console.print(f"… {len(made):,} files with {total_s:.1f} s in all", markup=False)
    return made


def _stream(job: _Job, speak: Callable[..., Iterator[SpokenPiece]], rate: int, label: str) -> None:
    """Writes a WAV header of unknown length, then each piece as soon as it is synthesised.

    A player that closes the pipe before the end gives exit code 1, without a message.
    """
    from myxtts.features.wave_file import encode_samples, make_wav_header

    sound = sys.stdout.buffer
    try:
        sound.write(make_wav_header(rate, mark=label))
        for part in speak(job.pieces):
            sound.write(encode_samples(part.wave))
            sound.flush()
    except BrokenPipeError as error:
        # Python flushes stdout at exit, which would raise again: send the rest of the buffer to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from error
