"""Everything that is made from code: pages of settings and of the API, figures, pictures, text directions."""

from __future__ import annotations

import json
from pathlib import Path

from documentation.api_page import make_api_page
from documentation.configuration_page import make_configuration_page
from documentation.directions import set_directions
from documentation.figures import fill_figures
from documentation.pictures import draw_decision, draw_packages, draw_pipeline
from documentation.words import LANGUAGES, READMES
from myxtts.corpus.prompts import FREQUENCIES_FILE, PROMPT_LANGUAGES, count_frequencies
from myxtts.text.espeak import is_espeak_available

_PICTURES = {"pipeline": draw_pipeline, "decision": draw_decision, "packages": draw_packages}


def make_generated(root: Path) -> dict[Path, str]:
    """Each file and what belongs into it."""
    files: dict[Path, str] = {}
    for language in LANGUAGES:
        for name, draw in _PICTURES.items():
            files[root / "docs" / "pictures" / f"{name}.{language}.svg"] = draw(language)
        made = {"configuration": make_configuration_page(language), "api": make_api_page(language)}
        for path in (root / READMES[language], *sorted((root / "docs" / language).glob("*.md"))):
            text = made.get(path.stem) or path.read_text(encoding="utf-8")
            text = fill_figures(path, text, language, root)
            files[path] = set_directions(text) if language == "fa" else text
    return files


def make_frequencies() -> str:
    """Frequencies of phones in the project's sentences, for prompt_lists/frequencies.json; needs espeak-ng."""
    counted = {language: count_frequencies(language).to_json() for language in PROMPT_LANGUAGES}
    return json.dumps(counted, ensure_ascii=False, indent=0) + "\n"


def find_stale(root: Path) -> list[Path]:
    files = make_generated(root)
    return [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def write_generated(root: Path) -> list[Path]:
    """Writes what is stale; gives the files."""
    files, stale = make_generated(root), find_stale(root)
    if is_espeak_available():
        # Not part of --check: counting takes seconds, and tests/corpus/test_prompts.py does it.
        FREQUENCIES_FILE.write_text(make_frequencies(), encoding="utf-8")
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return stale
