"""`make doors`: other people's programs speak an exported voice, and a recogniser counts their words.

piper-tts, wyoming-piper and sherpa-onnx say sentences with the exported demo voice, `myxtts serve` says them over HTTP,
`myxtts synth` as it always does. pocketsphinx, whose package brings its model, hears all of them: each door may have at
most one point more word errors than `synth`, and must have about as much sound.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import httpx
import numpy as np

from benchmarks.doors import make_demo_voice
from benchmarks.doors_server import start_server
from benchmarks.harness import Measurement, write_results
from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.features.wave_file import write_sound
from myxtts.synthesis.loaded_bundle import LoadedBundle, load_bundle
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.tools.recognition import count_mistakes

_PLACE = Path(__file__).parents[1] / "build" / "doors"
_PYTHON = _PLACE / "venv" / "bin" / "python"
_PROGRAM = Path(__file__).with_name("outside_programs.py")
_DOORS = ("serve", "piper", "wyoming", "sherpa")
_SPEAKER, _LANGUAGE = "en01", "en"
_NUM_SENTENCES = 100
"""Fewer can be given as an argument, for a look."""
_MAX_POINTS = 1.0
_MAX_LENGTH_SHARE = 0.25
"""Other programs pause differently between sentences, and leave out the silence of its ends or not."""


def main(num_sentences: int) -> int:
    run, spoken = make_demo_voice(), _PLACE / "spoken"
    shutil.rmtree(spoken, ignore_errors=True)
    texts = _list_texts(load_bundle(run), num_sentences)
    say_here(run, texts, spoken)
    voice = _export(run)
    (spoken / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    command = [str(_PYTHON), str(_PROGRAM), "speak", str(voice), _SPEAKER, str(spoken / "texts.json"), str(spoken)]
    subprocess.run(command, check=True)
    measurements = compare(spoken, texts)
    for measurement in measurements:
        sys.stdout.write(f"{measurement.describe()}\n")
    sys.stdout.write(f"       written to {write_results('doors-outside', measurements)}\n")
    return 0 if all(measurement.holds for measurement in measurements) else 1


def _list_texts(loaded: LoadedBundle, num_sentences: int) -> list[str]:
    """Sentences as they are spoken, so that numbers cannot be read differently."""
    generator, grammar = np.random.default_rng(5), load_grammar(_LANGUAGE)
    sentences = (compose_sentence(grammar, generator) for _ in range(num_sentences))
    return [loaded.frontend.normalize(sentence, _LANGUAGE) for sentence in sentences]


def say_here(run: Path, texts: list[str], spoken: Path) -> None:
    """Says the texts by `synth` and over HTTP."""
    for name in ("synth", "serve"):
        (spoken / name).mkdir(parents=True)
    synthesizer = Synthesizer.load(run)
    for number, text in enumerate(texts):
        write_sound(spoken / "synth" / f"{number}.wav", synthesizer.say(text, _SPEAKER, _LANGUAGE), "")
    with start_server(run, _SPEAKER) as (url, _):
        for number, text in enumerate(texts):
            body = {"input": text, "response_format": "pcm"}
            answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=120).raise_for_status()
            with wave.open(str(spoken / "serve" / f"{number}.wav"), "wb") as file:
                file.setparams((1, 2, 24_000, 0, "NONE", ""))
                file.writeframes(answer.content)


def _export(run: Path) -> Path:
    from myxtts.export.piper import choose_piper_voice, export_piper

    loaded = load_bundle(run)
    voice = choose_piper_voice(loaded, (), _LANGUAGE, "demo")
    sys.stdout.write(f"{export_piper(loaded, voice, 'griffin_lim', _PLACE / 'piper').describe()}\n")
    return _PLACE / "piper" / "demo.onnx"


def compare(spoken: Path, texts: list[str]) -> list[Measurement]:
    """Word errors of every door against those of `synth`, and the length of its sound."""
    errors = {name: _count_errors(spoken / name, texts) for name in ("synth", *_DOORS)}
    lengths_s = {name: _measure_s(spoken / name, len(texts)) for name in errors}
    measurements = []
    for name in _DOORS:
        note = f"{100 * errors[name]:.1f} % of words, synth {100 * errors['synth']:.1f} %; {len(texts)} sentences"
        points = 100 * (errors[name] - errors["synth"])
        measurements.append(
            Measurement(f"{name}: word errors above synth", points, "points", "at most", _MAX_POINTS, note)
        )
        share = abs(lengths_s[name] / lengths_s["synth"] - 1)
        told = f"{lengths_s[name]:.1f} s against {lengths_s['synth']:.1f} s"
        measurements.append(
            Measurement(f"{name}: length of the sound", share, "off", "at most", _MAX_LENGTH_SHARE, told)
        )
    return measurements


def _count_errors(folder: Path, texts: list[str]) -> float:
    files = folder / "files.json"
    files.write_text(json.dumps([str(folder / f"{number}.wav") for number in range(len(texts))]), encoding="utf-8")
    done = subprocess.run([str(_PYTHON), str(_PROGRAM), "hear", str(files)], check=True, capture_output=True, text=True)
    mistakes = [count_mistakes(text, heard) for heard, text in zip(json.loads(done.stdout), texts, strict=True)]
    return sum(one.num_word_edits for one in mistakes) / sum(one.num_words for one in mistakes)


def _measure_s(folder: Path, num_files: int) -> float:
    total_s = 0.0
    for number in range(num_files):
        with wave.open(str(folder / f"{number}.wav")) as file:
            total_s += file.getnframes() / file.getframerate()
    return total_s


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else _NUM_SENTENCES))
