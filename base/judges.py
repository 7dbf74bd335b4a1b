"""Outside judges of speech, run by the Python of an environment of their own: `python base/judges.py FOLDER`.

    pip install moonshine-voice==0.0.73 resemblyzer==0.1.4 distillmos==0.9.1 soundfile soxr torch "setuptools<81"

Reads list.json of `base speak`; writes heard.json: what the English recogniser of moonshine-voice heard in each file,
the MOS estimate of DistillMOS, and the cosines between the Resemblyzer embedding of the file and those of all speakers.
None of the three was trained with this project's models.
"""

from __future__ import annotations

import json
import sys
import types
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


def judge(folder: Path) -> None:
    # DistillMOS imports torchaudio to read files, which is not needed here and has no build for every torch.
    sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))
    import distillmos
    from moonshine_voice import ModelArch, Transcriber, get_model_path
    from resemblyzer import VoiceEncoder, preprocess_wav

    transcriber, encoder = Transcriber(str(get_model_path("tiny-en")), ModelArch.TINY), VoiceEncoder("cpu")
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
        lines = transcriber.transcribe_without_streaming(samples.tolist(), RATE_HZ).lines
        with torch.no_grad():
            estimate = float(mos(torch.from_numpy(samples)[None]))
        embedding = embed(samples)
        similarities = {speaker: float(embedding @ mean) for speaker, mean in speakers.items()}
        heard.append({"heard": " ".join(line.text for line in lines), "mos": estimate, "similarities": similarities})
    (folder / "heard.json").write_text(json.dumps(heard), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    judge(Path(sys.argv[1]))
