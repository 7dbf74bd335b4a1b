"""The arrows between the packages point one way, and what must stay light does not load TensorFlow."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

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
    "synthesis": _STORE | {"store", "runtime", "models", ""},
    "tools": _STORE | {"store", "runtime", "pipeline", "models", "training", "synthesis"},
    "serve": _STORE | {"runtime", "models", "synthesis", ""},
    "export": _STORE | {"models", "synthesis", ""},
    "live": _STORE | {"store", "runtime", "pipeline", "models", "training", "synthesis", "tools", "serve", ""},
    "studio": _STORE | {"synthesis", "tools", "serve"},
    "cli": _STORE
    | {"runtime", "store", "pipeline", "training", "synthesis", "tools", "serve", "live", "studio", "export", ""},
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
    "myxtts.tools.run_report",
    "myxtts.tools.collect.build",
    "myxtts.live.app",
    "myxtts.live.server",
    "myxtts.studio.app",
    "myxtts.cli.main",
]

# The size of folders and files: enough for one story, few enough to see at a glance.
MIN_MODULES, MAX_MODULES, MAX_LEVELS = 3, 17, 2
MIN_LINES, MAX_LINES = 60, 450
# Entry points, registries, and leaves that are searched by name.
SHORT_ON_PURPOSE = {
    "__main__.py",
    "config/choices.py",
    "features/extract.py",
    "serve/metrics.py",
    "synthesis/cloning.py",
    "training/voice/augment.py",
}
FORBIDDEN_MODULE_NAMES = {"utils", "util", "common", "helpers", "misc", "core"}
FORBIDDEN_FOLDER_NAMES = FORBIDDEN_MODULE_NAMES | {"base"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "dill", "shelve", "librosa", "torch", "phonemizer", "requests", "urllib.request"}


@cache
def list_sources() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SOURCE.rglob("*.py"))]


def find_imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import at line {node.lineno}"
            names.add(node.module or "")
    return names


def folder_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_point_one_way() -> None:
    wrong = []
    for path, tree in list_sources():
        folder = folder_of(path)
        if folder == "__init__":
            continue
        for name in find_imports(tree):
            if name != "myxtts" and not name.startswith("myxtts."):
                continue
            target = name.removeprefix("myxtts").removeprefix(".").partition(".")[0]
            if target != folder and target not in ALLOWED_IMPORTS[folder]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not wrong


def test_every_folder_has_its_place_in_the_order() -> None:
    assert {folder_of(path) for path, _ in list_sources()} - {"__init__"} == set(ALLOWED_IMPORTS)


def list_modules_by_folder() -> dict[Path, list[str]]:
    """The modules of each folder below the package, without `__init__`."""
    folders: dict[Path, list[str]] = {}
    for path, _ in list_sources():
        if path.parent != SOURCE and path.name != "__init__.py":
            folders.setdefault(path.parent.relative_to(SOURCE), []).append(path.stem)
    return folders


def test_folders_are_small_enough_to_read_and_large_enough_to_exist() -> None:
    sizes = {folder: len(modules) for folder, modules in list_modules_by_folder().items()}
    assert {folder: size for folder, size in sizes.items() if not MIN_MODULES <= size <= MAX_MODULES} == {}


def test_folders_are_at_most_two_levels_deep() -> None:
    assert [folder for folder in list_modules_by_folder() if len(folder.parts) > MAX_LEVELS] == []


def test_names_say_what_is_inside() -> None:
    wrong = [folder for folder in list_modules_by_folder() if folder.name in FORBIDDEN_FOLDER_NAMES]
    for folder, modules in list_modules_by_folder().items():
        wrong += [folder / module for module in modules if module in {folder.name, *FORBIDDEN_MODULE_NAMES}]
    assert wrong == []


def test_a_file_is_one_story() -> None:
    lengths = {
        path.relative_to(SOURCE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path, _ in list_sources()
        if path.name != "__init__.py"
    }
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}
    assert {name for name, length in lengths.items() if length < MIN_LINES} <= SHORT_ON_PURPOSE


def test_nothing_dangerous_is_used() -> None:
    found = []
    for path, tree in list_sources():
        found += [f"{path.name} imports {name}" for name in find_imports(tree) & FORBIDDEN_MODULES]
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
    for path, tree in list_sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                found.append(str(path.relative_to(SOURCE)))
    assert found == ["cli/main.py"]


def test_light_modules_import_without_tensorflow() -> None:
    commands = [f"myxtts.cli.{path.stem}" for path in sorted((SOURCE / "cli").glob("*.py"))]
    program = "\n".join(
        [
            "import importlib, sys",
            f"for name in {[*MODULES_WITHOUT_TENSORFLOW, *commands]}:",
            "    importlib.import_module(name)",
            "    assert not {'tensorflow', 'keras'} & set(sys.modules), name",
        ]
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_loads_neither_the_schema_nor_signal_processing() -> None:
    """Start-up of the command line: `--help` takes as long as what it imports."""
    program = "import myxtts.cli.main, sys; sys.exit(str({'pydantic', 'scipy', 'yaml'} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert done.stderr.strip() == ""
