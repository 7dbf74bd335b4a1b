"""`myxtts train` is stopped, moved, called from elsewhere and resumed, as users do it: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.test_train import list_settings, run_myxtts, run_train
from tests.training.trainer_programs import write_recordings


def test_a_run_goes_on_from_any_folder_with_its_own_settings(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    write_recordings(project / "recordings")
    (other / "runs").mkdir(parents=True)
    settings = list_settings(corpus_format="manifest", val_share=0.2)
    data = ("--train-data", "recordings", "--cache-dir", "features")
    begun = run_train(*data, "--steps", "1", *settings, cwd=project)
    assert begun.returncode == 0, begun.stderr
    assert "speakers in en, from the store features." in begun.stderr

    evaluated = run_myxtts("evaluate", "--model", "../project/runs/run", "--max-utterances", "1", cwd=other)
    assert evaluated.returncode == 0, evaluated.stderr
    (project / "runs" / "run").rename(other / "runs" / "mine")
    before = (other / "runs" / "mine" / "config.yaml").read_bytes()
    spoilt = run_train("--resume", "mine", "--override", "--set", "model.decoder_width=24", cwd=other)
    assert spoilt.returncode == 4, spoilt.stderr
    assert "--override cannot help" in spoilt.stderr
    assert (other / "runs" / "mine" / "config.yaml").read_bytes() == before
    resumed = run_train("--resume", "--steps", "3", "--json", cwd=other)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["step"] == 3
    assert "Going on with the run runs/mine and its settings." in resumed.stderr


def test_a_signal_while_compiling_is_answered_at_once(tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings")
    settings = list_settings(
        corpus_format="manifest", num_shapes=4, enable_graph_mode=True, enable_xla_compilation=True, text_layers=4
    )
    command = [sys.executable, "-m", "myxtts", "train", "--train-data", "recordings", "--steps", "50", *settings]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ}) as trainer:
        assert trainer.stderr is not None
        said: list[str] = []
        for line in trainer.stderr:
            said.append(line.strip())
            if line.startswith("Compiling 4 batch shapes"):
                time.sleep(1.0)
                trainer.send_signal(signal.SIGINT)
                signalled_s = time.monotonic()
            if line.startswith("SIGINT"):
                answered_s = time.monotonic()
    assert trainer.returncode == 130, said
    (answer,) = [line for line in said if line.startswith("SIGINT")]
    assert "training stops as soon as the batch shape is compiled" in answer
    assert "A second signal ends it at once" in answer
    assert answered_s - signalled_s < 5, said
    assert said.index(answer) < next(number for number, line in enumerate(said) if line.startswith("Compiling took"))
    assert said[-1] == "Step 0 is saved. Go on with: myxtts train --resume runs/run"


def test_a_vocoder_worse_than_griffin_lim_is_put_into_a_voice_only_when_asked_for(tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings")
    settings = list_settings(corpus_format="manifest", n_fft=256, hop_length=64, win_length=256)
    data = ("--train-data", "recordings", "--steps", "1", *settings)
    voice = run_train(*data, cwd=tmp_path)
    assert voice.returncode == 0, voice.stderr
    trained = run_train("--part", "vocoder", *data, "--for", "runs/run", "--model-size", "tiny", "--json", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["given_to"] is None
    assert "further from the recordings than that of Griffin-Lim" in trained.stderr
    assert not (tmp_path / "runs" / "run" / "bundle" / "vocoder.safetensors").exists()
    again = "myxtts train --resume runs/vocoder --for runs/run --even-if-worse"
    assert again in " ".join(trained.stderr.split())
    forced = run_myxtts(*again.split()[1:], "--json", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
    assert json.loads(forced.stdout)["given_to"] == "runs/run/bundle"
    assert (tmp_path / "runs" / "run" / "bundle" / "vocoder.safetensors").exists()
