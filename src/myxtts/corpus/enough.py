"""`prepare` asks whether a corpus is enough: sounds and pairs of sounds, minutes per speaker, level, noise.

`CorpusTally` counts while utterances are checked, from tokens and levels that are computed anyway, in constant memory:
phones and pairs per language, seconds per speaker, histograms of levels. `assess` compares the counts with the
frequencies of the language, and with the one corpus that this project has measured from minutes to errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from myxtts.corpus.check import Accepted
from myxtts.corpus.coverage import ENOUGH_OF_A_PHONE, Coverage, PhoneCounter, PhoneTally, measure_coverage
from myxtts.corpus.prompts import has_prompts, read_frequencies, suggest_prompts
from myxtts.storage.atomic import write_file
from myxtts.text.frontend import FrontEnd
from myxtts.text.tokenizer import PhonemeTokenizer

LEAST_SNR_DB = 12.0
"""Speech above noise; `myxtts collect` rejects clips with less."""
QUIET_DB = -35.0
"""Level of speech below which clips are called quiet."""
MEASURED_MINUTES = 75
MEASURED = (
    f"a speech recogniser misheard 7.3 % of the words of a tiny model that was trained on {MEASURED_MINUTES} minutes "
    "of one voice (4.2 % for the human speaker), and 5.6 % of those of the base model adapted to 5 minutes."
)
"""The measurements are described in docs/en/good-enough.md and docs/en/quality.md."""
_NUM_RARE_SHOWN = 12
_FULL_SHARE = 0.99
"""Share of the pairs of everyday sentences from which on coverage is called full."""
_NUM_SPEAKERS_SHOWN = 5
_LOWEST_DB, _NUM_BINS = -120, 121


class _Histogram:
    """Counts of values in whole dB, from -120 to 0 (full scale) or of differences from 0 to 120."""

    def __init__(self, lowest: int) -> None:
        self._lowest, self._counts = lowest, np.zeros(_NUM_BINS, np.int64)

    def add(self, value: float) -> None:
        self._counts[int(np.clip(round(value) - self._lowest, 0, _NUM_BINS - 1))] += 1

    def __bool__(self) -> bool:
        return bool(self._counts.any())

    def median(self) -> int:
        return int(np.searchsorted(np.cumsum(self._counts), self._counts.sum() / 2)) + self._lowest

    def count_below(self, value: float) -> int:
        return int(self._counts[: max(0, round(value) - self._lowest)].sum())


@dataclass(frozen=True, slots=True)
class Needs:
    """What a corpus has and lacks. `lines` are sentences for people, those that ask for something in `lacking`."""

    coverage: list[Coverage]
    minutes: dict[str, float]
    level_db: int | None
    num_quiet: int
    snr_db: int | None
    num_noisy: int
    lines: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    suggested: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


class CorpusTally:
    """Counts what `assess` needs; `add` is called once per accepted utterance."""

    def __init__(self, frontend: FrontEnd) -> None:
        self._frontend = frontend
        self._phones: dict[str, PhoneCounter] = {}
        self._seconds: dict[str, float] = {}
        self._levels, self._snrs = _Histogram(_LOWEST_DB), _Histogram(0)

    def add(self, accepted: Accepted) -> None:
        utterance = accepted.utterance
        self._seconds[utterance.speaker] = self._seconds.get(utterance.speaker, 0.0) + utterance.duration_s
        tokenizer = self._frontend.tokenizer
        if isinstance(tokenizer, PhonemeTokenizer):
            language = utterance.language
            if language not in self._phones:
                self._phones[language] = PhoneCounter(tokenizer.inventory)
            self._phones[language].add(accepted.tokens)
        if accepted.levels is not None:
            self._levels.add(accepted.levels.level_db)
            self._snrs.add(accepted.levels.snr_db)

    def assess(self, out: Path, num_suggested: int = 0) -> Needs:
        """Compares the counts with the language; writes `num_suggested` sentences per language that has a list."""
        tallies = {language: counter.tally() for language, counter in self._phones.items() if has_prompts(language)}
        coverage = [measure_coverage(name, tally, read_frequencies(name)) for name, tally in tallies.items()]
        needs = Needs(
            coverage,
            {
                name: round(seconds / 60, 2)
                for name, seconds in sorted(self._seconds.items(), key=lambda item: -item[1])
            },
            self._levels.median() if self._levels else None,
            self._levels.count_below(QUIET_DB),
            self._snrs.median() if self._snrs else None,
            self._snrs.count_below(LEAST_SNR_DB),
        )
        for part in coverage:
            _describe_coverage(part, needs)
        _describe_unknown_languages([name for name in self._phones if name not in tallies], needs, self._frontend)
        _describe_minutes(needs)
        _describe_sound(needs)
        if num_suggested:
            self._suggest(tallies, num_suggested, out, needs)
        return needs

    def _suggest(self, tallies: dict[str, PhoneTally], number: int, out: Path, needs: Needs) -> None:
        """Chooses sentences of the project's lists, and writes them as prompts-LANGUAGE.txt, one a line."""
        for language, tally in tallies.items():
            chosen = suggest_prompts(language, tally, self._frontend, number)
            path = out / f"prompts-{language}.txt"
            write_file(path, "".join(f"{sentence}\n" for sentence in chosen).encode())
            needs.suggested[language], needs.files[language] = chosen, str(path)


def _describe_coverage(part: Coverage, needs: Needs) -> None:
    """Adds sentences about the sounds and pairs of one language."""
    sounds = f"{part.num_phones} of {part.num_phones_of_language}"
    share = f"{100 * part.pair_share:.0f} % of those in everyday sentences"
    needs.lines.append(f"Sounds of {part.language}: {sounds}. Pairs of sounds: {share}.")
    if part.missing_phones:
        needs.lacking.append(f"{part.language}: these sounds are missing: {' '.join(part.missing_phones)}.")
    if part.rare_phones:
        rare = [f"{phone} ({count})" for phone, count in part.rare_phones.items()]
        more = f" and {len(rare) - _NUM_RARE_SHOWN} more" if len(rare) > _NUM_RARE_SHOWN else ""
        named = ", ".join(rare[:_NUM_RARE_SHOWN])
        needs.lacking.append(
            f"{part.language}: these sounds occur fewer than {ENOUGH_OF_A_PHONE} times: {named}{more}."
        )
    if part.pair_share < _FULL_SHARE:
        pairs = ", ".join(pair.replace(" ", "-") for pair in part.missing_pairs)
        needs.lacking.append(
            f"{part.language}: these frequent pairs are missing: {pairs}. --suggest 50 writes sentences that have them."
        )


def _describe_unknown_languages(languages: Sequence[str], needs: Needs, frontend: FrontEnd) -> None:
    """Says for which texts coverage is not known, and why."""
    if frontend.kind == "characters":
        needs.lines.append("Sounds are not counted: the texts are read as characters (install the extra espeak).")
    elif languages:
        named = ", ".join(sorted(languages))
        needs.lines.append(f"Sounds of {named} are not judged: the project has no sentences to compare them with.")


def _describe_minutes(needs: Needs) -> None:
    """Adds sentences about the minutes of each speaker, beside what was measured with how many."""
    minutes = list(needs.minutes.items())
    named = ", ".join(f"{speaker} {length:.1f}" for speaker, length in minutes[:_NUM_SPEAKERS_SHOWN])
    if len(minutes) > _NUM_SPEAKERS_SHOWN:
        speaker, least = minutes[-1]
        middle = np.median(list(needs.minutes.values()))
        named += f", … {speaker} {least:.1f} ({len(minutes):,} speakers, median {middle:.1f})"
    needs.lines.append(f"Minutes per speaker: {named}.")
    needs.lines.append(f"For comparison: {MEASURED}")


def _describe_sound(needs: Needs) -> None:
    """Adds sentences about level and noise; without decoding (--quick) nothing is known of them."""
    if needs.level_db is None or needs.snr_db is None:
        needs.lines.append("Level and noise are not known: recordings were not decoded (--quick).")
        return
    needs.lines.append(
        f"Level of speech: {needs.level_db} dB of full scale, {needs.snr_db} dB above the noise (medians)."
    )
    if needs.num_noisy:
        noun = "clip has" if needs.num_noisy == 1 else "clips have"
        needs.lacking.append(f"{needs.num_noisy:,} {noun} less than {LEAST_SNR_DB:g} dB between speech and noise.")
    if needs.num_quiet:
        noun = "clip is" if needs.num_quiet == 1 else "clips are"
        needs.lacking.append(f"{needs.num_quiet:,} {noun} quieter than {QUIET_DB:g} dB.")
