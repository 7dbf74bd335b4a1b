"""`myxtts synth`: synthesises text with a reference voice, to a WAV file, a folder of them, or a stream.

Everything that can be refused (arguments, texts, voice) is checked before TensorFlow and the model are loaded.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.help import ADVANCED, SPEED, WHAT, WHERE, DecoderSteps, Seed, VocoderName, option
from myxtts.cli.screen import Screen, discard_output, mute_decoders, print_note, show_progress
from myxtts.cli.speech.synth_arguments import STREAM, check_additions, check_request, find_free_path, read_lines
from myxtts.errors import MyXTTSError, UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.synthesis.options import SpeechOptions

if TYPE_CHECKING:
    from myxtts.synthesis.loaded_bundle import ChosenVoice, LoadedBundle, VoiceLike
    from myxtts.synthesis.sentences import Piece, TextLine
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.synthesis.timing import SpokenPiece
    from myxtts.synthesis.voices import SpeakerEmbedding, VoiceSource
    from myxtts.types import Say

_USUAL = SpeechOptions()
_WEIGHTED = re.compile(r"(?P<name>.+)=(?P<weight>\d+(?:\.\d+)?|\.\d+)")


def run_synth(
    text: Annotated[str | None, typer.Argument(help="Text to say; - reads standard input.", metavar="TEXT")] = None,
    model: Annotated[
        Path | None,
        option("Folder of a run or exported model. \\[default: base, the model of the package]", "MODEL", WHAT),
    ] = None,
    voice: Annotated[
        list[str] | None,
        option(
            "Recording of 3 to 8 s, or a name of myxtts voices. Repeat it to average recordings, or as "
            "NAME=WEIGHT to mix voices. \\[default: the model's default voice]",
            "VOICE",
            WHAT,
        ),
    ] = None,
    language: Annotated[
        str | None,
        option("Language of the text. \\[default: that of the voice, else by the script of the text]", "CODE", WHAT),
    ] = None,
    file: Annotated[
        Path | None,
        option("Say every line of this file, or of a table (.csv, .tsv, .jsonl) with id and text.", "FILE", WHAT),
    ] = None,
    dialogue: Annotated[
        bool,
        option(
            "Each line starts with a voice and a colon: 'anna: Hello.'",
            panel=WHAT,
            flag="--dialogue/--no-dialogue",
            show_default=False,
        ),
    ] = False,
    lexicon: Annotated[
        Path | None, option("Your own pronunciations: one word, tab, IPA per line.", "FILE", WHAT)
    ] = None,
    out: Annotated[
        str | None,
        option(
            "Output file (.wav, .flac, .ogg, .opus, .mp3), folder with --file, or - to stream. \\[default: out.wav]",
            "PATH",
            WHERE,
        ),
    ] = None,
    subtitles: Annotated[
        Path | None, option("Write the times of sentences and words: .srt, .vtt or .json.", "FILE", WHERE)
    ] = None,
    save_voice: Annotated[
        str | None, option("Save the voice under this name, for --voice NAME.", "NAME", WHERE)
    ] = None,
    consent: Annotated[
        str | None, option('With --save-voice: who agreed to the use of the voice, such as "own voice".', "TEXT", WHERE)
    ] = None,
    speed: Annotated[float, option("2 is twice as fast.", "N", SPEED)] = _USUAL.speed,
    seconds: Annotated[float | None, option("Length of the speech, instead of --speed.", "N", SPEED)] = None,
    ode_steps: DecoderSteps = _USUAL.num_steps,
    guidance: Annotated[
        float | None, option("Classifier-free guidance: above 1 follows the voice more closely.", "N", ADVANCED)
    ] = None,
    seed: Seed = _USUAL.seed,
    vocoder: VocoderName = "auto",
    mark: Annotated[
        bool, option("Note in the file that the speech is synthetic.", panel=ADVANCED, flag="--mark/--no-mark")
    ] = True,
    checkpoint: Annotated[
        int | None,
        option(
            "Use the checkpoint of this step, if the run kept it. \\[default: the weights of its bundle]",
            "STEP",
            ADVANCED,
            min=0,
        ),
    ] = None,
    as_json: Annotated[bool, option("Print the result as one JSON object.", flag="--json")] = False,
) -> None:
    """Say a text in a voice of the model, or in the voice of a recording.

    Without --model the base model of the package speaks. With --out - speech is streamed sentence by sentence. In the
    text, \\[pause 0.8s] is silence and \\[\\[ɹˈeɪzə]] is said as IPA. Clone only voices of people who agreed to it.

    [bold]Examples[/bold]

    myxtts synth "Good morning." --out hello.wav

    myxtts synth "Good morning." --model runs/anna --voice anna.wav --out a.wav

    myxtts synth "صبح بخیر" --model runs/anna --voice reference.wav --language fa

    myxtts synth --file lines.txt --model runs/anna --voice anna --out spoken

    myxtts synth - --model runs/anna --voice anna --out - < chapter.txt | aplay
    """
    from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.text.lexicon import load_lexicon

    screen = Screen(as_json=as_json)
    check_request(text, model, voice, out, file, save_voice, is_dialogue=dialogue, as_json=as_json)
    if out is None and (text is not None or file is not None):
        out = find_free_path("out" if file is not None and not dialogue else "out.wav")
    check_additions(out, file, voice, save_voice, subtitles, is_dialogue=dialogue)
    options = SpeechOptions(speed=speed, seconds=seconds, seed=seed, num_steps=ode_steps, guidance=guidance)
    lines = read_lines(text, file, is_dialogue=dialogue)
    found = (
        load_bundle(model, print_note)
        if checkpoint is None
        else _load_checkpoint(model, checkpoint, save_voice, screen.warn)
    )
    loaded, kind = choose_vocoder(found, vocoder)
    name = loaded.check_new_name(save_voice) if save_voice is not None else None
    # Voices and texts that cannot be used are reported before TensorFlow is loaded.
    with mute_decoders():
        asked = _find_voice(loaded, lines, _read_weights(voice), screen.warn, is_saved=name is not None)
    entries = load_lexicon(lexicon).entries if lexicon else None
    turns = _plan_turns(loaded, lines, asked, language, entries, screen.warn)
    _tell_defaults(loaded, turns, language, screen)
    if loaded.needs_tensorflow:
        load_tensorflow()
    synthesizer = Synthesizer(loaded, vocoder=kind, warn=screen.warn)
    sources = dict.fromkeys([*([] if asked is None else [asked]), *(turn.chosen.source for turn in turns)])
    # Of a checkpoint a saved voice has no name here: it is encoded for this call only, and stays saved as it is.
    embeddings = {
        source: synthesizer.resolve(source if checkpoint is None else replace(source, name="")) for source in sources
    }
    result: dict[str, Any] = {"model": str(loaded.folder), "sample_rate_hz": synthesizer.rate}
    result["language"] = turns[0].pieces[0].language if turns else loaded.find_language(language)
    if name is not None:
        assert asked is not None, "a voice that is saved is asked for"
        result["voice"] = str(_save_voice(loaded, name, asked, embeddings[asked], language, consent, screen))
    jobs = _make_jobs(turns, embeddings, out, is_batch=file is not None and not dialogue)
    speak = partial(synthesizer.speak, options=options)
    label = loaded.describe_mark() if mark else ""
    if jobs and not mark:
        screen.warn("The file is not marked as synthetic speech (--no-mark).")
    if out == STREAM:
        _stream(jobs[0], speak, synthesizer.rate, label)
    elif jobs:
        result["files"] = _write_files(jobs, speak, synthesizer, subtitles, label, screen)
    screen.finish(result)


def _load_checkpoint(run: Path | None, step: int, save_voice: str | None, warn: Say) -> LoadedBundle:
    """Loads the model of a run as it was at a step; voices cannot be saved for it."""
    if run is None:
        raise UsageError("The base model has no checkpoints.", next_step="Name a run: --model RUN.")
    if save_voice is not None:
        raise UsageError(
            "A voice is saved for the model of a run, not for one of its checkpoints.",
            next_step="Leave out --checkpoint or --save-voice.",
        )
    load_tensorflow()
    from myxtts.tools.compare.checkpoints import load_checkpoint

    return load_checkpoint(run, step, warn)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A text with its voice and language, and its pieces for the model."""

    line: TextLine
    chosen: ChosenVoice
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class _Job:
    """What goes into one file: pieces with their voices."""

    pieces: list[tuple[Piece, SpeakerEmbedding]]
    path: Path


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
        screen.warn('No consent is noted with this voice. Add who agreed: --consent "own voice".')
    return path


def _plan_turns(
    loaded: LoadedBundle,
    lines: list[TextLine],
    voice: VoiceSource | None,
    language: str | None,
    lexicon: Mapping[str, str] | None,
    warn: Say,
) -> list[_Turn]:
    """Splits every text into pieces, in the language of its line, else of --language, else of its voice.

    Lines of a dialogue name their voices; others are said by `voice`, or by the model's default voice.
    """
    turns = []
    speakers: dict[str, VoiceSource | None] = {"": voice}
    for line in lines:
        try:
            if line.speaker not in speakers:
                with mute_decoders():
                    speakers[line.speaker] = loaded.find_voice(line.speaker, warn)
            chosen = loaded.choose_voice(speakers[line.speaker], line.language or language, line.text)
            turns.append(_Turn(line, chosen, list(loaded.plan(line.text, chosen.language, lexicon))))
        except MyXTTSError as error:
            if line.place:
                raise type(error)(f"{line.place}: {error.problem}", next_step=error.next_step) from error
            raise
    return turns


def _find_voice(
    loaded: LoadedBundle, lines: list[TextLine], asked: VoiceLike, warn: Say, *, is_saved: bool
) -> VoiceSource | None:
    """Returns the voice of --voice, or the model's only one; None where lines name it, or the default one is meant."""
    if any(line.speaker for line in lines) or (asked is None and loaded.default_voices and not is_saved):
        return None
    return loaded.find_voice(asked, warn)


def _tell_defaults(loaded: LoadedBundle, turns: list[_Turn], language: str | None, screen: Screen) -> None:
    """Says which default voices speak which languages."""
    by_default = [turn for turn in turns if turn.chosen.default]
    defaults = {turn.chosen.language: turn.chosen.default for turn in by_default}
    if defaults:
        voices = ", ".join(f"{voice} ({code})" for code, voice in defaults.items())
        is_guessed = language is None and not all(turn.line.language for turn in by_default)
        reason = "; the language is chosen by the script of the text" if is_guessed else ""
        plural = "s" if len(defaults) > 1 else ""
        screen.notices.print(f"Model {loaded.name}, default voice{plural} {voices}{reason}.", markup=False)


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
    turns: list[_Turn], embeddings: Mapping[VoiceSource, SpeakerEmbedding], out: str | None, *, is_batch: bool
) -> list[_Job]:
    """Returns a job for each text of a file, or one for all turns of a dialogue."""
    from myxtts.synthesis.sentences import join_turns

    voiced = [(embeddings[turn.chosen.source], turn.pieces) for turn in turns]
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
                screen.notices.print(f"{job.path} exists and is overwritten.", markup=False)
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
        discard_output(sys.stdout)
        raise typer.Exit(1) from error
