"""`make doors`: other programs speak an exported voice, and a recogniser counts the word errors of each.

`myxtts synth` says sentences with TensorFlow; `myxtts serve` says them over HTTP; `synth` says them again from ONNX
exports in float32, float16 and int8; piper-tts, wyoming-piper and sherpa-onnx say them from the piper export.
The English recogniser of moonshine-voice transcribes all of them. Each may have at most one point more word errors than
`synth`, and must have about as much sound.

    python -m benchmarks.doors_outside [--model RUN] [--speaker NAME] [--sentences 150]

Without --model it is the demo voice, whose words nobody understands after 300 steps: give a trained English voice.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import wave
from dataclasses import replace
from pathlib import Path
from typing import Literal

import httpx
import numpy as np

from benchmarks.doors import make_demo_voice
from benchmarks.doors_server import start_server
from benchmarks.harness import Measurement, write_results
from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.errors import ConfigError
from myxtts.features.wave_file import write_sound
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle, choose_vocoder, load_bundle
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.tools.recognition import count_mistakes

_PLACE = Path(__file__).parents[1] / "build" / "doors"
_PYTHON = _PLACE / "venv" / "bin" / "python"
_PROGRAM = Path(__file__).with_name("outside_programs.py")
_DTYPES: tuple[Literal["float32", "float16", "int8"], ...] = ("float32", "float16", "int8")
_PROGRAMS = ("piper", "wyoming", "sherpa")
_LANGUAGE = "en"
_NUM_SENTENCES = 150
_MAX_POINTS = 1.0
_MAX_LENGTH_SHARE = 0.25
"""Other programs pause differently between sentences, and leave out the silence of its ends or not."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Word errors of a voice through every door.")
    parser.add_argument("--model", type=Path, help="run or model folder; by default the demo voice")
    parser.add_argument("--speaker", help="by default the English voice of the model, or its first")
    parser.add_argument("--sentences", type=int, default=_NUM_SENTENCES)
    asked = parser.parse_args()
    run, spoken = asked.model or make_demo_voice(), _PLACE / "spoken"
    shutil.rmtree(spoken, ignore_errors=True)
    # The base model has graphs, too; what others are compared with is TensorFlow.
    loaded, vocoder = choose_vocoder(load_bundle(run).without_graphs(), "auto")
    speaker = asked.speaker or loaded.default_voices.get(_LANGUAGE) or loaded.list_voices()[0]
    # Exports are proved with this voice alone: with all of them it would take most of the time.
    loaded = replace(loaded, noted_voices={name: one for name, one in loaded.noted_voices.items() if name == speaker})
    texts = _list_texts(loaded, asked.sentences)
    _say(Synthesizer(loaded, vocoder=vocoder), speaker, texts, spoken / "synth")
    _say_over_http(run, speaker, texts, spoken / "serve")
    doors = ["serve", *_say_exported(loaded, vocoder, speaker, texts, spoken), *_PROGRAMS]
    voice = _export_piper(loaded, vocoder, speaker)
    (spoken / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    command = [str(_PYTHON), str(_PROGRAM), "speak", str(voice), speaker, str(spoken / "texts.json"), str(spoken)]
    subprocess.run(command, check=True)
    measurements = compare(spoken, texts, doors)
    for measurement in measurements:
        sys.stdout.write(f"{measurement.describe()}\n")
    sys.stdout.write(f"       written to {write_results('doors-outside', measurements, 'make doors MODEL=RUN')}\n")
    return 0 if all(measurement.holds for measurement in measurements) else 1


def _list_texts(loaded: LoadedBundle, num_sentences: int) -> list[str]:
    """Sentences as they are spoken, so that numbers cannot be read differently."""
    generator, grammar = np.random.default_rng(5), load_grammar(_LANGUAGE)
    sentences = (compose_sentence(grammar, generator) for _ in range(num_sentences))
    return [loaded.frontend.normalize(sentence, _LANGUAGE) for sentence in sentences]


def _say(synthesizer: Synthesizer, speaker: str, texts: list[str], folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, text in enumerate(texts):
        write_sound(folder / f"{number}.wav", synthesizer.say(text, speaker, _LANGUAGE), "")


def _say_over_http(run: Path, speaker: str, texts: list[str], folder: Path) -> None:
    folder.mkdir(parents=True)
    with start_server(run, speaker) as (url, _):
        for number, text in enumerate(texts):
            body = {"input": text, "response_format": "pcm"}
            answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=120).raise_for_status()
            with wave.open(str(folder / f"{number}.wav"), "wb") as file:
                file.setparams((1, 2, 24_000, 0, "NONE", ""))
                file.writeframes(answer.content)


def _say_exported(
    loaded: LoadedBundle, vocoder: KnownVocoder, speaker: str, texts: list[str], spoken: Path
) -> list[str]:
    """Exports the model in every dtype and says the texts on onnxruntime; returns the names of the exports."""
    from myxtts.export.folder import export_onnx

    names = []
    for dtype in _DTYPES:
        out = _PLACE / f"onnx-{dtype}"
        shutil.rmtree(out, ignore_errors=True)
        try:
            proof = export_onnx(loaded, vocoder, out, dtype, lambda _line: None)
        except ConfigError as error:
            sys.stdout.write(f"       {dtype} is refused: {error}\n")
            continue
        sys.stdout.write(f"       {dtype}: mean difference of spectrograms {proof.mean_difference:.2g}\n")
        names.append(f"onnx {dtype}")
        _say(Synthesizer.load(out), speaker, texts, spoken / names[-1])
    return names


def _export_piper(loaded: LoadedBundle, vocoder: KnownVocoder, speaker: str) -> Path:
    from myxtts.export.piper import choose_piper_voice, export_piper

    voice = choose_piper_voice(loaded, (speaker,), _LANGUAGE, "doors")
    shutil.rmtree(_PLACE / "piper", ignore_errors=True)
    sys.stdout.write(f"{export_piper(loaded, voice, vocoder, _PLACE / 'piper').describe()}\n")
    return _PLACE / "piper" / "doors.onnx"


def compare(spoken: Path, texts: list[str], doors: list[str]) -> list[Measurement]:
    """Word errors of every door against those of `synth`, and the length of its sound."""
    errors = {name: _count_errors(spoken / name, texts) for name in ("synth", *doors)}
    lengths_s = {name: _measure_s(spoken / name, len(texts)) for name in errors}
    measurements = []
    for name in doors:
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
    sys.exit(main())
