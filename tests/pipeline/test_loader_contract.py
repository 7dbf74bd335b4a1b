"""What every loader keeps to: for the same plan the same batch, whatever way its features come."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.pipeline.recordings import (
    DATA,
    MIXED_CLIPS,
    NUM_REFERENCE_FRAMES,
    PLAIN_CLIPS,
    SEED,
    Clip,
    copy_arrays,
    list_plans,
    make_corpus,
    order_rows,
)

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import Corpus
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.extract import FeatureExtractor
from myxtts.pipeline.batch import Arrays, BatchLayout, Loader, allocate_aligned, hand_over_arrays
from myxtts.pipeline.feed import Feed
from myxtts.pipeline.loaders.native import TFNativeDataLoader
from myxtts.pipeline.loaders.python import PythonLoader
from myxtts.pipeline.loaders.store import CachedLoader
from myxtts.pipeline.order import NO_ROW, BatchOrder, BatchPlan
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.service.address import check_listen_address
from myxtts.pipeline.service.host import DataHost
from myxtts.pipeline.service.loader import open_service_loader
from myxtts.pipeline.splits import BatchRange
from myxtts.pipeline.stages import Stage
from myxtts.pipeline.telemetry import Telemetry
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

LIMITS = AudioLimits.from_config(DATA)
PADDING = np.log(np.float32(DATA.log_floor))
PLENTY_BYTES = 1 << 30
NUM_EPOCHS = 2


@dataclass(frozen=True)
class Scene:
    """A corpus, features of its utterances made one by one, and a loader that knows nothing of them."""

    corpus: Corpus
    store: FeatureStore
    order: BatchOrder
    mels: list[NDArray[np.float32]]
    make_loader: Callable[[], Loader]
    tolerance: float

    @property
    def layout(self) -> BatchLayout:
        return BatchLayout.of_features(self.order.shapes, DATA.n_mels, NUM_REFERENCE_FRAMES)

    def fill(self, loader: Loader, plan: BatchPlan, memory: NDArray[np.uint8] | None = None) -> Arrays:
        return copy_arrays(loader.fill(plan, self.layout.view(plan.shape, memory)))

    def plans(self) -> list[BatchPlan]:
        return list_plans(self.order, NUM_EPOCHS)


@dataclass(frozen=True)
class Material:
    """What the scenes of one corpus share."""

    corpus: Corpus
    store: FeatureStore
    source: RecordingSource
    mels: list[NDArray[np.float32]]


def make_material(folder: Path, clips: tuple[Clip, ...]) -> Material:
    corpus = make_corpus(folder, clips)
    precompute(corpus, folder / "store", DATA, num_threads=1)
    extractor = FeatureExtractor(MelDefinition.from_config(DATA), AudioDefinition.from_config(DATA), LIMITS)
    mels = [extractor.extract(utterance).mel for utterance in corpus.utterances()]
    return Material(corpus, FeatureStore.open(folder / "store"), RecordingSource.open(corpus, DATA), mels)


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Material]:
    folder = tmp_path_factory.mktemp("contract")
    return {
        "plain": make_material(folder / "plain", PLAIN_CLIPS),
        "mixed": make_material(folder / "mixed", MIXED_CLIPS),
    }


MakeLoader = Callable[[Material, int], Loader]


def make_cached(material: Material, _ram_budget_bytes: int) -> Loader:
    return CachedLoader(material.store, NUM_REFERENCE_FRAMES, SEED)


def make_python(material: Material, ram_budget_bytes: int) -> Loader:
    return PythonLoader(material.source, LIMITS, NUM_REFERENCE_FRAMES, SEED, ram_budget_bytes)


def make_native(material: Material, ram_budget_bytes: int) -> Loader:
    return TFNativeDataLoader(material.source, LIMITS, NUM_REFERENCE_FRAMES, SEED, ram_budget_bytes)


def make_service(material: Material, ram_budget_bytes: int) -> Loader:
    order = order_rows(material.source, multiple_of=2)
    loader, _ = open_service_loader(
        material.source,
        DATA.model_copy(update={"data_service": start_service()}),
        BatchRange(order, 0, NUM_EPOCHS * order.num_batches_per_epoch, (0, 1)),
        NUM_REFERENCE_FRAMES,
        SEED,
        ram_budget_bytes,
        lambda _line: None,
    )
    return loader


@cache
def start_service() -> str:
    """The address of a tf.data service in this process, which ends with it."""
    host = DataHost(check_listen_address(None, 0, None), Path(tempfile.mkdtemp()))
    atexit.register(host.stop)
    return host.address


# The graph rounds in another order than the host; the others give the same numbers to the last bit.
WAYS: dict[str, tuple[str, MakeLoader, int, float]] = {
    "cached": ("plain", make_cached, 0, 0.0),
    "cached, mixed formats": ("mixed", make_cached, 0, 0.0),
    "python": ("plain", make_python, 0, 0.0),
    "python, mixed formats": ("mixed", make_python, 0, 0.0),
    "python with memory": ("plain", make_python, PLENTY_BYTES, 0.0),
    "native": ("plain", make_native, 0, 1e-4),
    "native, mixed formats": ("mixed", make_native, 0, 1e-4),
    "native with memory": ("mixed", make_native, PLENTY_BYTES, 1e-4),
    "service": ("plain", make_service, 0, 1e-4),
    "service, mixed formats": ("mixed", make_service, 0, 1e-4),
}


@pytest.fixture(params=WAYS)
def scene(request: pytest.FixtureRequest, materials: dict[str, Material]) -> Iterator[Scene]:
    kind, make_loader, ram_budget_bytes, tolerance = WAYS[request.param]
    material = materials[kind]
    with ExitStack() as loaders:
        yield Scene(
            material.corpus,
            material.store,
            order_rows(material.source, multiple_of=2),
            material.mels,
            lambda: loaders.enter_context(closing(make_loader(material, ram_budget_bytes))),
            tolerance,
        )


def check_equal(batch: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]], tolerance: float = 0.0) -> None:
    for name, values in expected.items():
        np.testing.assert_allclose(batch[name], values, rtol=0, atol=tolerance, err_msg=name)


def test_utterances_of_a_batch_are_as_planned(scene: Scene) -> None:
    loader = scene.make_loader()
    utterances, frontend = list(scene.corpus.utterances()), scene.corpus.load_frontend()
    for plan in scene.plans():
        batch = scene.fill(loader, plan)
        assert loader.name_utterances(plan) == tuple(utterances[row].id if row != NO_ROW else "" for row in plan.rows)
        for place, row in enumerate(plan.rows[: plan.num_real]):
            utterance, mel = utterances[row], scene.mels[row]
            tokens = frontend.encode(utterance.text, utterance.language).ids
            assert batch["token_lengths"][place] == len(tokens)
            np.testing.assert_array_equal(batch["tokens"][place, : len(tokens)], tokens)
            assert (batch["tokens"][place, len(tokens) :] == 0).all()
            assert scene.store.speakers[batch["speaker"][place]] == utterance.speaker
            assert scene.store.languages[batch["language"][place]] == utterance.language
            assert batch["mel_lengths"][place] == len(mel)
            np.testing.assert_allclose(batch["mel"][place, : len(mel)], mel, rtol=0, atol=scene.tolerance)
            np.testing.assert_allclose(batch["mel"][place, len(mel) :], PADDING, rtol=1e-6)


def test_shapes_and_kinds_of_numbers_are_those_of_the_plan(scene: Scene) -> None:
    loader = scene.make_loader()
    for plan in scene.plans():
        batch, size = scene.fill(loader, plan), plan.shape.num_utterances
        assert batch["mel"].shape == (size, plan.shape.num_frames, DATA.n_mels)
        assert batch["tokens"].shape == (size, plan.shape.num_tokens)
        assert batch["reference"].shape == (size, NUM_REFERENCE_FRAMES, DATA.n_mels)
        kinds = {name: values.dtype for name, values in batch.items()}
        assert kinds == {name: np.float32 if name in ("mel", "reference") else np.int32 for name in kinds}


def test_voice_is_a_stretch_of_the_planned_clip_and_the_same_for_every_loader(scene: Scene) -> None:
    loader, cached = scene.make_loader(), CachedLoader(scene.store, NUM_REFERENCE_FRAMES, SEED)
    num_starts = set()
    for plan in scene.plans():
        batch = scene.fill(loader, plan)
        check_equal(batch, scene.fill(cached, plan), scene.tolerance)
        for place, row in enumerate(plan.references[: plan.num_real]):
            mel, length = scene.mels[row], batch["reference_lengths"][place]
            assert length == min(len(mel), NUM_REFERENCE_FRAMES)
            voice = batch["reference"][place, :length]
            starts = [s for s in range(len(mel) - length + 1) if np.abs(mel[s : s + length] - voice).max() <= 1e-4]
            assert len(starts) == 1
            num_starts.add(starts[0])
            np.testing.assert_allclose(batch["reference"][place, length:], PADDING, rtol=1e-6)
    assert len(num_starts) > 5


def test_places_without_an_utterance_are_filled(scene: Scene) -> None:
    loader = scene.make_loader()
    plan = next(plan for plan in scene.plans() if plan.num_real < plan.shape.num_utterances)
    batch = scene.fill(loader, plan)
    for name in ("mel", "reference"):
        np.testing.assert_allclose(batch[name][plan.num_real :], PADDING, rtol=1e-6)
    for name in ("tokens", "token_lengths", "mel_lengths", "speaker", "language", "reference_lengths"):
        assert (batch[name][plan.num_real :] == 0).all()


def test_nothing_is_left_of_the_batch_before(scene: Scene) -> None:
    loader, memory = scene.make_loader(), allocate_aligned(scene.layout.num_bytes)
    for plan in scene.plans():
        for shape in scene.order.shapes:
            for values in scene.layout.view(shape, memory).values():
                values[:] = 77 if values.dtype == np.int32 else np.nan
        check_equal(scene.fill(loader, plan, memory), scene.fill(loader, plan), scene.tolerance)


def test_any_number_of_threads_may_load(scene: Scene) -> None:
    alone, loader = scene.make_loader(), scene.make_loader()
    expected = [scene.fill(alone, plan) for plan in scene.plans()]
    with ThreadPoolExecutor(5) as pool:
        batches = list(pool.map(lambda plan: scene.fill(loader, plan), scene.plans()))
    for batch, wanted in zip(batches, expected, strict=True):
        check_equal(batch, wanted, scene.tolerance)


def test_resuming_anywhere_gives_the_same_batches(scene: Scene) -> None:
    def run(start: int) -> list[Any]:
        stop = len(scene.plans())
        with Feed(
            BatchRange(scene.order, start, stop, (0, 1)),
            scene.make_loader(),
            scene.layout,
            (Stage("transfer", hand_over_arrays, 1),),
            num_workers=2,
            buffer_size=2,
            telemetry=Telemetry(),
        ) as feed:
            return list(feed)

    whole = run(0)
    assert len(whole) == len(scene.plans())
    for start in (1, len(whole) - 2):
        for batch, expected in zip(run(start), whole[start:], strict=True):
            assert (batch.position, batch.ids, batch.num_real) == (expected.position, expected.ids, expected.num_real)
            for name in ("tokens", "mel", "mel_lengths", "reference", "reference_lengths", "speaker"):
                np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name), err_msg=name)
