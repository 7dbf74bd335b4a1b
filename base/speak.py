"""Speaks the sentences that the base model is judged by: `python -m base speak OUT --left-out MANIFEST`.

Writes WAV files and list.json. The best voice says sentences of the project's prompt list, which no training has; each
speaker that training never heard is cloned from the longest of their clips. The other clips of a speaker are listed as
what the clone is compared with.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import soundfile

from myxtts import Synthesizer
from myxtts.corpus.prompts import read_prompts

BEST_VOICE, LANGUAGE = "lj", "en"
BEST, CLONED = "best", "cloned"
"""The two sets of sentences."""


def speak(model: Path | None, left_out: Path, recordings: Sequence[Path], out: Path, num_sentences: int) -> None:
    """`recordings` are some of the best voice's own, to compare it with."""
    synthesizer, texts = Synthesizer.load(model), read_prompts(LANGUAGE)[:num_sentences]
    clips = _list_clips(left_out)
    references = {speaker: max(paths, key=_measure_s) for speaker, paths in clips.items()}
    speakers = sorted(references)
    spoken: list[dict[str, str]] = []
    for number, text in enumerate(texts):
        speaker = speakers[number % len(speakers)]
        for name, voice, who in ((BEST, BEST_VOICE, BEST_VOICE), (CLONED, references[speaker], speaker)):
            path = out / name / f"{number:03}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            wave = synthesizer.say(text, voice=voice, language=LANGUAGE)
            soundfile.write(path, wave.samples, wave.rate)
            spoken.append({"set": name, "file": str(path.relative_to(out)), "text": text, "speaker": who})
    own = {who: [str(path.absolute()) for path in paths if path != references[who]] for who, paths in clips.items()}
    own[BEST_VOICE] = [str(path.absolute()) for path in recordings]
    (out / "list.json").write_text(json.dumps({"spoken": spoken, "recordings": own}, indent=1), encoding="utf-8")
    sys.stdout.write(f"{len(spoken)} sentences of {len(speakers) + 1} voices in {out}\n")


def _list_clips(manifest: Path) -> Mapping[str, list[Path]]:
    """Recordings of each speaker."""
    found: dict[str, list[Path]] = defaultdict(list)
    for line in manifest.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        found[row["speaker"]].append(manifest.parent / row["audio"])
    return found


def _measure_s(path: Path) -> float:
    return float(soundfile.info(path).duration)
