"""Batches of sound instead of spectrograms, for a data device that computes these: what the host does before it.

A clip of S samples has 1 + S // hop frames, so a batch shape of T frames holds clips of up to T * hop - 1 samples.
Shape legend: B utterances, S samples, N tokens, T frames, R frames of the reference, V samples of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.audio import load_recording
from myxtts.features.definition import MelDefinition
from myxtts.pipeline.batch import (
    BatchAssembler,
    HostBatch,
    Loader,
    Placer,
    ReadTokens,
    UtteranceTable,
    align,
    allocate_aligned,
    find_crop,
    hash_crops,
)
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.loaders.python import MelMemory, check_num_frames, explain_problem
from myxtts.pipeline.order import NO_ROW, BatchPlan
from myxtts.pipeline.recordings import RecordingSource, Survey


@dataclass(frozen=True, slots=True)
class Sound:
    """Clips that spectrograms are to be made of, and the first frame that is wanted of each.

    A place without a clip is silent and has no samples.
    """

    samples: NDArray[np.float32]  # [B, S]
    num_samples: NDArray[np.int32]  # [B]
    first_frames: NDArray[np.int32]  # [B]


class SampleBuffer:
    """Room for the sound of one batch of any of the shapes, in `memory` or in memory of its own."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        definition: MelDefinition,
        num_reference_frames: int,
        memory: NDArray[np.uint8] | None = None,
    ) -> None:
        self._definition = definition
        self._num_voice_samples = count_voice_samples(definition, num_reference_frames)
        num_bytes = measure_sample_buffer_bytes(shapes, definition, num_reference_frames)
        self._memory = allocate_aligned(num_bytes) if memory is None else memory
        assert len(self._memory) >= num_bytes

    def view(self, shape: Shape) -> HostBatch:
        """The arrays of a batch of this shape. They hold whatever was there before."""
        size, place = shape.num_utterances, Placer(self._memory)

        def take_sound(num_samples: int) -> Sound:
            samples = place.take(np.float32, size, num_samples)
            return Sound(samples, place.take(np.int32, size), place.take(np.int32, size))

        return HostBatch(
            mel=take_sound(_count_clip_samples(shape, self._definition)),
            reference=take_sound(self._num_voice_samples),
            **place.take_labels(shape),
        )


def measure_sample_buffer_bytes(shapes: Sequence[Shape], definition: MelDefinition, num_reference_frames: int) -> int:
    """What one buffer weighs, without making it."""
    sample_bytes = np.dtype(np.float32).itemsize
    num_voice_samples = count_voice_samples(definition, num_reference_frames)

    def measure(shape: Shape) -> int:
        sounds = (_count_clip_samples(shape, definition), num_voice_samples)
        numbers = (shape.num_tokens, *[1] * 9)
        widths = (*(sample_bytes * width for width in sounds), *(4 * width for width in numbers))
        return sum(align(shape.num_utterances * width) for width in widths)

    return max(map(measure, shapes))


class SampleReader(Protocol):
    """Where samples come from. `read` is called by several threads at once, with distinct rows."""

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[Any]]: ...


class SampleLoader(Loader):
    """Fills batches with samples. Any number of threads may call it."""

    name = "samples"

    def __init__(
        self,
        table: UtteranceTable,
        read_tokens: ReadTokens,
        reader: SampleReader,
        definition: MelDefinition,
        num_reference_frames: int,
        seed: int,
        check_batch: Callable[[HostBatch, BatchPlan], None] = lambda _batch, _plan: None,
    ) -> None:
        self._reader, self._definition, self._check_batch = reader, definition, check_batch
        self._num_reference_frames, self._seed = num_reference_frames, seed
        self._assembler = BatchAssembler(table, read_tokens, num_reference_frames, seed, definition.log_floor)

    def fill(self, plan: BatchPlan, buffer: SampleBuffer) -> HostBatch:
        batch = buffer.view(plan.shape)
        self._assembler.fill_labels(batch, plan)
        clips = self._reader.read(list_distinct_rows(plan))
        self._fill_clips(batch, plan, clips)
        self._check_batch(batch, plan)
        self._fill_voices(batch, plan, clips)
        return batch

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._assembler.name_utterances(plan)

    def _fill_clips(self, batch: HostBatch, plan: BatchPlan, clips: dict[int, NDArray[Any]]) -> None:
        batch.mel.first_frames[:] = 0
        for place, row in enumerate(plan.rows):
            samples_S = clips[int(row)] if row != NO_ROW else batch.mel.samples[place, :0]
            _put_samples(batch.mel, place, samples_S)
            batch.mel_lengths[place] = self._definition.count_frames(len(samples_S)) if row != NO_ROW else 0

    def _fill_voices(self, batch: HostBatch, plan: BatchPlan, clips: dict[int, NDArray[Any]]) -> None:
        voices, hashes = batch.reference, hash_crops(plan, self._seed)
        for place, row in enumerate(plan.references):
            if row == NO_ROW:
                _put_samples(voices, place, voices.samples[place, :0])
                voices.first_frames[place] = batch.reference_lengths[place] = 0
                continue
            samples_S = clips[int(row)]
            num_frames = self._definition.count_frames(len(samples_S))
            start, length = find_crop(num_frames, self._num_reference_frames, int(hashes[place]))
            stretch, first = cut_voice(samples_S, start, self._num_reference_frames, self._definition)
            _put_samples(voices, place, stretch)
            voices.first_frames[place], batch.reference_lengths[place] = first, length


def list_distinct_rows(plan: BatchPlan) -> list[int]:
    """The rows that a batch needs: a voice may be another utterance of it, which need not be read twice."""
    rows = np.concatenate([plan.rows, plan.references])
    distinct: list[int] = np.unique(rows[rows != NO_ROW]).tolist()
    return distinct


def cut_voice(
    samples_S: NDArray[Any], start_frame: int, num_frames: int, definition: MelDefinition
) -> tuple[NDArray[Any], int]:
    """A stretch of a clip that has the wanted frames just as the whole clip has them, and which is the first of them.

    It begins so many whole hops before them that they do not reach its start, unless that is the start of the clip,
    where it is reflected as the whole clip would be; and likewise at the end.
    """
    lead = min(start_frame, _count_lead_frames(definition))
    begin = (start_frame - lead) * definition.hop_length
    stop = (start_frame + num_frames - 1) * definition.hop_length + definition.min_samples
    return samples_S[begin:stop], lead


def count_voice_samples(definition: MelDefinition, num_frames: int) -> int:
    """The most samples that `cut_voice` gives."""
    return (_count_lead_frames(definition) + num_frames - 1) * definition.hop_length + definition.min_samples


def _count_lead_frames(definition: MelDefinition) -> int:
    """Enough to keep clear of the start, and for what is left to be long enough to be reflected."""
    return -(-definition.min_samples // definition.hop_length)


def _count_clip_samples(shape: Shape, definition: MelDefinition) -> int:
    """The most samples that have as many frames as the shape."""
    return shape.num_frames * definition.hop_length - 1


def _put_samples(sound: Sound, place: int, samples_S: NDArray[Any]) -> None:
    length = len(samples_S)
    sound.samples[place, :length] = samples_S
    sound.samples[place, length:] = 0
    sound.num_samples[place] = length


# Where the samples for a data device come from: recordings, read by graph operations or through Python.
#
# Shape legend: S samples.


class ManyReader(Protocol):
    """Reads several rows in one call, see GraphReader."""

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]: ...


class RecordedSamples:
    """Samples of recordings, made ready for features as everywhere; kept in memory as far as the budget goes.

    With a survey, recordings that TensorFlow can decode are loaded inside its graph.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self,
        source: RecordingSource,
        limits: AudioLimits,
        ram_budget_bytes: int = 0,
        survey: Survey | None = None,
    ) -> None:
        self._source, self._limits = source, limits
        self._min_samples = source.mel_definition.min_samples
        self.memory = MelMemory(ram_budget_bytes, "float32")
        self._is_native = np.zeros(len(source), bool) if survey is None else survey.is_native
        self._graph_reader = None if survey is None else self._make_graph_reader(survey)

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[Any]]:
        """By row its samples [S]."""
        clips: dict[int, NDArray[Any]] = {}
        in_graph = []
        for row in rows:
            kept = self.memory.find(row)
            if kept is not None:
                clips[row] = kept
            elif self._is_native[row]:
                in_graph.append(row)
            else:
                clips[row] = self.memory.keep(row, self.read_in_python(row))
        if in_graph:
            assert self._graph_reader is not None
            for row, samples_S in self._graph_reader.read(in_graph).items():
                self._check(row, samples_S)
                clips[row] = self.memory.keep(row, samples_S)
        return clips

    def read_in_python(self, row: int) -> NDArray[np.float32]:
        """The samples [S] of a row; DataError where the recording cannot be used."""
        utterance = self._source.utterance(row)
        try:
            recording = load_recording(utterance.audio, self._source.audio_definition, self._limits)
        except AudioProblem as problem:
            raise explain_problem(self._source, row, problem) from problem
        if utterance.checksum and recording.checksum != utterance.checksum:
            changed = AudioProblem(Reason.CHANGED, "the recording has changed since it was checked")
            raise explain_problem(self._source, row, changed)
        self._check(row, recording.wave.samples)
        return recording.wave.samples

    def _check(self, row: int, samples_S: NDArray[np.float32]) -> None:
        """Neither too short for a spectrogram nor longer than its place in a batch."""
        if len(samples_S) < self._min_samples:
            short = AudioProblem(Reason.TOO_SHORT, f"{len(samples_S)} samples are left after trimming")
            raise explain_problem(self._source, row, short)
        try:
            check_num_frames(row, self._source.mel_definition.count_frames(len(samples_S)), self._source)
        except AudioProblem as problem:
            raise explain_problem(self._source, row, problem) from problem

    def _make_graph_reader(self, survey: Survey) -> ManyReader:
        from myxtts.pipeline.loaders.recording_graph import GraphReader, make_graph, number_rates

        rates_hz, rate_numbers = number_rates(self._source, survey)
        graph = make_graph(self._source, rates_hz)
        return GraphReader(self._source, graph.load_all_samples, rate_numbers, self.read_in_python)
