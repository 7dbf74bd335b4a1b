"""The command line as a user meets it: exit codes by kind, nothing on standard output but results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.myxtts_process import run_myxtts

MYXTTS = (sys.executable, "-m", "myxtts")
CHARACTERS = ("--set", "data.text_frontend=characters")


def run_program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`myxtts ARGUMENTS` from the start of Python on."""
    env = {**os.environ, "COLUMNS": "160", **environment}
    return subprocess.run([*MYXTTS, *arguments], capture_output=True, text=True, timeout=120, env=env)


def test_version() -> None:
    done = run_program("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("myxtts ")


@pytest.mark.parametrize("command", [(), ("prepare",), ("demo",), ("config",), ("data-worker",)])
def test_help_has_examples_and_is_quick_to_read(command: tuple[str, ...]) -> None:
    done = run_myxtts(*command, "--help")
    assert done.returncode == 0
    assert "myxtts " in done.stdout
    assert "Example" in done.stdout or not command


@pytest.mark.parametrize("command", ["--version", "--help", "train --help", "config", "config --json"])
def test_a_reader_that_has_seen_enough_is_no_error(command: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)  # What `| head -3` does when it has its three lines.
    done = subprocess.run([*MYXTTS, *command.split()], stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write_end)
    assert done.returncode == 0
    assert "BrokenPipe" not in done.stderr


def test_tensorflow_is_not_loaded(tmp_path: Path) -> None:
    commands = [
        ("--version",),
        ("--help",),
        ("prepare", "--help"),
        ("config",),
        ("config", "--plan"),
        ("config", "--set", "data.batch_sise=3"),
        ("prepare", "nowhere", "--out", "x"),
    ]
    program = (
        "import json, sys\nfrom myxtts.cli.main import run\nfor command in json.loads(sys.argv[1]):\n"
        "    try:\n        run(command)\n    except SystemExit:\n        pass\n"
        "    assert not {'tensorflow', 'keras'} & set(sys.modules), command"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(commands)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("prepare",), 2, "Missing argument"),
        (("nonsense",), 2, "No such command"),
        (("config", "--set", "batch_size"), 2, "KEY=VALUE"),
        (("prepare", "nowhere", "--out", "out"), 3, "nothing at nowhere"),
        (("config", "--set", "data.batch_sise=3"), 4, "data.batch_size"),
        (("config", "--batch-size", "0"), 4, "--batch-size"),
        (("config", "--config", "none.yaml"), 4, "none.yaml"),
        (("prepare", "nowhere", "--out", "out", "--language", "7"), 4, "--language"),
        (("config", "--visible-gpus", "7", "--plan"), 5, "7"),
    ],
)
def test_errors_are_one_paragraph_with_the_exit_code_of_their_kind(
    tmp_path: Path, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    done = run_myxtts(*arguments, cwd=tmp_path)
    assert done.returncode == exit_code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or exit_code == 5


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run_myxtts("prepare", "nowhere", "--out", "out", "--debug", cwd=tmp_path)
    assert "Traceback" in done.stderr
    assert "DataError" in done.stderr


def test_json_is_one_object_and_everything_else_goes_to_standard_error(ljspeech: Path, tmp_path: Path) -> None:
    (ljspeech / "wavs" / "LJ003.wav").unlink()
    done = run_myxtts("prepare", ljspeech, "--out", tmp_path / "out", "--json", *CHARACTERS)
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["num_utterances"] == 19
    assert result["reasons"] == {"missing-file": 1}
    assert result["rejections"][0]["id"] == "LJ003"
    assert Path(result["files"]["corpus"]).is_file()
    assert "19 utterances" in done.stderr


def test_json_errors_are_json_too(tmp_path: Path) -> None:
    done = run_myxtts("prepare", "nowhere", "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["kind"] == "data"


def test_rejections_are_shown_as_a_table(ljspeech: Path, tmp_path: Path) -> None:
    (ljspeech / "wavs" / "LJ003.wav").unlink()
    done = run_myxtts("prepare", ljspeech, "--out", tmp_path / "out", *CHARACTERS)
    assert "metadata.csv:4" in done.stdout
    assert "missing-file" in done.stdout
    assert "\x1b[" not in done.stdout + done.stderr


def test_hostile_transcript_cannot_drive_the_terminal(ljspeech: Path, tmp_path: Path) -> None:
    with (ljspeech / "metadata.csv").open("a", encoding="utf-8") as file:
        file.write("\x1b[2J[red]evil|x|x\n")
    done = run_program("prepare", str(ljspeech), "--out", str(tmp_path / "out"), *CHARACTERS, FORCE_COLOR="1")
    assert "\x1b[2J" not in done.stdout
    assert "[red]evil" in done.stdout


def test_no_color_is_respected(tmp_path: Path) -> None:
    done = run_program("config", "--batch-size", "4", FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b[3" not in done.stdout


def test_strict_ends_with_the_data_exit_code(ljspeech: Path, tmp_path: Path) -> None:
    (ljspeech / "wavs" / "LJ003.wav").unlink()
    done = run_myxtts("prepare", ljspeech, "--out", tmp_path / "out", "--strict", *CHARACTERS)
    assert done.returncode == 3
    assert "1 missing-file" in done.stderr


def test_config_shows_values_and_where_they_came_from(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("data:\n  batch_size: 48\n  num_workers: 3\n", encoding="utf-8")
    done = run_myxtts(
        "config", "--config", "my.yaml", "--num-workers", "5", "--gpu-card", "rtx3060", "--json", cwd=tmp_path
    )
    settings = json.loads(done.stdout)["settings"]
    assert settings["data.batch_size"] == {"value": 48, "origin": "my.yaml:2"}
    assert settings["data.num_workers"] == {"value": 5, "origin": "--num-workers"}
    assert settings["data.buffer_size"] == {"value": 16, "origin": "preset rtx3060"}
    assert settings["training.seed"] == {"value": 0, "origin": "default"}


def test_config_writes_a_file_that_reads_back(tmp_path: Path) -> None:
    run_myxtts("config", "--batch-size", "7", "--write", tmp_path)
    done = run_myxtts("config", "--config", tmp_path / "config.yaml", "--json")
    assert json.loads(done.stdout)["settings"]["data.batch_size"]["value"] == 7


def test_config_explains_a_setting() -> None:
    done = run_myxtts("config", "buffer_size")
    assert "data.buffer_size = 50" in done.stdout
    assert "allowed" in done.stdout


def test_config_warns_of_slow_settings() -> None:
    done = run_myxtts("config", "--set", "training.enable_graph_mode=false", "--changed")
    assert "Warning" in done.stderr
    assert "enable_graph_mode" in done.stderr


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_prepare_leaves_no_half_corpus(
    tmp_path: Path, write_clip: Any, number: signal.Signals, exit_code: int
) -> None:
    folder = tmp_path / "many"
    write_clip(folder / "wavs" / "a.flac", seconds=20.0)
    (folder / "manifest.csv").write_text(
        "id|audio|text\n" + "".join(f"id{n}|wavs/a.flac|text {n}\n" for n in range(3000)), encoding="utf-8"
    )
    out = tmp_path / "out"
    command = [*MYXTTS, "prepare", str(folder), "--out", str(out), *CHARACTERS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (out / ".draft.myxtts-tmp").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert [path.name for path in out.iterdir()] == [".lock"]


def test_every_run_leaves_its_resolved_configuration(ljspeech: Path, tmp_path: Path) -> None:
    corpus, store = tmp_path / "corpus", tmp_path / "store"
    run_myxtts("prepare", ljspeech, "--out", corpus, *CHARACTERS)
    done = run_myxtts("precompute", "--train-data", corpus, "--cache-dir", store, "--set", "data.mel_dtype=float16")
    assert done.returncode == 0, done.stderr
    assert "text_frontend: characters" in (corpus / "config.yaml").read_text(encoding="utf-8")
    assert "mel_dtype: float16" in (store / "config.yaml").read_text(encoding="utf-8")


def test_shell_completion_knows_the_commands() -> None:
    done = run_program(_MYXTTS_COMPLETE="complete_bash", COMP_WORDS="myxtts pre", COMP_CWORD="1")
    assert "prepare" in done.stdout
