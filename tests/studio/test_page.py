"""The page in a real browser with a fake microphone: everything by keyboard, and all is there after kill -9."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
from tests.browser import Page, needs_chromium, open_page
from tests.studio.process import run_studio

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.studio.app import TEXTS

WEB = Path(__file__).parents[2] / "src" / "myxtts" / "studio" / "web"
MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
READY = "document.documentElement?.dataset.ready === 'yes' && document.querySelectorAll('#figures div').length > 0"


def get_text(page: Page, id: str) -> Any:
    return page.run(f"(document.getElementById('{id}').value ?? document.getElementById('{id}').textContent)")


def press_and_wait(page: Page, key: str, said: str, **modifiers: bool) -> None:
    """Presses a key and waits for the message, which comes when the next clip can be heard."""
    page.forget_texts()
    page.press(key, **modifiers)
    page.wait_for_text(said)
    page.wait_for(READY)


def list_texts(page: Page) -> Any:
    return page.run("[...document.querySelectorAll('#list .said')].map((one) => one.textContent)")


def correct_and_cut(page: Page) -> None:
    """Corrects the first clip, splits the second, merges the rest of it with the third, drops and restores."""
    page.press("e", text=False)
    page.wait_for("document.activeElement.id === 'text'")
    page.write("Good evening, everybody.")
    press_and_wait(page, "Enter", "Saved")
    assert get_text(page, "clip-id") == "a2"
    page.press("Escape")
    page.press("s", text=False)
    page.wait_for("!document.getElementById('split-form').hidden")
    assert re.fullmatch(r"Split at 1\.[01]\d s", get_text(page, "split-place"))
    assert get_text(page, "split-first") == "The train"
    press_and_wait(page, "Enter", "Split")
    assert get_text(page, "clip-id") == "a2_r2_1"
    page.press("j", text=False)
    page.wait_for(f"document.getElementById('text').value === 'leaves soon.' && {READY}")
    press_and_wait(page, "m", "Merged", text=False)
    assert get_text(page, "text") == "leaves soon. Tea or coffee, please?"
    press_and_wait(page, "u", "Undone", text=False)
    press_and_wait(page, "U", "Redone", text=False, shift=True)
    press_and_wait(page, "d", "Dropped", text=False)
    press_and_wait(page, "u", "Undone", text=False)
    assert list_texts(page) == [
        "Good evening, everybody.",
        "The train",
        "leaves soon. Tea or coffee, please?",
        "این یک جمله است.",
    ]


def lose_a_race(page: Page, address: str) -> None:
    """Another tab edits a clip while a text is being typed: it is refused, stays in its field, and is saved then."""
    page.press("k", text=False)
    page.wait_for(f"document.getElementById('clip-id').textContent === 'a2_r2_1' && {READY}")
    page.press("e", text=False)
    page.wait_for("document.activeElement.id === 'text'")
    page.write("The late train")
    revision = httpx.get(f"{address}/api/clips", timeout=120).json()["revision"]
    body = {"revision": revision, "kind": "drop", "id": "b1"}
    assert httpx.post(f"{address}/api/edit", json=body, timeout=120).status_code == 200
    press_and_wait(page, "Enter", "another tab")
    assert get_text(page, "text") == "The late train"
    press_and_wait(page, "Enter", "Saved")
    page.press("Escape")


def record_prompt(page: Page) -> None:
    page.press("r", text=False)
    page.wait_for("document.getElementById('consent').open")
    page.run("document.getElementById('consent-speaker').focus()")
    page.write("Omid")
    page.press("Enter")
    page.wait_for("document.getElementById('take-state').textContent.includes('Ready')")
    page.press(" ", text=False)
    page.wait_for("/Recording: [1-9]/.test(document.getElementById('take-state').textContent)")
    page.press(" ", text=False)
    page.wait_for("document.getElementById('take-state').textContent.startsWith('Saved, ')")
    # The tone of the fake microphone is at full scale.
    page.wait_for("document.getElementById('take-warnings').textContent.startsWith('Clipped')")
    page.press("Enter", text=False)
    page.wait_for("document.getElementById('prompt').textContent === 'The second prompt.'")
    page.press("c", text=False)
    page.wait_for(f"document.getElementById('list').textContent.includes('The first prompt.') && {READY}")


def check_persian_on_a_phone(page: Page, address: str) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    page.call("Page.navigate", url=f"{address}/?lang=fa")
    page.wait_for(f"document.documentElement?.dir === 'rtl' && {READY}")
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("document.getElementById('view-record').textContent") == "ضبط"
    assert get_text(page, "clip-id") == "a2_r2_1", "the place is kept"
    # The key of an English D, with a Persian layout.
    fields = {"key": "ی", "code": "KeyD", "windowsVirtualKeyCode": 68}
    page.call("Input.dispatchKeyEvent", type="keyDown", **fields)
    page.wait_for("document.querySelector('[data-filter=dropped] b').textContent === '۲'")


@needs_chromium
def test_a_corpus_is_edited_and_recorded_by_keyboard_and_survives_a_kill(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("The first prompt.\n\nThe second prompt.\n", encoding="utf-8")
    arguments = ("--prompts", str(tmp_path / "prompts.txt"))
    with run_studio(corpus, *arguments) as studio:
        address = studio.address
        with open_page(address, tmp_path, size="1200,800", more_flags=MICROPHONE) as page:
            page.wait_for(READY)
            page.note_texts("#message")
            correct_and_cut(page)
            lose_a_race(page, address)
            record_prompt(page)
            shown = list_texts(page)
            page.run("[...document.querySelectorAll('#list li')][1].click()")
            page.wait_for("document.getElementById('clip-id').textContent === 'a2_r2_1'")
            studio.process.kill()
            assert studio.process.wait(120) == -signal.SIGKILL
            page.press("d", text=False)
            page.wait_for_text("The studio does not answer")
            with run_studio(corpus, *arguments, port=address.rpartition(":")[2]) as again:
                assert again.address == address
                page.reload()
                page.wait_for(f"{READY} && document.querySelectorAll('#list li').length === {len(shown)}")
                assert list_texts(page) == shown
                check_persian_on_a_phone(page, address)
                assert page.foreign_addresses(address) == []
                again.process.send_signal(signal.SIGINT)
                _, notices = again.process.communicate(timeout=120)
                assert again.process.returncode == 0, notices
                assert f"myxtts prepare {corpus}" in notices
    data = DataConfig(text_frontend="characters", max_clipped_share=1.0)
    prepare_corpus([Recordings(corpus)], tmp_path / "out", data)
    prepared = {one.id: one for one in open_corpus(tmp_path / "out").utterances()}
    assert sorted(one.text for one in prepared.values()) == sorted(set(shown) - {"The late train", "این یک جمله است."})
    [take] = (one for one in prepared.values() if one.speaker == "Omid")
    assert 0.8 < take.duration_s < 20.0
    assert soundfile.info(take.audio).subtype == "PCM_16"


def test_the_page_uses_every_text_and_no_other() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in WEB.iterdir())
    used = set(re.findall(r'data-(?:text|hint)="(\w+)"', sources)) | set(re.findall(r'"(\w+)"', sources))
    assert set(TEXTS) - used - {"takeQuiet", "takeNoisy"} == set(), "texts that nothing shows"
    named = set(re.findall(r'data-(?:text|hint)="(\w+)"', sources)) | set(re.findall(r'\bt\("(\w+)"', sources))
    assert named - set(TEXTS) == set(), "texts that do not exist"


@pytest.mark.parametrize("file", sorted(WEB.iterdir()), ids=lambda file: file.name)
def test_the_page_names_no_foreign_address(file: Path) -> None:
    assert not re.search(r"(?:https?:)?//[\w-]+\.", file.read_text(encoding="utf-8"))
