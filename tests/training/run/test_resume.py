"""`--resume` finds the run that is meant, and goes on with its settings from any folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.training.savers import make_arrays, make_state

from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.errors import UsageError
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.resume import find_run, find_usual_run, follow_run, list_chosen, load_run_settings


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "corpus").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def begin_run(name: str = "run", **settings: Any) -> Path:
    config = XTTSConfig(run_name=name, train_data="corpus", **settings)
    with RunFolder.open(config, arguments=["myxtts"]) as run:
        run.checkpoints.save(1, make_arrays(1), make_state(1))
    return run.path


def test_the_configuration_of_a_run_holds_absolute_paths(working_folder: Path) -> None:
    path = begin_run(cache_dir="features")
    data = XTTSConfig.load(path / "config.yaml").data
    assert (data.train_data, data.cache_dir) == (str(working_folder / "corpus"), str(working_folder / "features"))


@pytest.mark.parametrize("spelling", ["corpus", "../project/corpus", "absolute", "link"])
def test_another_spelling_of_the_same_path_is_no_change(working_folder: Path, spelling: str) -> None:
    begin_run(val_data="corpus")
    if spelling == "link":
        (working_folder / "link").symlink_to("corpus")
    named = str(working_folder / "corpus") if spelling == "absolute" else spelling
    with RunFolder.open(XTTSConfig(train_data=named, val_data=named), resume=True) as run:
        assert run.messages == ["Resuming from step 1 of runs/run."]


def test_a_run_is_named_by_folder_bundle_or_name(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = begin_run("mine")
    (path / "bundle").mkdir()
    assert [find_run(name) for name in ("runs/mine", "mine", "runs/mine/bundle")] == [path] * 3
    with pytest.raises(UsageError, match=r"no run at other.*Runs here: mine\.") as caught:
        find_run("other")
    assert "--resume RUN" in caught.value.next_step
    monkeypatch.chdir("/")
    assert find_run(working_folder / path) == working_folder / path


def test_resume_alone_means_the_usual_run_or_the_newest(working_folder: Path) -> None:
    assert find_usual_run(XTTSConfig(), "run") is None
    for age, name in enumerate(["new", "old"]):
        path = begin_run(name)
        for file in [*path.glob("checkpoints/*"), path / "config.yaml"]:
            os.utime(file, (1e9 - age, 1e9 - age))
    # A store has a config.yaml too.
    write_resolved(XTTSConfig(), working_folder / "runs" / "store")
    assert find_usual_run(XTTSConfig(), "run") == Path("runs/new")
    assert find_usual_run(XTTSConfig(run_name="old"), "run") == Path("runs/old")
    assert find_usual_run(XTTSConfig(run_name="none"), "run") is None
    assert find_usual_run(XTTSConfig(), "run", lambda path: path.name == "old") == Path("runs/old")
    begin_run("run")
    assert find_usual_run(XTTSConfig(), "run") == Path("runs/run")


def test_a_run_goes_on_with_its_own_settings_and_what_is_given_now(tmp_path: Path, working_folder: Path) -> None:
    path = begin_run(model_size="tiny", seed=7, steps=100)
    config = follow_run(XTTSConfig(steps=200), path)
    assert (config.model_size, config.training.seed, config.training.steps) == ("tiny", 7, 200)
    assert config.model == XTTSConfig(model_size="tiny").model
    assert config.data.train_data == str(working_folder / "corpus")
    assert config.training.run_path == path
    assert follow_run(XTTSConfig(run_name="other"), path).training.run_path == path
    # A preset that is given now brings its settings, so that the check refuses them.
    assert follow_run(XTTSConfig(model_size="normal"), path).model == XTTSConfig(model_size="normal").model


def test_corpus_and_store_of_a_run_stay_together(working_folder: Path) -> None:
    path = begin_run(cache_dir="features")
    assert follow_run(XTTSConfig(train_data="../project/corpus"), path).data.cache_dir == str(
        working_folder / "features"
    )
    assert follow_run(XTTSConfig(train_data="other"), path).data.cache_dir is None
    assert follow_run(XTTSConfig(cache_dir="moved"), path).data.train_data == str(working_folder / "corpus")
    (working_folder / "corpus").rmdir()
    assert follow_run(XTTSConfig(cache_dir="moved"), path).data.train_data is None


def test_a_run_that_was_moved_goes_on_from_another_folder(
    tmp_path: Path, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = begin_run(seed=7).absolute().rename(tmp_path / "elsewhere")
    monkeypatch.chdir("/")
    config = follow_run(XTTSConfig(), moved)
    assert config.training.run_path == moved
    with RunFolder.open(config, resume=True, arguments=["myxtts"]) as run:
        assert run.messages == [f"Resuming from step 1 of {moved}."]
        run.begin_session()
    assert load_run_settings(moved).training.run_path == moved


def test_runs_with_relative_paths_are_seen_from_the_folder_of_their_runs(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begin_run().absolute()
    write_resolved(XTTSConfig(train_data="corpus", cache_dir="features"), path)
    monkeypatch.chdir("/")
    data = load_run_settings(path).data
    assert (data.train_data, data.cache_dir) == (str(working_folder / "corpus"), str(working_folder / "features"))
    write_resolved(XTTSConfig(train_data="gone"), path)
    assert load_run_settings(path).data.train_data == "/gone"


def test_only_what_the_user_chose_is_taken_from_the_command_line() -> None:
    assert list_chosen(XTTSConfig()) == {}
    chosen = list_chosen(XTTSConfig(model_size="tiny", seed=3, batch_size=5))
    assert (chosen["model_size"], chosen["training.seed"], chosen["data.batch_size"]) == ("tiny", 3, 5)
    assert chosen["model.text_width"] == 160
    assert "training.learning_rate" not in chosen
