"""The page of a blind comparison in a real browser: 20 pairs answered by keys and clicks give the JSON they must."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.browser import needs_chromium, open_page

from myxtts.features.wave_file import encode_sound
from myxtts.tools.compare.page import render_comparison, write_comparison
from myxtts.tools.compare.pairs import RECORDING, Pair
from myxtts.tools.words import Translator
from myxtts.types import Waveform

SIDES = ("runs/anna", "runs/</script> reza")
NUM_PAIRS = 20


def make_sound(pitch_hz: float) -> bytes:
    time_s = np.arange(800) / 16_000
    return encode_sound(Waveform((0.1 * np.sin(2 * np.pi * pitch_hz * time_s)).astype(np.float32), 16_000), ".flac")


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """16 pairs of both models in changing order, and 4 of a recording and the first model."""
    sounds = make_sound(200), make_sound(300)
    orders = [SIDES if number % 2 else SIDES[::-1] for number in range(16)] + [(RECORDING, SIDES[0])] * 4
    return [Pair(f"Sentence <{number}> & more.", names, sounds) for number, names in enumerate(orders)]


def choose(pair: Pair, number: int) -> int:
    """The first model is preferred in 12 of 16 pairs, the recording always; one pair has no difference."""
    if number == 3:
        return 0
    liked = RECORDING if RECORDING in pair.names else SIDES[number % 5 == 4]
    return pair.names.index(liked) + 1


@needs_chromium
def test_twenty_pairs_give_the_result_that_was_clicked(pairs: list[Pair], tmp_path: Path) -> None:
    page_file = write_comparison(tmp_path / "compare.html", pairs, SIDES, 7, Translator("en"))
    choices = [choose(pair, number) for number, pair in enumerate(pairs)]
    with open_page(page_file.as_uri(), tmp_path) as page:
        page.wait_for("document.getElementById('place')?.textContent === '0 / 20'")
        assert page.run("choose(1)") is False, "nothing can be chosen before both were heard"
        assert page.run("document.body.innerText.includes('runs/anna')") is False
        page.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: ' '}))")
        for number, choice in enumerate(choices):
            page.wait_for("!document.getElementById('choose1').disabled")
            if number % 2:
                page.run(f"document.getElementById('choose{choice}').click()")
            else:
                page.run(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{choice}'}}))")
            if number == 9:
                # Answers survive a reload.
                page.reload()
                page.wait_for("document.getElementById('place')?.textContent === '10 / 20'")
                page.run("play(1)")
        page.wait_for("window.comparison !== undefined")
        result = json.loads(page.run("JSON.stringify(window.comparison)"))
        assert "runs/anna" in page.run("document.getElementById('rows').innerText")
        assert page.foreign_addresses(page_file.as_uri()) == []
    assert result["is_complete"]
    assert [answer["choice"] for answer in result["answers"]] == choices
    assert [(answer["first"], answer["second"]) for answer in result["answers"]] == [pair.names for pair in pairs]
    models, recorded = result["groups"]
    assert (models["first"], models["second"]) == SIDES
    assert (models["first_wins"], models["second_wins"], models["ties"]) == (12, 3, 1)
    expected = binomtest(12, 15)
    interval = expected.proportion_ci(method="wilson")
    assert models["first_share"] == pytest.approx(0.8)
    assert (models["low"], models["high"]) == pytest.approx((interval.low, interval.high), abs=1e-4)
    assert models["p_value"] == pytest.approx(expected.pvalue)
    assert (recorded["first"], recorded["first_wins"], recorded["second_wins"]) == (RECORDING, 4, 0)


def test_persian_page_is_right_to_left_and_names_stay_hidden(pairs: list[Pair]) -> None:
    page = render_comparison(pairs, SIDES, 0, Translator("fa"))
    assert '<html lang="fa" dir="rtl">' in page
    assert "کدام بهتر است؟" in page
    assert page.count("</script>") == 2, "a name must not end the script element"
    shown, _, data = page.partition('<script type="application/json" id="data">')
    assert "runs/anna" not in shown
    assert RECORDING not in data.partition("</script>")[0]
