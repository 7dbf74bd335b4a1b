"""`myxtts train` is stopped, moved, called from elsewhere and resumed, as users do it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.test_train import list_settings, run_train
from tests.myxtts_process import run_myxtts
from tests.training.trainer_programs import write_recordings


def test_a_run_goes_on_from_any_folder_with_its_own_settings(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    write_recordings(project / "recordings")
    (other / "runs").mkdir(parents=True)
    settings = list_settings(corpus_format="manifest", val_share=0.2)
    data = ("--train-data", "recordings", "--cache-dir", "features")
    begun = run_train(*data, "--steps", "1", *settings, cwd=project)
    assert begun.returncode == 0, begun.stderr
    assert "speakers in en, from the feature cache features." in begun.stderr

    evaluated = run_myxtts(
        "evaluate", "--model", "../project/runs/run", "--max-utterances", "1", cwd=other, tensorflow=True
    )
    assert evaluated.returncode == 0, evaluated.stderr
    (project / "runs" / "run").rename(other / "runs" / "mine")
    before = (other / "runs" / "mine" / "config.yaml").read_bytes()
    spoilt = run_train("--resume", "mine", "--force", "--set", "model.decoder_width=24", cwd=other)
    assert spoilt.returncode == 4, spoilt.stderr
    assert "--force cannot help" in spoilt.stderr
    assert (other / "runs" / "mine" / "config.yaml").read_bytes() == before
    resumed = run_train("--resume", "--steps", "3", "--json", cwd=other)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["step"] == 3
    assert "Resuming the run runs/mine with its settings." in resumed.stderr


def test_a_signal_while_compiling_is_answered_at_once(tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings")
    settings = list_settings(
        corpus_format="manifest", num_shapes=4, enable_graph_mode=True, enable_xla_compilation=True, text_layers=4
    )
    command = [sys.executable, "-m", "myxtts", "train", "--train-data", "recordings", "--steps", "50", *settings]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment) as trainer:
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
    assert "A second signal ends it immediately" in answer
    assert answered_s - signalled_s < 60, said
    assert said.index(answer) < next(number for number, line in enumerate(said) if line.startswith("Compiling took"))
    # TensorFlow has nothing to say of its build, of processors and of a GPU that is not there.
    assert not [line for line in said if re.match(r"[IWEF]\d{4} |WARNING: All log", line)]
    assert said[-1] == "Step 0 is saved. Continue with: myxtts train --resume runs/run"


def test_a_vocoder_worse_than_griffin_lim_is_put_into_a_voice_only_when_asked_for(tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings")
    settings = list_settings(corpus_format="manifest", n_fft=512, hop_length=256, win_length=512)
    data = ("--train-data", "recordings", "--steps", "1", *settings)
    voice = run_train(*data, cwd=tmp_path)
    assert voice.returncode == 0, voice.stderr
    trained = run_train(
        "--part", "vocoder", *data, "--install-into", "runs/run", "--model-size", "tiny", "--json", cwd=tmp_path
    )
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["given_to"] is None
    assert "further from the recordings than that of Griffin-Lim" in trained.stderr
    assert not (tmp_path / "runs" / "run" / "bundle" / "vocoder.safetensors").exists()
    again = "myxtts train --resume runs/vocoder --install-into runs/run --even-if-worse"
    assert again in " ".join(trained.stderr.split())
    forced = run_myxtts(*again.split()[1:], "--json", cwd=tmp_path, tensorflow=True)
    assert forced.returncode == 0, forced.stderr
    assert json.loads(forced.stdout)["given_to"] == "runs/run/bundle"
    assert (tmp_path / "runs" / "run" / "bundle" / "vocoder.safetensors").exists()
