"""Says one sentence with the newest bundle of a run, in a process of its own: `python -m myxtts.live.say_once`.

The request comes as JSON on standard input, the answer goes as JSON to standard output, the sound into a file. A
training must not notice: the process sees no GPU, has a low priority, and stays on a few cores.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from myxtts.errors import MyXTTSError

HIDE_GPUS = {"CUDA_VISIBLE_DEVICES": "-1"}
_SPARE_SHARE = 4
"""The process stays on a quarter of the cores, at least on one."""
_PRIORITY = 10
"""Low enough that a busy core gives nine tenths to the training, high enough that a sentence is ready in a minute."""


def stay_in_the_background() -> int:
    """Lowers the priority of this process and limits it to a few cores; returns their number."""
    os.environ.update(HIDE_GPUS)
    os.nice(_PRIORITY)
    cores = sorted(os.sched_getaffinity(0))
    spare = cores[-max(1, len(cores) // _SPARE_SHARE) :]
    os.sched_setaffinity(0, spare)
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(len(spare))
    return len(spare)


def say(request: dict[str, Any]) -> dict[str, Any]:
    """Speaks `text` with the model in `run` into the file `out`; `voice` and `language` may be None."""
    # Loaded here, when priority, cores and GPUs are settled: TensorFlow looks at them once.
    from myxtts.runtime.load_tensorflow import load_tensorflow
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.training.sample_files import encode_wav

    load_tensorflow()
    synthesizer = Synthesizer.load(request["run"], warn=lambda _line: None)
    wave = synthesizer.say(request["text"], request["voice"], request["language"])
    Path(request["out"]).write_bytes(encode_wav(wave.samples, synthesizer.rate, "FLAC"))
    step = synthesizer.loaded.bundle.notes.get("step")
    return {"seconds": round(wave.duration_s, 3), "step": step if isinstance(step, int) else None}


def main() -> None:
    stay_in_the_background()
    try:
        answer = say(json.loads(sys.stdin.readline()))
    except MyXTTSError as error:
        answer = {"error": f"{error.problem} {error.next_step}".strip()}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
