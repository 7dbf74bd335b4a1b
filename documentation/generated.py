"""Everything that is made from code: pages of settings, figures, pictures. One list, so that none is forgotten."""

from __future__ import annotations

from pathlib import Path

from documentation.configuration_page import make_configuration_page
from documentation.figures import fill_figures, has_figures
from documentation.pictures import draw_decision, draw_packages, draw_pipeline
from documentation.words import LANGUAGES, READMES

_PICTURES = {"pipeline": draw_pipeline, "decision": draw_decision, "packages": draw_packages}


def make_generated(root: Path) -> dict[Path, str]:
    """Each file and what belongs into it. A language has its page of settings as soon as it has a folder."""
    files: dict[Path, str] = {}
    for language in LANGUAGES:
        for name, draw in _PICTURES.items():
            files[root / "docs" / "pictures" / f"{name}.{language}.svg"] = draw(language)
        if (root / "docs" / language).is_dir():
            files[root / "docs" / language / "configuration.md"] = make_configuration_page(language)
        for path in (root / READMES[language], *sorted((root / "docs" / language).glob("*.md"))):
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            if has_figures(text):
                files[path] = fill_figures(path, text, language, root)
    return files


def find_stale(root: Path) -> list[Path]:
    files = make_generated(root)
    return [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def write_generated(root: Path) -> list[Path]:
    """Writes what is stale; gives the files."""
    files, stale = make_generated(root), find_stale(root)
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return stale
