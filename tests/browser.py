"""Pages in a headless Chromium, where one is installed: screenshots as arrays of pixels, and pages that are used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from numpy.typing import NDArray

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium to draw the page with")
_PATIENCE_S = 120.0
"""For anything that a browser does on a machine that is busy with other tests."""


def photograph(page: Path, folder: Path, width: int, height: int) -> NDArray[np.float32]:
    """What a window of this size shows of a page, as pixels [H, W, 3] from 0 to 1."""
    import tensorflow as tf

    picture = folder / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
    places = [f"--user-data-dir={folder / 'browser'}", f"--window-size={width},{height}", f"--screenshot={picture}"]
    subprocess.run(
        [str(_CHROMIUM), *flags, *places, page.as_uri()], timeout=_PATIENCE_S, capture_output=True, check=True
    )
    pixels: NDArray[np.float32] = tf.io.decode_png(picture.read_bytes(), channels=3).numpy() / np.float32(255)
    return pixels


class PageError(AssertionError):
    """A script or a command of the DevTools protocol failed in the page."""


class Page:
    """A page in a headless Chromium, driven by the DevTools protocol."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._number = connection, 0
        self._requested: list[str] = []
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result; addresses that the page asks for meanwhile are noted."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(timeout=_PATIENCE_S))
            if message.get("method") == "Network.requestWillBeSent":
                self._requested.append(message["params"]["request"]["url"])
            if message.get("id") == self._number:
                if "error" in message:
                    raise PageError(message["error"])
                result: dict[str, Any] = message["result"]
                return result

    def run(self, script: str) -> Any:
        """The value of a script; a promise is waited for."""
        options = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        result = self.call("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in result:
            raise PageError(result["exceptionDetails"])
        return result["result"].get("value")

    def press(self, key: str, *, text: bool = True, shift: bool = False, ctrl: bool = False) -> None:
        """Presses a key, such as "s", "Enter" or "ArrowLeft"; a letter is typed where `text` says so."""
        code = {" ": "Space"}.get(key, f"Key{key.upper()}" if len(key) == 1 and key.isalpha() else key)
        number = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}.get(key)
        typed = {"text": "\r" if key == "Enter" else key} if text and (len(key) == 1 or key == "Enter") else {}
        fields = {"key": key.upper() if shift else key, "code": code, "modifiers": 8 * shift + 2 * ctrl}
        fields["windowsVirtualKeyCode"] = number if number is not None else ord(key[0].upper())
        self.call("Input.dispatchKeyEvent", type="keyDown", **fields, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def write(self, text: str) -> None:
        """Replaces the content of the field that has the focus, as if it was typed."""
        self.run("document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def wait_for(self, condition: str, timeout_s: float = _PATIENCE_S) -> None:
        """Waits until an expression is true; a page that is being replaced is waited for, too."""
        deadline = time.monotonic() + timeout_s
        while not self._is_true(condition):
            assert time.monotonic() < deadline, f"{condition} did not become true"
            time.sleep(0.05)

    def reload(self) -> None:
        """Loads the page again, and waits until the old one is gone: what it showed says nothing of the new one."""
        self.run("window.isOldPage = true")
        self.call("Page.reload")
        self.wait_for("window.isOldPage === undefined")

    def note_texts(self, selector: str) -> None:
        """Notes every text that an element shows from now on: a message may be gone before anybody looks at it."""
        self.run(
            f"(() => {{ const element = document.querySelector({json.dumps(selector)}); window.noted = [];"
            "new MutationObserver(() => window.noted.push(element.textContent))"
            ".observe(element, {childList: true, characterData: true, subtree: true}); })()"
        )

    def forget_texts(self) -> None:
        self.run("window.noted.length = 0")

    def wait_for_text(self, words: str) -> None:
        """Waits until a text with these words was noted."""
        self.wait_for(f"window.noted.some((text) => text.includes({json.dumps(words)}))")

    def _is_true(self, condition: str) -> bool:
        """Whether a condition holds now; not while the page is being replaced, or its scripts have not run yet."""
        try:
            return bool(self.run(condition))
        except PageError:
            return False

    def foreign_addresses(self, own: str) -> list[str]:
        """Addresses of other hosts that the page has asked for."""
        return [address for address in self._requested if not address.startswith((own, "blob:", "data:"))]


@contextmanager
def open_page(
    address: str, folder: Path, language: str = "en", *, size: str = "390,800", more_flags: Sequence[str] = ()
) -> Iterator[Page]:
    """Opens a page in a window, by default of a phone's width."""
    from websockets.sync.client import connect

    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--lang={language}", f"--accept-lang={language}"]
    flags += ["--remote-debugging-port=0", f"--user-data-dir={folder / 'browser'}", f"--window-size={size}"]
    flags += [*more_flags, "--autoplay-policy=no-user-gesture-required", "--mute-audio"]
    # What it logs goes to a file: a pipe that nobody reads would stop it once it is full.
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "browser.log").open("wb") as log,
        subprocess.Popen([str(_CHROMIUM), *flags, "about:blank"], stderr=log) as browser,
    ):
        try:
            # A busy machine answers late: neither connecting nor a ping has a time limit of its own.
            with connect(
                _find_tab(browser, folder), max_size=None, open_timeout=_PATIENCE_S, ping_interval=None
            ) as tab:
                page = Page(tab)
                page.call("Page.navigate", url=address)
                yield page
        finally:
            browser.kill()


def _find_tab(browser: subprocess.Popen[bytes], folder: Path) -> str:
    """Waits until the browser has a tab; the address at which it takes commands."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        log = (folder / "browser.log").read_text(encoding="utf-8", errors="replace")
        assert browser.poll() is None, log
        found = re.search(r"^DevTools listening on ws://([^/]+)/", log, re.MULTILINE)
        if found:
            with urlopen(f"http://{found[1]}/json/list", timeout=_PATIENCE_S) as answer:
                tabs = [item["webSocketDebuggerUrl"] for item in json.load(answer) if item["type"] == "page"]
            if tabs:
                return str(tabs[0])
        time.sleep(0.05)
    raise AssertionError("the browser did not start")
