"""Every command that the documentation shows exists, with its flags and settings; those marked to run do run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import soundfile
from tests.conftest import RATE_HZ, synthesize_clip
from tests.device_process import DeviceProcess
from tests.docs.commands import (
    GROUP,
    GROUP_FLAGS,
    ROOT,
    Command,
    list_commands,
    list_inline_code,
    list_pages,
    parse_myxtts,
    split_commands,
)
from tests.training.trainer_programs import write_recordings

from documentation.words import LANGUAGES, PAGE_NAMES

OTHER_PROGRAMS = {
    ".",
    "aplay",
    "cd",
    "curl",
    "export",
    "ffmpeg",
    "git",
    "nvidia-smi",
    "pip",
    "ray",
    "srun",
    "ssh",
    "sudo",
    "tensorboard",
    "xprof",
}
OTHER_FLAGS = {"--gpus", "--gpus-per-task", "--ntasks", *GROUP_FLAGS}
LAUNCHERS = {
    "train_main.py": "train",
    "utilities/diagnose_gpu_bottleneck.py": "diagnose",
    "utilities/gpu_profiler.py": "profile",
    "utilities/gpu_monitor.py": "monitor",
    "utilities/benchmark_gpu_utilization.py": "bench",
}
ALL_FLAGS = {
    flag
    for group in GROUP.commands.values()
    for command in (group, *getattr(group, "commands", {}).values())
    for param in command.params
    for flag in (*param.opts, *param.secondary_opts)
}


def check_command(command: Command) -> None:
    words = command.myxtts_words
    if words is not None:
        parse_myxtts(words)
    elif command.program == "make":
        targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert {word for word in command.words[1:] if "=" not in word} <= targets
    elif command.program == "python":
        check_python(command.words[1:])
    else:
        assert command.program in OTHER_PROGRAMS, f"nobody knows {command.program}"


def check_python(words: tuple[str, ...]) -> None:
    if words[0] == "-m":
        module = ROOT.joinpath(*words[1].split("."))
        assert (module / "__main__.py").is_file() or module.with_suffix(".py").is_file(), words
        return
    assert (ROOT / words[0]).is_file(), f"there is no {words[0]}"
    if words[0] in LAUNCHERS:
        parse_myxtts((LAUNCHERS[words[0]], *words[1:]))


@pytest.mark.parametrize("path", list_pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_parsed(path: Path) -> None:
    for command in list_commands(path):
        try:
            check_command(command)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader wants to know of which command
            pytest.fail(f"{command}\n{type(error).__name__}: {error}")


@pytest.mark.parametrize("path", list_pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_and_flag_in_a_sentence_exists(path: Path) -> None:
    unknown = []
    for code in list_inline_code(path):
        words = next(split_commands(code), ()) if code.startswith(("myxtts ", "make ", "python ")) else ()
        flags = [word for word in (words or code.split()) if word.startswith("--")]
        # Most stand for a part of a command: their flags must exist, their arguments may be left out.
        unknown += [f"{flag} in {code!r}" for flag in flags if flag not in ALL_FLAGS | OTHER_FLAGS]
        if words[:1] == ("myxtts",) and words[1][:1] != "-":
            unknown += [code] if words[1] not in GROUP.commands else []
        elif words[:1] in (("make",), ("python",)) and "…" not in code:
            check_command(Command(str(path), words))
    assert not unknown


def test_a_wrong_command_is_found() -> None:
    for text in ("myxtts trian", "myxtts train --bach-size 3", "myxtts train --set data.bach=3", "make nonsense"):
        with pytest.raises(Exception, match=r"."):
            check_command(Command("here", next(split_commands(text))))


def test_commands_are_cut_as_a_shell_cuts_them() -> None:
    script = "A=1 myxtts synth - --out - < chapter.txt | aplay  # listen\nmake demo && make test"
    words = [list(command) for command in split_commands(script)]
    assert words == [["myxtts", "synth", "-", "--out", "-"], ["aplay"], ["make", "demo"], ["make", "test"]]


def list_run_commands(language: str) -> list[Command]:
    pages = [ROOT / "docs" / language / f"{name}.md" for name in PAGE_NAMES]
    return [command for page in pages if page.is_file() for command in list_commands(page) if command.is_run]


def test_both_languages_run_the_same_commands() -> None:
    present = [language for language in LANGUAGES if (ROOT / "docs" / language).is_dir()]
    lines = {language: [shlex.join(command.words) for command in list_run_commands(language)] for language in present}
    assert len(lines["en"]) >= 10
    for language in present:
        # Sentences that are spoken may be in the language of the page.
        assert [line.split()[:2] for line in lines[language]] == [line.split()[:2] for line in lines["en"]]


def test_commands_marked_to_run_do_run_in_the_order_of_the_pages(tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings")
    soundfile.write(tmp_path / "speaker.wav", synthesize_clip(3.5, seed=3), RATE_HZ)
    commands = list_run_commands("en")
    with DeviceProcess(num_devices=1) as process:
        results = process.run(
            "tests.docs.guide_programs:run_commands",
            folder=str(tmp_path),
            commands=[list(command.myxtts_words or ()) for command in commands],
        )
    failed = [f"{command}\n{words}" for command, (code, words) in zip(commands, results, strict=True) if code != 0]
    assert not failed, "\n".join(failed)
    assert (tmp_path / "runs" / "run" / "bundle" / "model.safetensors").is_file()
    assert soundfile.info(tmp_path / "hello.wav").duration > 0.1
