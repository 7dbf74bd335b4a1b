"""Runs in an environment of its own (build/doors/venv) with piper-tts, wyoming-piper, sherpa-onnx and moonshine-voice.

    python outside_programs.py speak VOICE.onnx SPEAKER TEXTS.json OUT    WAV files by each program: OUT/piper/0.wav ...
    python outside_programs.py hear LANGUAGE_FILES.json                   prints what the recogniser hears, as JSON

It imports nothing of MyXTTS.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import wave
from pathlib import Path
from typing import Any

_PORT = 10_233
_START_S = 60.0


def speak(voice: Path, speaker: str, texts: list[str], out: Path) -> None:
    for name, say in (("piper", say_with_piper), ("sherpa", say_with_sherpa), ("wyoming", say_with_wyoming)):
        (out / name).mkdir(parents=True, exist_ok=True)
        say(voice, speaker, texts, out / name)


def say_with_piper(voice: Path, speaker: str, texts: list[str], out: Path) -> None:
    from piper import PiperVoice, SynthesisConfig

    loaded = PiperVoice.load(voice)
    number = loaded.config.speaker_id_map.get(speaker)
    for index, text in enumerate(texts):
        with wave.open(str(out / f"{index}.wav"), "wb") as file:
            loaded.synthesize_wav(text, file, SynthesisConfig(speaker_id=number))


def say_with_sherpa(voice: Path, speaker: str, texts: list[str], out: Path) -> None:
    """sherpa-onnx 2.0 has no phonemiser of its own: it takes code points, here those of piper-tts."""
    import numpy as np
    import sherpa_onnx
    from piper.phonemize_espeak import EspeakPhonemizer

    described = json.loads(Path(f"{voice}.json").read_text(encoding="utf-8"))
    vits = sherpa_onnx.OfflineTtsVitsModelConfig(
        model=str(voice), tokens=str(voice.with_name("tokens.txt")), noise_scale=described["inference"]["noise_scale"]
    )
    tts = sherpa_onnx.OfflineTts(sherpa_onnx.OfflineTtsConfig(model=sherpa_onnx.OfflineTtsModelConfig(vits=vits)))
    phonemizer = EspeakPhonemizer()
    for index, text in enumerate(texts):
        config = sherpa_onnx.GenerationConfig()
        config.sid = described["speaker_id_map"].get(speaker, 0)
        sentences = phonemizer.phonemize(described["espeak"]["voice"], text)
        config.phoneme_codepoints = [[ord(sign) for sign in sentence] for sentence in sentences]
        made = tts.generate(text, config)
        write_wav(out / f"{index}.wav", np.asarray(made.samples), made.sample_rate)


def say_with_wyoming(voice: Path, speaker: str, texts: list[str], out: Path) -> None:
    """Starts wyoming-piper as Home Assistant has it, and asks it with the client of the package wyoming."""
    command = [sys.executable, "-m", "wyoming_piper", "--voice", voice.stem, "--uri", f"tcp://127.0.0.1:{_PORT}"]
    command += ["--data-dir", str(voice.parent), "--download-dir", str(voice.parent), "--speaker", speaker]
    server = subprocess.Popen(command)
    try:
        asyncio.run(ask_wyoming(voice.stem, speaker, texts, out))
    finally:
        server.terminate()
        server.wait()


async def ask_wyoming(name: str, speaker: str, texts: list[str], out: Path) -> None:
    from wyoming.audio import AudioChunk
    from wyoming.client import AsyncClient
    from wyoming.tts import Synthesize, SynthesizeVoice

    deadline = time.monotonic() + _START_S
    for index, text in enumerate(texts):
        client = AsyncClient.from_uri(f"tcp://127.0.0.1:{_PORT}")
        while True:
            try:
                await client.connect()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)
        voice = SynthesizeVoice(name=name, speaker=speaker)
        await client.write_event(Synthesize(text=text, voice=voice).event())
        sound, rate = b"", 0
        while (event := await client.read_event()) is not None and event.type != "audio-stop":
            if event.type == "error":
                raise RuntimeError(event.data)
            if AudioChunk.is_type(event.type):
                chunk = AudioChunk.from_event(event)
                sound, rate = sound + chunk.audio, chunk.rate
        await client.disconnect()
        with wave.open(str(out / f"{index}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(sound)


def write_wav(path: Path, samples: Any, rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())


def hear(paths: list[str]) -> list[str]:
    """What the recogniser of moonshine-voice hears; this version of the package brings its English model `tiny-en`."""
    import numpy as np
    from moonshine_voice import ModelArch, Transcriber, get_model_path

    transcriber, heard = Transcriber(get_model_path("tiny-en"), ModelArch.TINY), []
    for path in paths:
        with wave.open(path) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
            rate = file.getframerate()
        found = transcriber.transcribe_without_streaming(samples.tolist(), rate)
        heard.append(" ".join(line.text for line in found.lines))
    return heard


if __name__ == "__main__":
    if sys.argv[1] == "hear":
        sys.stdout.write(json.dumps(hear(json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))))
    else:
        speak(
            Path(sys.argv[2]), sys.argv[3], json.loads(Path(sys.argv[4]).read_text(encoding="utf-8")), Path(sys.argv[5])
        )
