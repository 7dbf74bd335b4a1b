"""Small prepared corpora of recordings in many formats, for the loaders."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from tests.conftest import RATE_HZ, synthesize_clip

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import Corpus, open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.pipeline.batch import Arrays, BatchLayout
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.recordings import RecordingSource

DATA = DataConfig(text_frontend="characters", val_share=0.0)
NUM_REFERENCE_FRAMES = 60
SEED = 3


@dataclass(frozen=True)
class Clip:
    """One recording to write; silence of `pause_s` stands before and behind the sound."""

    seconds: float = 0.8
    suffix: str = ".wav"
    subtype: str | None = None
    container: str | None = None
    rate_hz: int = RATE_HZ
    num_channels: int = 1
    pause_s: float = 0.0
    edit: Callable[[Path], None] | None = None

    def write(self, path: Path, seed: int) -> None:
        pause = np.zeros(int(self.pause_s * self.rate_hz), np.float32)
        sound = np.concatenate([pause, synthesize_clip(self.seconds, seed, self.rate_hz), pause])
        # Channels that differ show how they are mixed.
        channels = np.stack([sound * (1 - 0.3 * channel) for channel in range(self.num_channels)], axis=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, channels, self.rate_hz, subtype=self.subtype, format=self.container)
        if self.edit is not None:
            self.edit(path)


def insert_chunk(path: Path, place: int, chunk: bytes) -> None:
    """A WAV file with one more chunk; place 0 is the end."""
    content = path.read_bytes()
    content = content[:place] + chunk + content[place:] if place else content + chunk
    path.write_bytes(content[:4] + struct.pack("<I", len(content) - 8) + content[8:])


PLAIN_CLIPS = tuple(Clip(0.5 + 0.11 * number, pause_s=0.25 * (number % 3)) for number in range(11))
MIXED_CLIPS = (
    *PLAIN_CLIPS[:4],
    Clip(0.9, ".flac", pause_s=0.3),
    Clip(0.7, ".ogg"),
    Clip(0.6, subtype="PCM_24"),
    Clip(0.8, subtype="FLOAT", pause_s=0.1),
    Clip(1.1, num_channels=2, pause_s=0.2),
    Clip(0.5, ".flac", num_channels=2),
)

EVEN_CHUNK, ODD_CHUNK = b"LIST\4\0\0\0INFO", b"note\3\0\0\0abc\0"
# By name a recording, and what keeps TensorFlow from decoding it.
FORMATS = {
    "mono": (Clip(), ""),
    "stereo": (Clip(num_channels=2), ""),
    "another rate": (Clip(rate_hz=48_000), ""),
    "a chunk before the samples": (Clip(edit=partial(insert_chunk, place=36, chunk=EVEN_CHUNK)), ""),
    "a chunk behind the samples": (Clip(edit=partial(insert_chunk, place=0, chunk=EVEN_CHUNK)), ""),
    "an odd chunk before the samples": (Clip(edit=partial(insert_chunk, place=36, chunk=ODD_CHUNK)), "unusual WAV"),
    "an odd chunk behind the samples": (Clip(edit=partial(insert_chunk, place=0, chunk=ODD_CHUNK)), "unusual WAV"),
    "a chunk before the format": (Clip(edit=partial(insert_chunk, place=12, chunk=EVEN_CHUNK)), "unusual WAV"),
    "FLAC": (Clip(suffix=".flac"), "FLAC"),
    "Vorbis": (Clip(suffix=".ogg"), "OGG"),
    "MP3": (Clip(suffix=".mp3"), "MP3"),
    "24 bits": (Clip(subtype="PCM_24"), "24-bit WAV"),
    "8 bits": (Clip(subtype="PCM_U8"), "8-bit WAV"),
    "floating point": (Clip(subtype="FLOAT"), "float WAV"),
    "logarithmic": (Clip(subtype="ULAW"), "unusual WAV"),
    "RF64": (Clip(container="RF64"), "RF64"),
    "extensible": (Clip(container="WAVEX"), "unusual WAV"),
}


def make_corpus(folder: Path, clips: Sequence[Clip], data: DataConfig = DATA, **options: Any) -> Corpus:
    """Recordings of two speakers in two languages."""
    recordings = folder / "recordings"
    lines = ["id|audio|text|speaker|language\n"]
    for number, clip in enumerate(clips):
        clip.write(recordings / "wavs" / f"clip{number:02}{clip.suffix}", seed=number)
        speaker, language = ("zoe", "adam", "adam")[number % 3], ("en", "es")[number % 2]
        lines.append(f"clip{number:02}|wavs/clip{number:02}{clip.suffix}|Words {'x' * number}.|{speaker}|{language}\n")
    (recordings / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    prepare_corpus([Recordings(recordings, "manifest")], folder / "corpus", data, num_threads=1, **options)
    return open_corpus(folder / "corpus")


def order_rows(source: RecordingSource, batch_size: int = 4, num_shapes: int = 2, multiple_of: int = 1) -> BatchOrder:
    """Batches of all recordings; what silence takes up counts, so every loader's spectrograms fit."""
    columns = source.columns
    return BatchOrder(
        np.arange(len(source)),
        columns["mel_length"],
        columns["tokens_length"],
        columns["speaker"],
        keys=columns["id_hash"],
        source_frames=columns["source_frames"],
        seed=SEED,
        batch_size=batch_size,
        num_shapes=num_shapes,
        multiple_of=multiple_of,
    )


def list_plans(order: BatchOrder, num_epochs: int = 1) -> list[BatchPlan]:
    return [order.batch(position) for position in range(num_epochs * order.num_batches_per_epoch)]


def make_arrays(plan: BatchPlan, n_mels: int = DATA.n_mels, *, has_durations: bool = False) -> Arrays:
    """A buffer of its own for one batch."""
    layout = BatchLayout.of_features([plan.shape], n_mels, NUM_REFERENCE_FRAMES, has_durations=has_durations)
    return layout.view(plan.shape)


def copy_arrays(arrays: Arrays) -> Arrays:
    """The arrays of a batch, in a form that outlives its buffer."""
    return {name: np.array(array) for name, array in arrays.items()}


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def replace_by_noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 100)
