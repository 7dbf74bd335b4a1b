"""What the pages of all tools have in common: whole, self-contained, in their direction, and drawn by a browser."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.browser import needs_chromium, photograph
from tests.outline import Outline
from tests.tools.bench.test_measure import CORPUS, make_result
from tests.tools.diagnose.test_examine import make_full_diagnosis
from tests.tools.fake_run import write_fake_run
from tests.tools.profile.test_measure import make_profile

from myxtts.tools.bench.page import make_bench_page
from myxtts.tools.diagnose.page import make_diagnosis_page
from myxtts.tools.page import Page
from myxtts.tools.profile.page import make_profile_page
from myxtts.tools.run_files import read_run
from myxtts.tools.run_report import make_run_page
from myxtts.tools.words import Translator
from myxtts.training.run.folder import describe_environment

TOOLS = ("run", "bench", "profile", "diagnose")


def make_page(tool: str, lang: str, folder: Path) -> Page:
    tr, machine = Translator(lang), describe_environment(["myxtts", tool])
    if tool == "run":
        return make_run_page(read_run(write_fake_run(folder / "run")), tr)
    if tool == "bench":
        return make_bench_page(make_result(), {"machine": machine, "corpus": CORPUS}, tr)
    return (
        make_profile_page(make_profile(), machine, tr)
        if tool == "profile"
        else make_diagnosis_page(make_full_diagnosis(), tr)
    )


@pytest.mark.parametrize("lang", ["en", "fa"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_page_is_whole_needs_nothing_outside_and_has_its_direction(tool: str, lang: str, tmp_path: Path) -> None:
    page = make_page(tool, lang, tmp_path).render()
    outline = Outline(page)
    assert all(address.startswith("data:") for address in outline.addresses)
    # Sound and pictures of a run are in its page.
    assert any(address != "data:," for address in outline.addresses) == (tool == "run"), "that is the empty icon"
    code = re.sub(r"/\*!.*?\*/", "", page)
    assert not re.search(r"https?://|@import|url\((?!data:)|<script src|<link (?!rel=.icon. href=.data:,)", code)
    assert "default-src 'none'" in page
    assert outline.attributes["html"] == {"lang": lang, "dir": "rtl" if lang == "fa" else "ltr"}
    assert page.count('class="chart"') >= 1
    assert page.count('class="chart"') == page.count("Last values:" if lang == "en" else "آخرین مقدارها:")
    if tool == "diagnose":
        assert "old_pipeline.py:12" in outline.text


@needs_chromium
@pytest.mark.parametrize(("tool", "lang"), [("run", "fa"), ("bench", "fa"), ("profile", "en"), ("diagnose", "en")])
def test_a_page_is_not_blank_in_a_browser(tool: str, lang: str, tmp_path: Path) -> None:
    path = make_page(tool, lang, tmp_path).write(tmp_path / "page.html")
    pixels = photograph(path, tmp_path, 1200, 3000 if tool == "run" else 1600)
    # Every part of the page shows something, and curves and bars have the colours of the style sheet.
    assert all(part.std() > 0.01 for part in np.array_split(pixels, 4))
    is_blue = pixels[..., 2] - pixels[..., 0] > 0.3
    assert is_blue.mean() > 0.001
    if tool == "bench":
        assert (pixels[..., 0] - pixels[..., 2] > 0.3).mean() > 0.0005
    if tool == "profile":
        # The bar of the average step lies across the page.
        assert is_blue.mean(axis=1).max() > 0.6
