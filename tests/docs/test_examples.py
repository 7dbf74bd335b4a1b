"""The examples, launchers and configurations do what they say, on logical devices where they want GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
import yaml
from tests.conftest import RATE_HZ, synthesize_clip
from tests.device_process import DeviceProcess
from tests.docs.commands import ROOT
from tests.docs.guide_programs import SMALL
from tests.training.trainer_programs import make_data

from myxtts import XTTSConfig
from myxtts.config.advice import find_slow_settings
from myxtts.config.values import format_scalar

BASH = shutil.which("bash") or "bash"
SCRIPT = ROOT / "examples" / "gpu_pipeline_example.sh"
SCENARIOS = ("default", "larger-buffer", "multi-gpu", "multi-gpu-own", "low-memory", "fast-storage", "debugging")
PLACES = {
    "multi-gpu": ("Multi-GPU mode", ["CPU:2"]),
    "multi-gpu-own": ("Multi-GPU mode", ["CPU:2", "CPU:3", "CPU:4"]),
}
"""Mode and model devices where they are not the usual; GPU n is CPU n + 1."""
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus with its store."""
    folder = tmp_path_factory.mktemp("examples")
    make_data(folder)
    return folder


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with DeviceProcess(num_devices=5) as process:
        yield process


def run_example(process: DeviceProcess, name: str, folder: Path, *arguments: object) -> tuple[float | None, str]:
    result, printed = process.run(
        "tests.docs.guide_programs:run_example", name=name, folder=str(folder), arguments=list(arguments)
    )
    return result, printed


def read_scenario(name: str, *more: str) -> list[str]:
    """The words that the script hands to `myxtts`."""
    done = subprocess.run(
        [BASH, str(SCRIPT), name, "corpus", *more],
        env={**os.environ, "MYXTTS": "printf %s\\n"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()


def test_own_corpus_reader_finds_what_a_manifest_finds(tmp_path: Path, process: DeviceProcess) -> None:
    for number in range(6):
        soundfile.write(tmp_path / f"anna-{number:03}.wav", synthesize_clip(1.2, seed=number), RATE_HZ)
        (tmp_path / f"anna-{number:03}.txt").write_text(f"This is sentence number {number}.\n", encoding="utf-8")
    _, printed = run_example(process, "custom_corpus", tmp_path, ".", "out")
    assert "by format: 6 utterances, pairs" in printed
    assert "by manifest: 6 utterances, manifest" in printed


def test_own_model_is_fed_and_the_feed_measures_itself(folder: Path, process: DeviceProcess) -> None:
    au, printed = run_example(process, "feed_own_model", folder, "store", "6", "n_mels=8", "reference_s=0.5")
    assert printed.count("loss") == 6
    assert au is not None
    assert 0 < au <= 1


def test_training_from_code_then_cloning_a_voice(folder: Path, process: DeviceProcess) -> None:
    settings = [f"{key}={format_scalar(value)}" for key, value in SMALL.items() if key != "log_steps"]
    _, printed = run_example(process, "train_from_code", folder, "corpus", "store", "10", *settings)
    assert "step 10: loss" in printed
    assert "the model is in runs/from-code/bundle" in printed
    soundfile.write(folder / "voice.wav", synthesize_clip(3.2, seed=5), RATE_HZ)
    alike, printed = run_example(process, "clone_voice", folder, "runs/from-code", "voice.wav", "out.wav")
    assert soundfile.info(folder / "out.wav").duration > 0.1
    assert alike is not None
    assert -1.01 <= alike <= 1.01
    assert "guest" in printed


def test_diagnosis_of_a_foreign_pipeline_names_python(folder: Path, process: DeviceProcess) -> None:
    _, printed = run_example(process, "diagnose_foreign_pipeline", folder, 16)
    first = next(line for line in printed.splitlines() if line.startswith("cause:"))
    assert "python_functions" in first


@pytest.mark.parametrize("name", ["clone_voice", "custom_corpus", "feed_own_model", "train_from_code"])
def test_example_without_arguments_answers_with_its_usage(name: str) -> None:
    program = f"examples/{name}.py"
    done = subprocess.run([sys.executable, program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {name}.py")
    assert "the following arguments are required" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_seven_scenarios_feed_the_devices_they_name(folder: Path, process: DeviceProcess) -> None:
    commands = [read_scenario(name, "--steps", "1", "--cache-dir", "store") for name in SCENARIOS]
    results = process.run("tests.docs.guide_programs:feed_scenarios", folder=str(folder), commands=commands)
    for name, result in zip(SCENARIOS, results, strict=True):
        mode, devices = PLACES.get(name, ("Single-GPU buffered mode", ["CPU:1"]))
        assert f"Mode: {mode}" in result["said"], name
        assert (result["devices"], result["num_parts"]) == (devices, 2 * len(devices)), name


def test_a_data_gpu_and_a_model_gpu_train(folder: Path, process: DeviceProcess) -> None:
    words = read_scenario("multi-gpu", "--steps", "1", "--cache-dir", "store")
    code, said = process.run("tests.docs.guide_programs:train_on_devices", folder=str(folder), words=words)
    assert code == 0, said
    assert "/CPU:1 computes the mel features" in said
    assert (folder / "runs" / "multi-gpu" / "bundle" / "model.safetensors").is_file()


def test_the_script_explains_itself_and_refuses_what_it_does_not_know() -> None:
    shown = subprocess.run([BASH, str(SCRIPT)], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in SCENARIOS)
    for arguments in (("nonsense", "corpus"), ("default",)):
        assert subprocess.run([BASH, str(SCRIPT), *arguments], capture_output=True, timeout=60).returncode != 0


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configuration_loads_and_opens_with_its_command(path: Path) -> None:
    config = XTTSConfig.load(path)
    heading = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert f"myxtts train --config configs/{path.name}" in heading
    assert "Expect:" in heading
    assert not [advice for advice in find_slow_settings(config) if path.stem != "two-gpu"]


def test_bottleneck_fix_sets_what_it_promises() -> None:
    data = XTTSConfig.load(ROOT / "configs" / "config_gpu_bottleneck_fix.yaml").data
    assert data.preprocessing_mode == "precompute"
    assert data.use_tf_native_loading
    assert data.prefetch_to_gpu
    assert data.enhanced_gpu_prefetch
    assert data.optimize_cpu_gpu_overlap
    assert (data.batch_size, data.num_workers, data.prefetch_buffer_size) == (48, 16, 12)


@pytest.mark.parametrize(
    ("card", "batch"), [("rtx4090", 96), ("rtx3090", 96), ("rtx3060", 64), ("a100", 128), ("h100", 128)]
)
def test_card_configuration_takes_the_preset_of_its_card(card: str, batch: int) -> None:
    config = XTTSConfig.load(ROOT / "configs" / f"{card}.yaml")
    assert (config.gpu_card, config.data.batch_size) == (card, batch)


@pytest.mark.parametrize(
    "launcher", ["train_main.py", *(f"utilities/{path.name}" for path in sorted((ROOT / "utilities").glob("*.py")))]
)
def test_launcher_shows_the_help_of_its_command(launcher: str) -> None:
    done = subprocess.run([sys.executable, launcher, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Usage: myxtts " in done.stdout


def test_workflow_calls_the_gate() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in commands
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
