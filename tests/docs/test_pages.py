"""The pages: both languages say the same, every link leads somewhere, and what is made from code is not stale."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.docs.commands import ROOT, list_pages

from documentation.configuration_page import GROUPS, group_keys, make_configuration_page, say_allowed
from documentation.directions import set_directions
from documentation.figures import FIGURES, fill_figures
from documentation.generated import find_stale
from documentation.markdown import MarkdownPage, make_anchor
from documentation.pictures import draw_packages
from documentation.voice_rows import VOICE_ROWS
from documentation.words import LANGUAGES, PAGE_GROUPS, PAGE_NAMES, READMES, Language
from myxtts.config.catalogue import FIELDS

ENGLISH, PERSIAN = ROOT / "docs" / "en", ROOT / "docs" / "fa"
PAIRS = [(ENGLISH / f"{name}.md", PERSIAN / f"{name}.md") for name in PAGE_NAMES]
SOURCE = ROOT / "src" / "myxtts"
PERSIAN_LETTERS = re.compile(r"[\u0600-\u06ff]")


def list_levels(path: Path) -> list[int]:
    return [heading.level for heading in MarkdownPage.read(path).headings]


def test_every_page_has_its_place_in_the_menu() -> None:
    listed = {name for names in PAGE_GROUPS.values() for name in names}
    assert {path.stem for path in ENGLISH.glob("*.md")} <= listed, "a page has no place in the menu"
    assert len(PAGE_NAMES) >= 16


def test_both_languages_have_the_same_pages() -> None:
    if not PERSIAN.exists():
        pytest.skip("docs/fa is not written yet")
    assert {path.name for path in PERSIAN.glob("*.md")} == {path.name for path in ENGLISH.glob("*.md")}
    assert (ROOT / READMES["fa"]).is_file(), "there is docs/fa, but no README.fa.md"


@pytest.mark.parametrize(("english", "persian"), PAIRS, ids=PAGE_NAMES)
def test_both_languages_have_the_same_sections(english: Path, persian: Path) -> None:
    if not PERSIAN.exists():
        pytest.skip("docs/fa is not written yet")
    assert persian.is_file(), f"docs/fa has no {persian.name}"
    assert list_levels(persian) == list_levels(english)
    assert PERSIAN_LETTERS.search(MarkdownPage.read(persian).title)
    assert len(MarkdownPage.read(persian).code_blocks) == len(MarkdownPage.read(english).code_blocks)


def test_both_readmes_have_the_same_sections_and_lead_to_each_other() -> None:
    english, persian = (ROOT / READMES[language] for language in ("en", "fa"))
    if not persian.exists():
        assert not PERSIAN.exists(), "there is docs/fa, but no README.fa.md"
        pytest.skip("README.fa.md is not written yet")
    assert list_levels(persian) == list_levels(english)
    assert persian.name in MarkdownPage.read(english).links
    assert english.name in MarkdownPage.read(persian).links


@pytest.mark.parametrize("path", list_pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_and_anchor_resolves(path: Path) -> None:
    broken = []
    for address in MarkdownPage.read(path).links:
        parts = urlsplit(address)
        if parts.scheme:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file() or not target.is_relative_to(ROOT):
            broken.append(address)
        elif parts.fragment:
            anchors = {heading.anchor for heading in MarkdownPage.read(target).headings}
            broken += [address] if unquote(parts.fragment) not in anchors else []
    assert not broken


@pytest.mark.parametrize("path", list_pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_page_has_one_title_and_skips_no_level(path: Path) -> None:
    levels = list_levels(path)
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def list_packages() -> set[str]:
    """Packages of the product, and the modules beside them; folders of data alone are none."""
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    return {name for name in found if not name.startswith("_") and name != "py"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_picture_of_the_packages_shows_all_of_them(language: Language) -> None:
    shown = set(re.findall(r'font-weight="600">([a-z]+)</text>', draw_packages(language)))
    assert shown == list_packages()


def is_module(name: str) -> bool:
    """Whether `pipeline/open.py`, `pipeline.open`, `pipeline.loaders` or `runtime.plan.choose_plan` exists."""
    if name.endswith(".py"):
        return any((folder / name).is_file() for folder in (ROOT, SOURCE)) or name.endswith("xx.py")
    path = SOURCE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file() or path.parent.with_suffix(".py").is_file()


@pytest.mark.parametrize("path", [ROOT / "CONTRIBUTING.md", ENGLISH / "architecture.md", PERSIAN / "architecture.md"])
def test_every_module_that_is_named_exists(path: Path) -> None:
    packages = "|".join(list_packages())
    named = re.findall(rf"`([a-z_]+/[a-z_/]*\.py|(?:{packages})\.[a-z_.]+)`", path.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not is_module(name) and name != "corpus.jsonl"] == []


def test_nothing_that_is_made_from_code_is_stale() -> None:
    assert [str(path.relative_to(ROOT)) for path in find_stale(ROOT)] == [], "run make docs"


@pytest.mark.parametrize("language", ["en", "fa"])
def test_page_of_settings_has_every_key_with_its_default(language: str) -> None:
    page = make_configuration_page("fa" if language == "fa" else "en")
    for key in FIELDS:
        assert f"\n| `{key}`" in page, key
    assert page.count("⚑") > 20


def test_groups_of_settings_begin_with_settings_that_exist() -> None:
    assert set(GROUPS) <= set(FIELDS)
    assert [key for keys in group_keys().values() for key in keys] == list(FIELDS)


@pytest.mark.parametrize("key", FIELDS)
def test_what_a_setting_accepts_is_said_in_persian(key: str) -> None:
    said = say_allowed(key, "fa")
    without_values = re.sub(r'"[^"]*"|\b(true|false|null|en|fa|pt-br)\b|\bGPU', "", said)
    assert not re.search(r"[A-Za-z]{2}", without_values), said


def test_figures_are_those_of_the_files(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    note = "emulated: AU 0.5, ceiling 0.75"
    rows = [{"name": one.name, "value": 0.25, "note": note} for one in FIGURES if one.suite == "feed"]
    (results / "feed.json").write_text(json.dumps({"measurements": rows}), encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    english = fill_figures(tmp_path / "README.md", text, "en", tmp_path)
    assert "| 50.0% | 75.0% with all batches already in RAM | [feed.json](benchmarks/results/feed.json) |" in english
    assert "loading.json" not in english, "what was not measured is left out"
    # The marks around a table must survive the direction marks of a Persian page.
    persian = set_directions((ROOT / "README.fa.md").read_text(encoding="utf-8"))
    assert "| ۵۰٫۰٪ |" in fill_figures(tmp_path / "README.fa.md", persian, "fa", tmp_path)


def test_the_table_of_voices_has_the_scores_and_the_training_of_the_file(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    scores = {"word_error_rate_by_moonshine": 0.0625, "word_error_rate_by_whisper": 0.05, "mos_estimate": 3.5}
    training = {"steps": 1250, "minutes": 2.6, "num_cpus": 2}
    first, second = (row for row in VOICE_ROWS if row.entry in ("human-5-adapt", "synthetic-itself"))
    entries = [
        {"name": first.entry, "training": training, "scores": scores | {"similarity": 0.75}},
        {"name": second.entry, "training": None, "scores": scores},
    ]
    (results / "adaptation.json").write_text(json.dumps({"entries": entries}), encoding="utf-8")
    (tmp_path / "docs" / "en").mkdir(parents=True)
    text = (ENGLISH / "quality.md").read_text(encoding="utf-8")
    page = fill_figures(tmp_path / "docs" / "en" / "quality.md", text, "en", tmp_path)
    how = "`--init-from base`; 1,250 steps in 3 min, cores: 2"
    assert f"| {first.en} | {how} | 6.2 %, 5.0 % | 3.50 | 0.75 | - |" in page
    sample = f"[{second.sample}](../../docs/samples/{second.sample})"
    assert f"| {second.en} | none | 6.2 %, 5.0 % | 3.50 | - | {sample} |" in page
    assert "human-1" not in page
    persian = fill_figures(tmp_path / "docs" / "en" / "quality.md", text, "fa", tmp_path)
    assert "| ۶٫۲٪، ۵٫۰٪ | ۳٫۵۰ | ۰٫۷۵ |" in persian


def test_memory_of_the_sizes_is_that_of_the_compiler() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "card.json").read_text(encoding="utf-8"))["measurements"]
    name = "memory of a step: small, step, stored durations, batch 64, RTX 3060"
    value = next(one["value"] for one in measured if one["name"] == name)
    row = next(line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "| `small` |" in line)
    assert f"| {value:.1f} GiB |" in row


FALSE_FRIENDS = re.compile(
    "پرونده|پروانه|دیدنی|بی‌درنگ|خط داده|خط‌داده|صداساز|نقطهٔ بازیابی|نقطه‌های بازیابی|میان‌گیر|انباره|جمع‌آزما|بذر|نویسه"
    "|پایانه|درگاه|راه‌انداز|پیچشی|ترابرد|همانندساز|ریزتنظیم|نیم‌رخ|گرسنگی|کارخواه|دیوار آتش|فوج|رونوشت"
    "|به میدان|خوراک‌رسان|برون‌بر|دیرش|مخزن|طیف‌نگار|پایپ‌لاین|پروسس|تمییزدهنده|کوته‌نوشت|بازشناس|افزونهٔ"
)
"""Words that an Iranian engineer reads as something else, or must translate back to English."""


@pytest.mark.parametrize(
    "path",
    [
        ROOT / READMES["fa"],
        *sorted(PERSIAN.glob("*.md")),
        *sorted((ROOT / "src" / "myxtts" / "tools").glob("fa*.json")),
    ],
    ids=lambda path: path.stem,
)
def test_persian_has_none_of_the_false_friends(path: Path) -> None:
    assert FALSE_FRIENDS.findall(path.read_text(encoding="utf-8")) == []


def test_persian_pages_read_from_right_to_left_on_github_too() -> None:
    page = set_directions("# عنوان\n\nگزینهٔ `--help` و پوشهٔ `clips/` و `train`.\n\n```bash\nmake demo  # `x`\n```\n")
    assert page.startswith('<div dir="rtl">\n\n# ')
    assert page.endswith("</div>\n")
    assert "\u200e`--help`\u200f و" in page
    assert " `clips/`\u200e\u200f و `train`\u200f." in page
    assert '<div dir="ltr">\n\n```bash\nmake demo  # `x`\n```\n\n</div>' in page
    assert set_directions(page) == page


def test_every_page_that_claims_speed_shows_where_from() -> None:
    for path in (ROOT / "README.md", ENGLISH / "pipeline.md"):
        assert "benchmarks/results/feed.json" in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Stale cache", "stale-cache"),
        ("What it prints", "what-it-prints"),
        ("`model_size`", "model_size"),
        ("Precompute or on the fly?", "precompute-or-on-the-fly"),
        ("انبار ویژگی‌ها", "انبار-ویژگی‌ها"),
        ("پوشهٔ اجرا؟", "پوشهٔ-اجرا"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    assert make_anchor(heading.strip("`")) == anchor
