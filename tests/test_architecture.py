"""The arrows between the packages point one way, and what must stay light does not load TensorFlow."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "myxtts"

# Each package and what it may import, besides itself, from this project.
_BASE = {"types", "errors", "storage"}
_TEXT = _BASE | {"config"}
_CORPUS = _TEXT | {"text"}
_FEATURES = _CORPUS | {"corpus"}
_STORE = _FEATURES | {"features"}
ALLOWED_IMPORTS = {
    "types": set(),
    "errors": set(),
    "storage": {"errors", "types"},
    "config": _BASE,
    "runtime": _BASE | {"config"},
    "text": _TEXT,
    "corpus": _CORPUS,
    "features": _FEATURES,
    "store": _STORE | {"runtime"},
    "pipeline": _STORE | {"store", "runtime"},
    "models": _BASE | {"config"},
    "training": _STORE | {"store", "runtime", "pipeline", "models"},
    "synthesis": _STORE | {"store", "runtime", "models"},
    "tools": _STORE | {"store", "runtime", "pipeline", "models", "training", "synthesis"},
    "cli": _STORE | {"runtime", "store", "pipeline", "training", "synthesis", "tools", ""},
    "__main__": {"cli"},
}

MODULES_WITHOUT_TENSORFLOW = [
    "myxtts",
    "myxtts.config.schema",
    "myxtts.runtime.hardware",
    "myxtts.runtime.plan",
    "myxtts.runtime.cluster",
    "myxtts.corpus.prepare",
    "myxtts.corpus.corpus_file",
    "myxtts.corpus.demo",
    "myxtts.text.frontend",
    "myxtts.features.extract",
    "myxtts.store.precompute",
    "myxtts.store.verify",
    "myxtts.pipeline.open",
    "myxtts.pipeline.choose_loader",
    "myxtts.pipeline.service.loader",
    "myxtts.pipeline.service.address",
    "myxtts.models.bundle",
    "myxtts.features.griffin_lim",
    "myxtts.synthesis.synthesizer",
    "myxtts.training.run.folder",
    "myxtts.training.run.state",
    "myxtts.training.run.guard",
    "myxtts.training.execution",
    "myxtts.training.run.signals",
    "myxtts.training.trainer",
    "myxtts.training.voice.align",
    "myxtts.tools.emulate",
    "myxtts.tools.bench.candidates",
    "myxtts.tools.profile.measure",
    "myxtts.tools.diagnose.examine",
    "myxtts.tools.monitor.watch",
    "myxtts.tools.monitor.page",
    "myxtts.cli.main",
]

FORBIDDEN_ROOM_NAMES = {"utils", "util", "common", "helpers", "misc"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "dill", "shelve", "librosa", "torch", "phonemizer", "requests", "urllib.request"}
# What the product is measured against, where a user has it installed.
ALLOWED_HERE = {"usual.py": {"librosa"}}


def iterate_sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def find_imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import at line {node.lineno}"
            names.add(node.module or "")
    return names


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_point_one_way() -> None:
    wrong = []
    for path, tree in iterate_sources():
        room = room_of(path)
        if room == "__init__":
            continue
        for name in find_imports(tree):
            if name != "myxtts" and not name.startswith("myxtts."):
                continue
            target = name.removeprefix("myxtts").removeprefix(".").partition(".")[0]
            if target != room and target not in ALLOWED_IMPORTS[room]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not wrong


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {room_of(path) for path, _ in iterate_sources()} - {"__init__"}
    assert rooms == set(ALLOWED_IMPORTS)


def test_no_room_for_odds_and_ends() -> None:
    names = {part.removesuffix(".py") for path, _ in iterate_sources() for part in path.relative_to(SOURCE).parts}
    assert not names & FORBIDDEN_ROOM_NAMES


def test_files_stay_readable() -> None:
    lengths = {
        path.relative_to(SOURCE): len(path.read_text(encoding="utf-8").splitlines()) for path, _ in iterate_sources()
    }
    assert {path: length for path, length in lengths.items() if length > 480} == {}


def test_nothing_dangerous_is_used() -> None:
    found = []
    for path, tree in iterate_sources():
        found += [
            f"{path.name} imports {name}"
            for name in find_imports(tree) & FORBIDDEN_MODULES - ALLOWED_HERE.get(path.name, set())
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                found.append(f"{path.name}:{node.lineno} calls {node.func.id}")
            if isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node.value) == "yaml":
                found.append(f"{path.name}:{node.lineno} uses yaml.load")
    assert not found


def _is_broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) in ("Exception", "BaseException")


def test_broad_except_only_in_the_main_command() -> None:
    found = []
    for path, tree in iterate_sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                found.append(str(path.relative_to(SOURCE)))
    assert found == ["cli/main.py"]


@pytest.mark.parametrize("module", MODULES_WITHOUT_TENSORFLOW)
def test_module_imports_without_tensorflow(module: str) -> None:
    program = f"import {module}, sys; sys.exit(len({{'tensorflow', 'keras'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
