"""`prepare` says what a corpus lacks, and suggests sentences that fill the gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from tests.conftest import RATE_HZ

from myxtts.config.schema import DataConfig
from myxtts.corpus.coverage import Coverage, PhoneTally, measure_coverage
from myxtts.corpus.enough import Needs
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.corpus.prompts import read_frequencies, read_prompts, tally_texts
from myxtts.text.espeak import is_espeak_available
from myxtts.text.frontend import FrontEnd

needs_espeak = pytest.mark.skipif(not is_espeak_available(), reason="needs the extra espeak")
NUM_SUGGESTED = 12


@pytest.fixture(scope="module")
def phonemes() -> FrontEnd:
    return FrontEnd.create("phonemes")


def assess(ljspeech: Path, **options: object) -> Needs:
    data = DataConfig(text_frontend=options.pop("text_frontend", "phonemes"))  # type: ignore[arg-type]
    summary = prepare_corpus([Recordings(ljspeech)], ljspeech.parent / "out", data, **options)  # type: ignore[arg-type]
    assert summary.needs is not None
    assert summary.to_json()["needs"]["minutes"] == summary.needs.minutes
    return summary.needs


def cover(texts: list[str], frontend: FrontEnd, language: str = "en") -> Coverage:
    found = sum(tally_texts(texts, language, frontend), PhoneTally())
    return measure_coverage(language, found, read_frequencies(language))


@needs_espeak
def test_small_corpus_lacks_sounds_pairs_and_silence(ljspeech: Path, phonemes: FrontEnd) -> None:
    texts = [f"This is sentence number {number}." for number in range(20)]
    needs = assess(ljspeech, num_suggested=NUM_SUGGESTED)
    (coverage,) = needs.coverage
    assert coverage == cover(texts, phonemes), "the tokens of prepare give the same counts as the texts"
    assert "ʒ" not in coverage.rare_phones
    assert "ʃ" in coverage.missing_phones
    assert 0.05 < coverage.pair_share < 0.5
    assert any("these sounds are missing" in line for line in needs.lacking)
    assert needs.minutes == {"": pytest.approx(0.5)} or list(needs.minutes.values()) == [pytest.approx(0.5)]
    assert any("75 minutes of one voice" in line and "adapted to 5 minutes" in line for line in needs.lines)


@needs_espeak
def test_suggested_sentences_cover_more_than_any_others(ljspeech: Path, phonemes: FrontEnd) -> None:
    texts = [f"This is sentence number {number}." for number in range(20)]
    needs = assess(ljspeech, num_suggested=NUM_SUGGESTED)
    chosen = needs.suggested["en"]
    assert len(set(chosen)) == NUM_SUGGESTED
    assert set(chosen) <= set(read_prompts("en"))
    assert Path(needs.files["en"]).read_text(encoding="utf-8").splitlines() == chosen
    gained = cover(texts + chosen, phonemes).pair_share
    generator = np.random.default_rng(0)
    for _ in range(5):
        others = generator.choice(read_prompts("en"), NUM_SUGGESTED, replace=False).tolist()
        assert gained > cover(texts + others, phonemes).pair_share + 0.02


@needs_espeak
def test_persian_corpus_gets_persian_sentences(ljspeech: Path) -> None:
    table = ljspeech / "metadata.csv"
    rows = [line.split("|")[0] for line in table.read_text(encoding="utf-8").splitlines()]
    table.write_text("".join(f"{id}|سلام، حال شما چطور است؟|سلام شماره‌ی {id[2:]}\n" for id in rows), encoding="utf-8")
    data = DataConfig(text_frontend="phonemes", language="fa")
    summary = prepare_corpus([Recordings(ljspeech)], ljspeech.parent / "out", data, num_suggested=3)
    assert summary.needs is not None
    assert set(summary.needs.suggested) == {"fa"}
    assert summary.needs.coverage[0].language == "fa"


def test_noise_and_level_are_measured_unless_only_headers_are_read(ljspeech: Path) -> None:
    generator = np.random.default_rng(0)
    speech = np.concatenate([np.zeros(8000), 0.1 * np.sin(np.arange(20_000) / 20), np.zeros(8000)])
    for number, path in enumerate(sorted((ljspeech / "wavs").iterdir())):
        noise = 0.05 if number < 3 else 0.0003
        gain = 0.05 if number == 5 else 1.0
        soundfile.write(path, gain * (speech + noise * generator.normal(size=len(speech))), RATE_HZ)
    needs = assess(ljspeech, text_frontend="characters")
    assert (needs.num_noisy, needs.num_quiet) == (3, 1)
    assert needs.level_db == pytest.approx(-23, abs=2)
    assert "3 clips have less than 12 dB between speech and noise." in needs.lacking
    assert any("read as characters" in line for line in needs.lines)
    quick = assess(ljspeech, text_frontend="characters", headers_only=True)
    assert quick.level_db is None
    assert any("--quick" in line for line in quick.lines)
