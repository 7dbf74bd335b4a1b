"""The resolved configuration is written completely or not at all, and is read back as an equal one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from myxtts.config.catalogue import FIELDS
from myxtts.config.schema import XTTSConfig
from myxtts.config.write import write_resolved
from myxtts.errors import ConfigError, StorageError

TEXTS = {
    "data.language": st.sampled_from(["en", "fa", "no", "pt-br", "zh-Hant"]),
    "data.data_service": st.sampled_from([None, "localhost:5050", "[::1]:80"]),
    "data.model_gpu": st.sampled_from([None, 1, "1,2,3", [2, 0]]),
    "training.crop_frames": st.integers(16, 4096).map(lambda half: 2 * half),
    "training.visible_gpus": st.sampled_from([None, "0", "1,0", [0, 1]]),
    "training.run_name": st.sampled_from(["run", "1e5", "null", "صدا", "a.b-c_d"]),
}
PATHS = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20),
    st.sampled_from(["null", "true", "~", "- x", "a: b", "C:\\data", "#x", "'", '"', "*x", "1e5", "0,1", "%", "@a"]),
)
# Drawn together below, because they limit each other.
LINKED = {
    *("data.sample_rate", "data.fmin", "data.fmax", "data.n_fft", "data.win_length", "data.hop_length", "data.n_mels"),
    *("data.min_duration_s", "data.max_duration_s", "data.frame_budget", "data.max_mel_frames"),
    *("training.enable_xla_compilation", "training.enable_eager_debug", "training.enable_graph_mode"),
    *("model.attention_heads", "model.reference_width", "model.text_width", "model.decoder_width"),
}


def read_limits(metadata: list[Any]) -> dict[str, Any]:
    flat = [nested for item in metadata for nested in (item.metadata if isinstance(item, FieldInfo) else [item])]
    return {name: getattr(item, name) for item in flat for name in ("ge", "gt", "le", "lt") if hasattr(item, name)}


def draw_type(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    limits = read_limits(metadata)
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) is Annotated:
        kind, *nested = get_args(annotation)
        return draw_type(kind, nested)
    if get_args(annotation):
        return st.one_of([draw_type(kind, metadata) for kind in get_args(annotation)])
    if annotation is NoneType:
        return st.none()
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(limits["ge"], limits.get("le", 10**9))
    assert annotation is float
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt", 1e6))
    return st.floats(low, high, exclude_min="gt" in limits, exclude_max="lt" in limits)


def draw_field(key: str, field: FieldInfo) -> st.SearchStrategy[Any]:
    if key in TEXTS:
        return TEXTS[key]
    return PATHS.filter(is_path) if field.annotation == str | None else draw_type(field.annotation, field.metadata)


def is_path(text: str | None) -> bool:
    return text is None or (text.isprintable() and bool(text.strip()))


@st.composite
def draw_linked(draw: st.DrawFn) -> dict[str, Any]:
    rate = draw(st.integers(8000, 48_000))
    fmax = draw(st.floats(1.0, rate / 2))
    n_fft = draw(st.integers(16, 16_384))
    window = draw(st.integers(2, n_fft))
    longest = draw(st.floats(0.1, 3600.0))
    heads = draw(st.sampled_from([1, 2, 3, 8]))
    eager = draw(st.booleans())
    return {
        "sample_rate": rate,
        "fmax": fmax,
        "fmin": draw(st.floats(0.0, fmax, exclude_max=True)),
        "n_fft": n_fft,
        "win_length": window,
        "hop_length": draw(st.integers(1, window)),
        "n_mels": draw(st.integers(1, min(1024, n_fft // 2 + 1))),
        "max_duration_s": longest,
        "min_duration_s": draw(st.floats(0.0, longest, exclude_max=True)),
        "max_mel_frames": draw(st.none() | st.integers(1, 1000)),
        "frame_budget": draw(st.none() | st.integers(1000, 10**6)),
        "attention_heads": heads,
        **{f"{name}_width": 24 * draw(st.integers(1, 64)) for name in ("reference", "text", "decoder")},
        "enable_eager_debug": eager,
        "enable_xla_compilation": draw(st.sampled_from([False, "auto"] if eager else [True, False, "auto"])),
    }


FREE = st.fixed_dictionaries(
    {}, optional={key: draw_field(key, field) for key, field in FIELDS.items() if key not in LINKED}
)


@settings(max_examples=150, deadline=None)
@given(free=FREE, linked=draw_linked())
def test_any_valid_configuration_is_read_back_as_an_equal_one(
    tmp_path_factory: pytest.TempPathFactory, free: dict[str, Any], linked: dict[str, Any]
) -> None:
    config = XTTSConfig(**free, **linked)
    path = write_resolved(config, tmp_path_factory.getbasetemp() / "any")
    loaded = XTTSConfig.load(path)
    assert loaded == config
    assert loaded.to_yaml().splitlines()[0] == f"model_size: {config.model_size}" + (
        f"  # {path}:1" if config.model_size != "small" else ""
    )


def test_sections_keep_their_order_and_changed_values_their_origin() -> None:
    text = XTTSConfig(batch_size=4, gpu_card="rtx3060").to_yaml()
    assert text.index("\ndata:\n") < text.index("\nmodel:\n") < text.index("\ntraining:\n")
    assert "  batch_size: 4  # argument\n" in text
    assert "  buffer_size: 8  # preset rtx3060\n" in text
    assert "  sample_rate: 22050\n" in text


def test_a_file_name_cannot_smuggle_settings_into_the_comments(tmp_path: Path) -> None:
    source = tmp_path / "a\n  batch_size: 7\n#.yaml"
    source.write_text("data:\n  buffer_size: 4\n")
    config = XTTSConfig.load(source)
    assert XTTSConfig.load(write_resolved(config, tmp_path / "run")) == config


def test_the_run_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "x"
    assert write_resolved(XTTSConfig(), folder) == folder / "config.yaml"
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]


def test_content_reaches_the_disk_before_its_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    real_fsync = os.fsync

    def record_fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(("folder" if target.is_dir() else "file", (tmp_path / "config.yaml").exists()))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_fsync)
    write_resolved(XTTSConfig(), tmp_path)
    assert synced == [("file", False), ("folder", True)]


@pytest.mark.parametrize(
    ("code", "next_step"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_a_failing_disk_leaves_the_old_file_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, next_step: str
) -> None:
    write_resolved(XTTSConfig(batch_size=1), tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=os.strerror(code)) as caught:
        write_resolved(XTTSConfig(batch_size=2), tmp_path)
    assert next_step in caught.value.next_step
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert XTTSConfig.load(tmp_path / "config.yaml").data.batch_size == 1


def test_a_file_in_the_way_of_the_folder_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(StorageError, match="run"):
        write_resolved(XTTSConfig(), tmp_path / "run")


def test_a_truncated_file_is_never_mistaken_for_the_whole(tmp_path: Path) -> None:
    whole = XTTSConfig(batch_size=4, seed=9).to_yaml()
    path = tmp_path / "config.yaml"
    path.write_text(whole[: whole.index("seed: 9") + len("see")])
    with pytest.raises(ConfigError):
        XTTSConfig.load(path)
