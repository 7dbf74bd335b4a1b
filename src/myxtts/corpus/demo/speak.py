"""Synthesises the clips of the demo corpus with espeak-ng, with room reflections and noise, in several processes.

Speakers are variants of espeak-ng voices, each with its own pitch, rate, reflections and noise level. A clip depends on
the seed, the speaker and its number alone, not on the clips before it or on the process: each has random generators
seeded with [seed, speaker] (speaker), [seed, speaker, 1] (sentences) and [seed, speaker, 2, clip] (rendering).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.errors import MyXTTSError, StorageError, UsageError
from myxtts.storage.atomic import explain_storage_errors
from myxtts.storage.regular_file import open_output
from myxtts.text.espeak import synthesize
from myxtts.text.normalize import normalize_text
from myxtts.text.phonemes import find_voice
from myxtts.types import Waveform

# Variant, pitch, pitch range, words per minute (espeak's scales). Female and male voices alternate, the most different
# first, so that a few speakers already differ.
_VARIANTS = (
    "f2 52 55 162, m3 42 52 158, f4 46 60 150, m1 36 48 168, Annie 48 45 170, m7 50 55 152, f3 60 52 164, "
    "Michael 56 50 160, linda 42 50 156, m5 40 62 166, f5 50 58 172, Andy 38 50 154, belinda 44 48 160, "
    "Lee 46 54 150, f1 54 50 168, m6 34 56 158, shelby 50 54 152, Mario 58 48 164, aunty 48 56 148, "
    "robert 44 50 170, grandma 46 50 146, pablo 52 52 162, m2 48 58 156, quincy 40 46 160"
).split(", ")
_NUM_REFLECTIONS = 4
WAV_FOLDER = "wavs"
MIN_DURATION_S, TYPICAL_DURATION_S, MAX_DURATION_S = 3.0, 6.7, 12.0
"""Clips outside the limits are discarded; the typical duration estimates how many clips there will be."""
_SHARE_OF_PAIRS = 0.3
"""Share of clips with two sentences: longer ones, with a pause inside."""
_MAX_TRIES_PER_SENTENCE = 1000
"""After that many sentences that the speaker has already, the grammar counts as exhausted."""
_ERRORS = {kind.__name__: kind for kind in MyXTTSError.__subclasses__()}
"""Errors by the name under which a worker process reports them."""
_PROGRAM = "from myxtts.corpus.demo.speak import serve; serve()"


@dataclass(frozen=True, slots=True)
class Speaker:
    """A synthetic speaker and its room. `noise_level` scales noise of standard deviation 1; reflections are pairs of a
    delay in seconds and a gain."""

    id: str
    number: int
    language: str
    variant: str
    pitch: int
    pitch_range: int
    rate_wpm: int
    noise_level: float
    reflections: tuple[tuple[float, float], ...]


def choose_speakers(languages: Sequence[str], num_speakers: int, seed: int) -> list[Speaker]:
    """Returns speakers that alternate between the languages. A speaker does not depend on how many there are."""
    speakers = []
    for number in range(num_speakers):
        language = languages[number % len(languages)]
        turn = number // len(languages)
        # Another order for each language, so that no two languages share their first voices.
        start = len(_VARIANTS) // len(languages) * (number % len(languages))
        variant, *scales = _VARIANTS[(start + turn) % len(_VARIANTS)].split()
        pitch, pitch_range, rate_wpm = map(int, scales)
        generator = np.random.default_rng([seed, number])
        # A variant that is used again differs in pitch and rate.
        lap = turn // len(_VARIANTS)
        speakers.append(
            Speaker(
                id=f"{language}{turn + 1:02}",
                number=number,
                language=language,
                variant=variant,
                pitch=pitch + 12 * lap + int(generator.integers(-3, 4)),
                pitch_range=pitch_range + int(generator.integers(-4, 5)),
                rate_wpm=rate_wpm - 12 * lap + int(generator.integers(-5, 6)),
                noise_level=float(10 ** generator.uniform(-3.4, -2.8)),
                reflections=tuple(
                    (float(generator.uniform(0.004, 0.04)), float(generator.uniform(0.02, 0.12)))
                    for _ in range(_NUM_REFLECTIONS)
                ),
            )
        )
    return speakers


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording of the demo corpus and its text."""

    id: str
    speaker_id: str
    text: str
    duration_s: float


def speak_clips(speaker: Speaker, total_s: float, seed: int, folder: Path) -> Iterator[Clip]:
    """Synthesises clips into the folder's `wavs` until they last about `total_s`; yields each when it is written."""
    spoken_s = 0.0
    num_clips = 0
    for number, text in enumerate(compose_sentences(speaker, seed)):
        sound = render_clip(speaker, number, text, seed)
        if not MIN_DURATION_S <= sound.duration_s <= MAX_DURATION_S:
            continue
        num_clips += 1
        clip = Clip(f"{speaker.id}_{num_clips:05}", speaker.id, text, sound.duration_s)
        _write_wav(folder / WAV_FOLDER / f"{clip.id}.wav", sound)
        yield clip
        spoken_s += sound.duration_s
        # The next clip would on average go as far beyond the end as this one stays before it.
        if spoken_s > total_s - TYPICAL_DURATION_S / 2:
            return


def compose_sentences(speaker: Speaker, seed: int) -> Iterator[str]:
    """Yields texts of one or two sentences, no two the same; raises UsageError when the grammar is exhausted."""
    generator = np.random.default_rng([seed, speaker.number, 1])
    grammar = load_grammar(speaker.language)
    said: set[str] = set()
    while True:
        for _ in range(_MAX_TRIES_PER_SENTENCE):
            sentence = compose_sentence(grammar, generator)
            if generator.random() < _SHARE_OF_PAIRS:
                sentence = f"{sentence} {compose_sentence(grammar, generator)}"
            if sentence not in said:
                break
        else:
            raise UsageError(
                f"After {len(said):,} sentences there is nothing left for the speaker {speaker.id} to say.",
                next_step="Ask for fewer minutes or more speakers.",
            )
        said.add(sentence)
        yield sentence


def render_clip(speaker: Speaker, number: int, text: str, seed: int) -> Waveform:
    """Synthesises one clip, with small random changes of rate and pitch.

    The text is normalised as by the front end, so that numbers sound as they are tokenized.
    """
    generator = np.random.default_rng([seed, speaker.number, 2, number])
    speech = synthesize(
        normalize_text(text, speaker.language),
        find_voice(speaker.language),
        variant=speaker.variant,
        rate_wpm=speaker.rate_wpm + int(generator.integers(-6, 7)),
        pitch=speaker.pitch + int(generator.integers(-2, 3)),
        pitch_range=speaker.pitch_range + int(generator.integers(-4, 5)),
    )
    return Waveform(_put_in_room(speech, speaker, generator), speech.rate)


def _put_in_room(speech: Waveform, speaker: Speaker, generator: np.random.Generator) -> NDArray[np.float32]:
    """Adds silence at both ends, reflections and noise, at a random level.

    Silence of 0.1 to 0.35 s at each end; RMS of the speech 0.05 to 0.1 of full scale; peaks at most 0.95.
    """
    before, after = (int(generator.uniform(0.1, 0.35) * speech.rate) for _ in range(2))
    dry = np.pad(speech.samples, (before, after))
    wet = dry.copy()
    for delay_s, gain in speaker.reflections:
        shift = int(delay_s * speech.rate)
        wet[shift:] += gain * dry[:-shift]
    level = generator.uniform(0.05, 0.1)
    wet *= level / max(float(np.sqrt(np.mean(np.square(speech.samples)))), 1e-4)
    noise = generator.standard_normal(len(wet), np.float32)
    # A 4-tap low-pass filter: room noise is weaker towards high frequencies.
    wet += speaker.noise_level * np.convolve(noise, np.asarray([0.4, 0.3, 0.2, 0.1], np.float32), mode="same")
    peak = float(np.max(np.abs(wet)))
    return np.asarray(wet * min(1.0, 0.95 / peak), np.float32)


def _write_wav(path: Path, sound: Waveform) -> None:
    samples = np.rint(sound.samples * 32767.0).astype("<i2")
    with explain_storage_errors(path, "write"), open_output(path) as file:
        with wave.open(file, "wb") as wav:
            wav.setnchannels(1)
            wav.setsampwidth(2)
            wav.setframerate(sound.rate)
            wav.writeframes(samples.tobytes())
        file.flush()
        os.fsync(file.fileno())


def speak_in_processes(
    speakers: Sequence[Speaker], total_s: float, seed: int, folder: Path, num_processes: int
) -> Iterator[Clip]:
    """Synthesises about `total_s` seconds of each speaker in several processes; yields clips as they are completed.

    One reader thread per process puts its clips into a queue. The first error ends all processes.
    """
    shares = [speakers[start::num_processes] for start in range(min(num_processes, len(speakers)))]
    answers: SimpleQueue[Clip | MyXTTSError | None] = SimpleQueue()
    processes = [_start_process(share, total_s, seed, folder) for share in shares]
    readers = [threading.Thread(target=_read_answers, args=(process, answers)) for process in processes]
    for reader in readers:
        reader.start()
    try:
        num_running = len(readers)
        while num_running:
            answer = answers.get()
            if isinstance(answer, MyXTTSError):
                raise answer
            if answer is None:
                num_running -= 1
            else:
                yield answer
    finally:
        # After an error or an interrupt the other processes are stopped.
        for process in processes:
            process.kill()
        for reader in readers:
            reader.join()


def _start_process(speakers: Sequence[Speaker], total_s: float, seed: int, folder: Path) -> subprocess.Popen[str]:
    """Starts a worker process with its share of the speakers."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        encoding="utf-8",
    )
    assert process.stdin is not None
    job = {"speakers": [asdict(speaker) for speaker in speakers], "total_s": total_s, "seed": seed}
    process.stdin.write(json.dumps(job | {"folder": str(folder)}))
    process.stdin.close()
    return process


def _read_answers(process: subprocess.Popen[str], answers: SimpleQueue[Clip | MyXTTSError | None]) -> None:
    """Puts the clips of a worker process into the queue, then None; runs in a thread of its own."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            answer = json.loads(line)
            if "problem" in answer:
                answers.put(_ERRORS[answer["error"]](answer["problem"], next_step=answer["next_step"]))
            else:
                answers.put(Clip(**answer))
    if process.wait() != 0:
        problem = f"A process that speaks for the demo corpus ended with status {process.returncode}."
        answers.put(StorageError(problem, next_step="See what it printed, and run the same command again."))
    answers.put(None)


def serve() -> None:
    """A worker process: reads its speakers as one JSON object from stdin, and prints a JSON line for each clip."""
    job = json.load(sys.stdin)
    try:
        for fields in job["speakers"]:
            reflections = tuple((delay_s, gain) for delay_s, gain in fields["reflections"])
            speaker = Speaker(**fields | {"reflections": reflections})
            for clip in speak_clips(speaker, job["total_s"], job["seed"], Path(job["folder"])):
                print(json.dumps(asdict(clip)), flush=True)
    except MyXTTSError as error:
        answer = {"error": type(error).__name__, "problem": error.problem, "next_step": error.next_step}
        print(json.dumps(answer), flush=True)
