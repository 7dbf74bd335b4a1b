"""The folder of a run: one trainer at a time, no run overwritten by mistake, and everything in its place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.store.flips import flip_bit
from tests.training.savers import is_of_one_step, make_arrays, make_state

from myxtts.config.schema import XTTSConfig
from myxtts.errors import BusyError, ConfigError, StorageError, UsageError
from myxtts.models.bundle import BUNDLE_FILE_NAME
from myxtts.storage.atomic import TEMPORARY_SUFFIX
from myxtts.training.run.folder import RunFolder, hide_private

PRINTS = {"corpus": "a" * 64, "store": "b" * 64}


def refuse_warnings(message: str) -> None:
    raise AssertionError(message)


def make_config(folder: Path, **settings: Any) -> XTTSConfig:
    return XTTSConfig(run_dir=folder / "run", **settings)


def open_run(config: XTTSConfig, **options: Any) -> RunFolder:
    return RunFolder.open(
        config, **{"fingerprints": PRINTS, "arguments": ["myxtts"], "warn": refuse_warnings, **options}
    )


def resume_run(config: XTTSConfig, **options: Any) -> RunFolder:
    """A run whose checkpoint was found to fit."""
    run = open_run(config, resume=True, **options)
    run.begin_session()
    return run


def train(config: XTTSConfig, *steps: int, **options: Any) -> None:
    with open_run(config, **options) as run:
        for step in steps:
            run.metrics.append({"step": step})
            run.checkpoints.save(step, make_arrays(step), make_state(step))


def test_a_fresh_run_has_everything_in_its_place(tmp_path: Path) -> None:
    config = make_config(tmp_path, seed=5)
    with open_run(config) as run:
        assert run.step == 0
        assert run.checkpoint is None
        assert run.messages == []
        names = {path.name for path in run.path.iterdir()}
        assert names == {".lock", "config.yaml", "environment.json", "fingerprints.json", "samples"}
        assert XTTSConfig.load(run.path / "config.yaml") == config
        assert json.loads((run.path / "fingerprints.json").read_bytes()) == PRINTS
    (session,) = json.loads((run.path / "environment.json").read_bytes())["sessions"]
    assert session["versions"]["tensorflow"].startswith("2.")
    assert session["from_step"] == 0


def test_a_run_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1, 2, 3)
    with resume_run(config) as run:
        assert run.step == 3
        assert run.checkpoint is not None
        assert is_of_one_step(run.checkpoint)
        assert run.messages == [f"Resuming from step 3 of {run.path}."]
    sessions = json.loads((run.path / "environment.json").read_bytes())["sessions"]
    assert [session["from_step"] for session in sessions] == [0, 3]


def test_one_process_of_several_writes_and_the_others_only_read(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1, 2)
    with resume_run(config) as chief, resume_run(config, is_chief=False) as other:
        assert chief.step == other.step == 2
        before = {path: path.stat().st_mtime_ns for path in chief.path.rglob("*")}
        assert other.metrics.append({"step": 3})
        other.metrics.drop_after(0)
        assert {path: path.stat().st_mtime_ns for path in chief.path.rglob("*")} == before
        assert not other.telemetry_path.is_relative_to(chief.path)
        assert not other.micro_batches_path.is_relative_to(chief.path)
    assert not other.telemetry_path.parent.exists()
    fresh = make_config(tmp_path / "fresh")
    with open_run(fresh, is_chief=False):
        assert not (tmp_path / "fresh").exists()


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1, 2)
    with pytest.raises(UsageError, match="checkpoint at step 2") as caught:
        open_run(make_config(tmp_path, seed=9))
    assert "--resume" in caught.value.next_step
    assert "--run-name" in caught.value.next_step
    assert XTTSConfig.load(tmp_path / "run" / "config.yaml") == config
    # The refusal has let go of the folder.
    open_run(config, resume=True).close()


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    with open_run(make_config(tmp_path)) as run:
        run.metrics.append({"step": 1})
    with open_run(make_config(tmp_path, seed=3)) as run:
        assert run.step == 0
        assert list(run.metrics.read()) == []
    with open_run(make_config(tmp_path), resume=True) as run:
        assert "starts at step 0" in run.messages[0]


def test_numbers_of_steps_that_are_done_again_are_dropped(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1, 2)
    with resume_run(config) as run:
        run.metrics.append({"step": 3})
        run.skipped.append({"step": 3, "kind": "skipped"})
    with resume_run(config) as run:
        assert [fields["step"] for fields in run.metrics.read()] == [1, 2]
        assert list(run.skipped.read()) == []


def test_a_damaged_newest_checkpoint_is_said_and_the_one_before_is_used(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1, 2)
    flip_bit(tmp_path / "run" / "checkpoints" / "step-000000002.safetensors", 8 * 3000)
    warnings: list[str] = []
    with resume_run(config, warn=warnings.append) as run:
        assert run.step == 1
        assert run.checkpoints.list_steps() == [1]
    assert "step-000000002" in warnings[0]


def test_harmless_changes_go_on_and_are_said(tmp_path: Path) -> None:
    train(make_config(tmp_path, steps=10), 1)
    changed = make_config(tmp_path, steps=20)
    with resume_run(changed) as run:
        assert run.messages[0].startswith("Changed since the run was started: training.steps: 10 → 20")
    assert XTTSConfig.load(tmp_path / "run" / "config.yaml") == changed


def test_harmful_changes_are_refused_unless_overridden(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1)
    changed = make_config(tmp_path, seed=8)
    with pytest.raises(ConfigError, match=r"training\.seed: 0 → 8"):
        open_run(changed, resume=True)
    assert XTTSConfig.load(tmp_path / "run" / "config.yaml") == config
    with resume_run(changed, override=True) as run:
        assert run.step == 1
        assert run.messages[0].startswith("Accepted because of --force: training.seed")
    assert XTTSConfig.load(tmp_path / "run" / "config.yaml") == changed


def read_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_run_stays_as_it_was_until_its_checkpoint_has_been_restored(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1, 2)
    flip_bit(tmp_path / "run" / "checkpoints" / "step-000000002.safetensors", 8 * 3000)
    before = read_files(tmp_path)
    other = {**PRINTS, "store": "c" * 64}
    changed = make_config(tmp_path, seed=8)
    options: dict[str, Any] = {"override": True, "fingerprints": other, "warn": lambda _line: None}
    with open_run(changed, resume=True, **options) as run:
        assert run.step == 1
        assert read_files(tmp_path) == before
    with resume_run(changed, **options):
        assert XTTSConfig.load(tmp_path / "run" / "config.yaml") == changed


@pytest.mark.parametrize("change", [{"decoder_width": 96}, {"n_mels": 40}, {"ema_decay": 0.0}])
def test_settings_that_the_weights_cannot_fit_are_refused_even_when_overridden(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    config = make_config(tmp_path)
    train(config, 1)
    before = read_files(tmp_path)
    with pytest.raises(ConfigError, match=next(iter(change))) as caught:
        open_run(make_config(tmp_path, seed=8, **change), resume=True, override=True)
    assert "seed" not in caught.value.problem
    assert "--force cannot help" in caught.value.next_step
    assert "--init-from" in caught.value.next_step
    assert read_files(tmp_path) == before
    with resume_run(config) as run:
        assert run.step == 1


def test_another_store_is_refused_unless_overridden(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1)
    other = {**PRINTS, "store": "c" * 64}
    with pytest.raises(ConfigError, match="the store"):
        open_run(config, resume=True, fingerprints=other)
    with resume_run(config, override=True, fingerprints=other):
        pass
    with resume_run(config, fingerprints={}):
        pass
    assert json.loads((tmp_path / "run" / "fingerprints.json").read_bytes()) == other


def test_unknown_origins_are_said(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    train(config, 1)
    (tmp_path / "run" / "fingerprints.json").write_text("{", encoding="utf-8")
    with open_run(config, resume=True) as run:
        assert "does not say which corpus" in run.messages[0]


@pytest.mark.parametrize("damage", ["missing", "half"])
def test_a_lost_configuration_is_not_guessed(tmp_path: Path, damage: str) -> None:
    config = make_config(tmp_path)
    train(config, 1)
    path = tmp_path / "run" / "config.yaml"
    if damage == "missing":
        path.unlink()
    else:
        path.write_text("data: {", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        open_run(config, resume=True)
    assert "--force" in caught.value.next_step
    with open_run(config, resume=True, override=True) as run:
        assert run.step == 1


HOLD = """
import sys, time
from myxtts.config.schema import XTTSConfig
from myxtts.training.run.folder import RunFolder
with RunFolder.open(XTTSConfig(run_dir=sys.argv[1])) as run:
    (run.path / ".left.1.myxtts-tmp").write_bytes(b"half")
    print("open", flush=True)
    time.sleep(60)
"""


@contextmanager
def other_trainer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "open\n"
        try:
            yield trainer
        finally:
            trainer.kill()


def test_a_second_trainer_is_refused_and_a_killed_one_is_succeeded(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    with other_trainer(tmp_path / "run") as trainer:
        with pytest.raises(BusyError, match=rf"process {trainer.pid} \(training\)") as caught:
            open_run(config)
        assert "--run-name" in caught.value.next_step
        os.kill(trainer.pid, signal.SIGKILL)
    assert (tmp_path / "run" / ".lock").exists()
    with open_run(config) as run:
        assert not list(run.path.glob(".left*"))


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file", encoding="utf-8")
    with pytest.raises(StorageError):
        open_run(make_config(tmp_path))


def test_the_environment_names_no_person_host_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
    arguments = [
        "/home/alice/env/bin/myxtts",
        "train",
        "--train-data=/data/alice/voice",
        "--config",
        "/home/alice/x.yaml",
    ]
    with open_run(make_config(tmp_path), arguments=[*arguments, "secret-host:5050", "--set", "data.batch_size=4"]):
        text = (tmp_path / "run" / "environment.json").read_text(encoding="utf-8")
    (session,) = json.loads(text)["sessions"]
    expected = [
        "myxtts",
        "train",
        "--train-data=…/voice",
        "--config",
        "~/x.yaml",
        "HOST:5050",
        "--set",
        "data.batch_size=4",
    ]
    assert session["command"] == expected
    assert "alice" not in text
    assert "secret-host" not in text


@pytest.mark.parametrize("text", ["--epochs", "data.batch_size=4", "runs/mine", "1/2", "https://example.org/a", ""])
def test_what_is_not_private_stays(text: str) -> None:
    assert hide_private(text) == text


def put_bundle(folder: Path, content: str, is_whole: bool = True) -> None:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text(content, encoding="utf-8")
    if is_whole:
        (folder / BUNDLE_FILE_NAME).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("present", "kept"),
    [
        # Killed while the new one was written, between the two renames, and before the old one was removed.
        ({"bundle": "old", ".bundle.new": "half"}, "old"),
        ({".bundle.old": "old", ".bundle.new": "new"}, "new"),
        ({"bundle": "new", ".bundle.old": "old"}, "new"),
        ({".bundle.new": "half"}, None),
    ],
)
def test_a_kill_while_the_bundle_was_replaced_leaves_a_whole_one(
    tmp_path: Path, present: dict[str, str], kept: str | None
) -> None:
    run_path = tmp_path / "run"
    for name, content in present.items():
        suffix = "" if name == "bundle" else TEMPORARY_SUFFIX
        put_bundle(run_path / f"{name}{suffix}", content, is_whole=content != "half")
    with open_run(make_config(tmp_path)) as run:
        found = run.bundle_path / BUNDLE_FILE_NAME
        assert (found.read_text(encoding="utf-8") if found.exists() else None) == kept
        assert not list(run.path.glob(f".*{TEMPORARY_SUFFIX}"))
