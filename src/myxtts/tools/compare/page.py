"""The page of a blind comparison: one HTML file with all sounds, which works without a network or a server.

The listener hears two sounds and presses 1, 2 or 0. Names are shown at the end, with the share of preferences, Wilson's
95 % interval and an exact sign test. The result is `window.comparison`, and a JSON file behind a button.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from myxtts.storage.atomic import write_file
from myxtts.tools.compare.pairs import Pair
from myxtts.tools.page import escape, read_asset
from myxtts.tools.words import Translator


def write_comparison(path: Path, pairs: Sequence[Pair], sides: tuple[str, str], seed: int, tr: Translator) -> Path:
    """Writes the page, whole or not at all."""
    write_file(path, render_comparison(pairs, sides, seed, tr).encode())
    return path


def render_comparison(pairs: Sequence[Pair], sides: tuple[str, str], seed: int, tr: Translator) -> str:
    template = Template((files("myxtts.tools.compare") / "page.html").read_text(encoding="utf-8"))
    words = {name: escape(text) for name, text in _list_words(tr).items()}
    return template.substitute(
        words,
        lang=tr.lang,
        dir="rtl" if tr.lang == "fa" else "ltr",
        style=read_asset("page.css"),
        data=_make_data(pairs, sides, seed),
    )


def _make_data(pairs: Sequence[Pair], sides: tuple[str, str], seed: int) -> str:
    """Pairs as JSON that may stand inside a script element: without the sign that could end the element."""
    names = json.dumps([pair.names for pair in pairs], ensure_ascii=False).encode()
    sounds = [[base64.b64encode(sound).decode("ascii") for sound in pair.sounds] for pair in pairs]
    digest = hashlib.sha256(names + b"".join(sound for pair in pairs for sound in pair.sounds)).hexdigest()
    data = {
        "id": digest[:16],
        "seed": seed,
        "sides": sides,
        "names": base64.b64encode(names).decode("ascii"),
        "pairs": [{"text": pair.text, "sounds": sound} for pair, sound in zip(pairs, sounds, strict=True)],
    }
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def _list_words(tr: Translator) -> dict[str, str]:
    return {
        "title": tr("Which one sounds better?"),
        "lead": tr("You hear the same sentence twice. Choose the better one; who speaks is shown at the end."),
        "hear_first": tr("▶ First"),
        "hear_second": tr("▶ Second"),
        "first_better": tr("the first is better"),
        "second_better": tr("the second is better"),
        "no_difference": tr("no difference"),
        "keys": tr("Space plays both again; 1, 2 and 0 choose once both were heard. Headphones are best."),
        "result": tr("Result"),
        "pair": tr("Compared"),
        "votes": tr("Preferred (no difference)"),
        "share_head": tr("Share of the first"),
        "interval_head": tr("95 % interval"),
        "sign_head": tr("p (sign test)"),
        "explain": tr(
            "If the interval contains 50 %, this test does not show which one is better. "
            "Pairs without a difference are not counted."
        ),
        "save": tr("Save the result as JSON"),
        "answers_head": tr("All answers"),
    }
