"""Starts of a compiled training, each in a process of its own: what is compiled, found, damaged and traced ahead."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fork_process import ForkProcess

SHAPES = [7, 9, 7]
NUM_COMPILED = 3
"""Functions: two batch shapes, and the update of the weights."""


@pytest.fixture(scope="module")
def process() -> Iterator[ForkProcess]:
    with ForkProcess("tests.training.compile_forks") as process:
        yield process


@pytest.fixture(scope="module")
def reference(process: ForkProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A training without a cache."""
    trained: dict[str, Any] = run(
        process, "train_shapes", tmp_path_factory.mktemp("off"), is_ahead=True, is_cached=False
    )
    return trained


@pytest.fixture(scope="module")
def filled(process: ForkProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that a first training has filled."""
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    first = run(process, "train_shapes", home, is_ahead=True)
    # The update of the weights is compiled with the first shape.
    assert (first["num_compiled"], first["num_found"]) == (2, 0)
    return home


def run(process: ForkProcess, function: str, home: Path, **arguments: Any) -> Any:
    outcome = process.run(function, home=str(home), **{"shapes": SHAPES, **arguments})
    assert outcome.status == 0, outcome.error
    return outcome.result


def list_kept(home: Path) -> list[Path]:
    return sorted((home / "myxtts" / "compiled").rglob("*.pb.*"))


def test_a_second_start_compiles_nothing_and_gives_the_same_weights(
    process: ForkProcess, filled: Path, reference: dict[str, Any]
) -> None:
    # Graphs are traced in a thread while steps run, and not in the order of the first start.
    again = run(process, "train_shapes", filled)
    assert (again["num_compiled"], again["num_found"], again["num_traces"]) == (0, 2, 2)
    assert again["weights"] == reference["weights"]
    assert sum("found in the cache" in line for line in again["lines"]) == 2
    other_order = run(process, "train_shapes", filled, shapes=[9, 7])
    assert (other_order["num_compiled"], other_order["num_found"]) == (0, 2)
    assert len(list_kept(filled)) == NUM_COMPILED


def test_without_a_cache_everything_is_compiled(reference: dict[str, Any]) -> None:
    assert (reference["num_compiled"], reference["num_found"]) == (2, 0)
    assert sum(" compiled in " in line for line in reference["lines"]) == 2


def test_a_damaged_file_is_compiled_again(process: ForkProcess, filled: Path, reference: dict[str, Any]) -> None:
    damaged = list_kept(filled)[0]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    again = run(process, "train_shapes", filled)
    assert again["num_compiled"] == 1
    assert again["weights"] == reference["weights"]
    assert len(list_kept(filled)) == NUM_COMPILED


def test_two_starts_at_once_both_train_and_leave_a_cache_that_can_be_used(
    process: ForkProcess, tmp_path: Path, reference: dict[str, Any]
) -> None:
    tmp_path.chmod(0o700)
    assert [one["weights"] for one in run(process, "train_at_once", tmp_path)] == [reference["weights"]] * 2
    after = run(process, "train_shapes", tmp_path)
    assert (after["num_compiled"], after["weights"]) == (0, reference["weights"])


@pytest.mark.parametrize("is_blocked", [True, False])
def test_training_goes_on_when_tensorflow_cannot_write_or_read_its_files(
    process: ForkProcess, tmp_path: Path, reference: dict[str, Any], filled: Path, is_blocked: bool
) -> None:
    if not is_blocked:
        # A file that is whole by its checksum, but not what TensorFlow expects.
        place = list_kept(filled)[0].parent
        for kept in list_kept(filled):
            target = tmp_path / kept.relative_to(filled)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = kept.name.rpartition(".")[0]
            (target.parent / f"{name}.{hashlib.sha256(b'no code').hexdigest()}").write_bytes(b"no code")
        assert place.exists()
    tmp_path.chmod(0o700)
    outcome = run(process, "train_despite_cache", tmp_path, is_blocked=is_blocked)
    assert outcome["weights"] == reference["weights"]
    assert sum("cannot be used, so the step is compiled again" in line for line in outcome["lines"]) == 1
    # The files that failed are not tried again.
    assert not list_kept(tmp_path)


def list_traced(home: Path) -> list[Path]:
    return sorted((home / "myxtts" / "compiled").rglob("*.graph.*"))


@pytest.mark.parametrize("num_lanes", [1, 2])
def test_a_second_start_traces_nothing_and_gives_the_same_weights(
    process: ForkProcess, tmp_path: Path, num_lanes: int
) -> None:
    """With one lane XLA compiles the whole step, with two its parts."""
    tmp_path.chmod(0o700)
    plain = run(process, "train_kept", tmp_path, num_lanes=num_lanes, is_cached=False)
    starts = [run(process, "train_kept", tmp_path, num_lanes=num_lanes) for _ in range(2)]
    assert [(one["num_traced"], one["num_compiled"]) for one in starts] == [(2, 2), (0, 0)]
    assert [(one["weights"], one["terms"]) for one in starts] == [(plain["weights"], plain["terms"])] * 2


def test_a_graph_that_is_damaged_or_not_of_this_step_is_traced_again(process: ForkProcess, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    first = run(process, "train_kept", tmp_path)
    assert run(process, "train_kept", tmp_path, key="another configuration")["num_traced"] == 2
    assert run(process, "train_kept", tmp_path, optimizer="pulled")["num_traced"] == 2
    for path in list_traced(tmp_path):
        path.unlink()
    run(process, "train_kept", tmp_path)
    short, foreign = list_traced(tmp_path)
    short.write_bytes(short.read_bytes()[:-100])
    content = b"no graph"
    foreign.rename(foreign.with_suffix(f".{hashlib.sha256(content).hexdigest()}")).write_bytes(content)
    again = run(process, "train_kept", tmp_path)
    assert (again["num_traced"], again["num_compiled"]) == (2, 0)
    assert (again["weights"], again["terms"]) == (first["weights"], first["terms"])
