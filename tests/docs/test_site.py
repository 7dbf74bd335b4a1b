"""The site: whole pages in both directions that need nothing outside of them, looked at and used in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.browser import Page, needs_chromium, open_page, photograph
from tests.docs.commands import ROOT
from tests.outline import Outline

from documentation.markdown import MarkdownPage
from documentation.site import BrokenLinkError, Site


def write_tree(root: Path) -> Path:
    """A small project with a page in each language."""
    for language, title, text in (
        ("en", "Questions", "See [home](../../README.md)."),
        ("fa", "پرسش‌ها", "متن `--set`."),
    ):
        folder = root / "docs" / language
        folder.mkdir(parents=True)
        (folder / "faq.md").write_text(
            f"# {title}\n\n{text}\n\n```bash\nmake --silent demo  # go\n```\n", encoding="utf-8"
        )
    (root / "README.md").write_text("# Home\n\n[Q](docs/en/faq.md#questions) [L](LICENSE)\n", encoding="utf-8")
    (root / "README.fa.md").write_text("# خانه\n", encoding="utf-8")
    (root / "LICENSE").write_text("free", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    Site.find(ROOT).write(out)
    return out


def test_every_page_is_whole_and_every_address_leads_somewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 13
    for page in pages:
        text = page.read_text(encoding="utf-8")
        outline = Outline(text)
        assert len(set(outline.ids)) == len(outline.ids)
        assert not re.findall(r'<(?!a )[^>]*(?:src|href)="(?:https?:)?//[^"]*"', text), (
            f"{page} needs a foreign address"
        )
        for address in outline.addresses:
            if address.startswith("https://"):
                continue
            path, _, anchor = address.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), f"{page.name}: {address}"
            if anchor and target.suffix == ".html":
                assert f'id="{unquote(anchor)}"' in target.read_text(encoding="utf-8"), f"{page.name}: {address}"


def test_languages_lead_to_each_other_and_have_their_direction(tmp_path: Path) -> None:
    out = tmp_path / "site"
    Site.find(write_tree(tmp_path / "tree")).write(out)
    english, persian = (Outline((out / language / "faq.html").read_text("utf-8")) for language in ("en", "fa"))
    assert (english.attributes["html"]["dir"], english.attributes["html"]["lang"]) == ("ltr", "en")
    assert (persian.attributes["html"]["dir"], persian.attributes["html"]["lang"]) == ("rtl", "fa")
    assert "../fa/faq.html" in english.addresses
    assert "../en/faq.html" in persian.addresses
    first = (out / "index.html").read_text(encoding="utf-8")
    assert 'href="en/index.html"' in first
    assert (out / "files" / "LICENSE").read_text(encoding="utf-8") == "free"
    text = (out / "fa" / "faq.html").read_text(encoding="utf-8")
    assert '<code dir="ltr" class="short">--set</code>' in text, "a flag is not torn at its dashes"
    assert '<pre dir="ltr"' in text
    assert '<span class="line">make' in text, "a long command wraps"
    assert '<span class="short">--silent</span>' in text, "a flag is not torn there either"


def draw(text: str) -> str:
    return MarkdownPage.parse(Path("page.md"), text).to_html(lambda address: address)


def test_a_sound_has_a_player_where_it_stands_alone() -> None:
    assert '<audio controls preload="none" src="a.mp3">' in draw("| sound |\n|---|\n| [hear](a.mp3) |\n")
    assert "<audio" not in draw("One is [here](a.mp3), another [there](b.mp3).")


def test_a_persian_sentence_in_a_command_keeps_its_full_stop_at_its_end() -> None:
    drawn = draw('```bash\nmyxtts synth "سلام، این مدل است." --out a.wav\n```\n')
    assert "<bdi>سلام، این مدل است.</bdi>" in drawn


def test_long_code_wraps_between_words_only() -> None:
    drawn = draw("`--preprocessing-mode on_the_fly --data-gpu 0 --model-gpu 1`")
    words = re.findall(r'<span class="short">([^<]*)</span>', drawn)
    assert words == ["--preprocessing-mode", "on_the_fly", "--data-gpu", "0", "--model-gpu", "1"]


def test_a_broken_link_stops_the_site(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    (root / "docs" / "en" / "faq.md").write_text("# A\n\n[gone](nowhere.md)\n", encoding="utf-8")
    with pytest.raises(BrokenLinkError, match=r"faq\.md refers to nowhere\.md"):
        Site.find(root).write(tmp_path / "site")


@needs_chromium
@pytest.mark.parametrize("width", [1400, 480])
def test_a_browser_shows_the_pages_without_anything_running_over(site: Path, tmp_path: Path, width: int) -> None:
    for page in ("en/pipeline.html", "en/configuration.html", "fa/pipeline.html"):
        shown = photograph(site / page, tmp_path, width, 1600)
        assert shown.shape[:2] == (1600, width)
        dark = shown.mean(axis=-1) < 0.5
        assert dark.any(axis=1).sum() > 300, "there is text"
        assert not dark[:, -4:].any(), "nothing is cut off at the edge"


def search(page: Page, word: str) -> list[str]:
    """Types a word into the search box and returns the addresses that are offered."""
    page.run(f"document.querySelector('#find').value = {word!r}")
    page.run("document.querySelector('#find').dispatchEvent(new Event('input'))")
    page.wait_for("!document.querySelector('#found').hidden")
    found: list[str] = page.run("[...document.querySelectorAll('#found a')].map(link => link.getAttribute('href'))")
    return found


@needs_chromium
def test_a_phone_has_menu_search_copy_and_theme_in_both_languages(site: Path, tmp_path: Path) -> None:
    for language, word, near in (("en", "rejected", "your-data"), ("fa", "رد می‌شوند", "your-data")):
        address = (site / language / "quickstart.html").as_uri()
        with open_page(address, tmp_path / language, language) as page:
            page.wait_for("document.readyState === 'complete' && !!document.querySelector('.copy')")
            assert page.run("getComputedStyle(document.body).direction") == ("rtl" if language == "fa" else "ltr")
            assert page.run("getComputedStyle(document.querySelector('pre')).direction") == "ltr"
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the phone"

            assert page.run("document.querySelector('.pages').offsetHeight") == 0
            page.run("document.querySelector('#menu').click()")
            assert page.run("document.querySelector('.pages').offsetHeight") > 200

            assert any(near in one for one in search(page, word))
            assert page.run("document.querySelectorAll('#found mark').length") > 0
            assert search(page, "qqqqzz") == []

            page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
            page.call("Page.bringToFront")
            page.note_texts(".copy")
            page.run("document.querySelector('.copy').click()")
            page.wait_for_text(page.run("document.documentElement.dataset.copied"))
            assert page.run("navigator.clipboard.readText()") == "make demo"

            theme = page.run("document.documentElement.dataset.theme")
            page.run("document.querySelector('#theme').click()")
            assert page.run("document.documentElement.dataset.theme") != theme
            assert page.foreign_addresses(site.as_uri()) == []


@needs_chromium
def test_persian_is_found_however_it_is_spelt(site: Path, tmp_path: Path) -> None:
    with open_page((site / "fa" / "faq.html").as_uri(), tmp_path, "fa") as page:
        page.wait_for("document.readyState === 'complete' && !!document.querySelector('#find')")
        half_space, joined, arabic = (search(page, word) for word in ("گوینده‌ها", "گویندهها", "گوينده‌ها"))
        assert half_space
        assert half_space == joined == arabic
        page.wait_for("document.fonts.check('16px Vazirmatn')")
        assert "Vazirmatn" in page.run("getComputedStyle(document.body).fontFamily")
