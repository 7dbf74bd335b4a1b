"""Speaks the sentences that a model is judged by: `python -m base speak OUT --left-out MANIFEST`.

Writes WAV files and list.json. The named voices say sentences of the project's prompt list, which no training has; each
speaker that training never heard is cloned from the longest of their clips. The other clips of a speaker, and the
recordings that are given for the first named voice, are listed as what the voices are compared with.
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

LANGUAGE = "en"
CLONED = "cloned_voices"
"""The set of sentences that cloned voices say; the others are called by their voices."""


def speak(
    model: Path | None,
    voices: Sequence[str],
    left_out: Path | None,
    recordings: Sequence[Path],
    out: Path,
    num_sentences: int,
) -> None:
    """`recordings` are of the first voice: its speech is compared with them."""
    synthesizer, texts = Synthesizer.load(model), read_prompts(LANGUAGE)[:num_sentences]
    clips = {} if left_out is None else _list_clips(left_out)
    references = {speaker: max(paths, key=_measure_s) for speaker, paths in clips.items()}
    speakers = sorted(references)
    spoken: list[dict[str, str]] = []
    for number, text in enumerate(texts):
        rows: list[tuple[str, str | Path, str]] = [(voice, voice, voice) for voice in voices]
        if speakers:
            speaker = speakers[number % len(speakers)]
            rows.append((CLONED, references[speaker], speaker))
        for name, voice, who in rows:
            path = out / name / f"{number:03}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            wave = synthesizer.say(text, voice=voice, language=LANGUAGE)
            soundfile.write(path, wave.samples, wave.rate)
            spoken.append({"set": name, "file": str(path.relative_to(out)), "text": text, "speaker": who})
    own = {who: [str(path.absolute()) for path in paths if path != references[who]] for who, paths in clips.items()}
    if recordings:
        own[voices[0]] = [str(path.absolute()) for path in recordings]
    (out / "list.json").write_text(json.dumps({"spoken": spoken, "recordings": own}, indent=1), encoding="utf-8")
    sys.stdout.write(f"{len(spoken)} sentences of {len(speakers) + len(voices)} voices in {out}\n")


def _list_clips(manifest: Path) -> Mapping[str, list[Path]]:
    """Recordings of each speaker."""
    found: dict[str, list[Path]] = defaultdict(list)
    for line in manifest.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        found[row["speaker"]].append(manifest.parent / row["audio"])
    return found


def _measure_s(path: Path) -> float:
    return float(soundfile.info(path).duration)
