"""Says sentences with the newest bundle of a run, in a process of its own: `python -m myxtts.live.speech_process`.

Requests come as lines of JSON on standard input, answers go as lines of JSON to standard output, sounds into files. The
model stays loaded between two sentences, until the run has a newer bundle or standard input is closed. A training must
not notice: the process sees no GPU, has a low priority, and stays on a few cores.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myxtts.errors import MyXTTSError
from myxtts.models.bundle import BUNDLE_FILE_NAME, BUNDLE_FOLDER_NAME

if TYPE_CHECKING:
    from myxtts.synthesis.synthesizer import Synthesizer

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


class Voice:
    """The model of a run; loaded at the first sentence, and again when the run has a newer bundle."""

    def __init__(self) -> None:
        self._synthesizer: Synthesizer | None = None
        self._loaded: tuple[str, int] | None = None

    def say(self, request: dict[str, Any]) -> dict[str, Any]:
        """Speaks `text` with the model in `run` into the file `out`; `voice` and `language` may be None."""
        synthesizer = self._load(request["run"])
        from myxtts.training.sample_files import encode_wav

        wave = synthesizer.say(request["text"], request["voice"], request["language"])
        Path(request["out"]).write_bytes(encode_wav(wave.samples, synthesizer.rate, "FLAC"))
        step = synthesizer.loaded.bundle.notes.get("step")
        return {"seconds": round(wave.duration_s, 3), "step": step if isinstance(step, int) else None}

    def _load(self, run: str) -> Synthesizer:
        # Imported here, when priority, cores and GPUs are settled: TensorFlow looks at them once.
        from myxtts.runtime.load_tensorflow import load_tensorflow
        from myxtts.synthesis.synthesizer import Synthesizer

        load_tensorflow()
        written_at = _find_time(Path(run) / BUNDLE_FOLDER_NAME / BUNDLE_FILE_NAME)
        if self._synthesizer is None or self._loaded != (run, written_at):
            # The old one is given up first, so that two models are never in memory.
            self._synthesizer = None
            self._synthesizer = Synthesizer.load(run, warn=lambda _line: None)
            self._loaded = run, written_at
        return self._synthesizer


def _find_time(path: Path) -> int:
    """When a file was written, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def main() -> None:
    stay_in_the_background()
    # What a library prints must not be taken for an answer.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        voice = Voice()
        for line in sys.stdin:
            try:
                answer = voice.say(json.loads(line))
            except MyXTTSError as error:
                answer = {"problem": error.problem, "next_step": error.next_step}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
