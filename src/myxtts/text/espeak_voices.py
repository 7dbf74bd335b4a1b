"""Which voice of espeak-ng speaks a language code."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache

from myxtts.errors import DataError
from myxtts.text.espeak import list_voices

# Codes that mean another voice than espeak would take, or that it does not know.
_ALIASES = {
    "en": "en-us",
    "zh": "cmn",
    "zh-hk": "yue",
    "zh-mo": "yue",
    "zh-yue": "yue",
    "no": "nb",
    "nn": "nb",
    "iw": "he",
    "in": "id",
    "sh": "hr",
    "ckb": "ku",
    "kmr": "ku",
    "arb": "ar",
    "pes": "fa",
    "prs": "fa",
}
# Listed by espeak-ng 1.52 without the dictionary that they need.
_UNUSABLE = frozenset({"xex", "fo", "kaa"})


def find_voice(language: str) -> str:
    """The voice for a language code such as en, pt-BR or zh_CN; a region without a voice falls back to its language."""
    voices = _rank_voices()
    code = language.strip().lower().replace("_", "-")
    while code:
        code_or_alias = _ALIASES.get(code, code)
        if code_or_alias in voices:
            return voices[code_or_alias]
        code = code.rpartition("-")[0]
    raise DataError(
        f"espeak-ng has no voice for the language {language!r}.",
        next_step=f"{_suggest(language, voices)}Other languages can be trained with text_frontend: characters.",
    )


@lru_cache(maxsize=1)
def _rank_voices() -> dict[str, str]:
    """The best voice of each language code and each voice name."""
    best: dict[str, tuple[int, str]] = {}
    for voice in list_voices():
        if voice.name in _UNUSABLE:
            continue
        for code, rank in (*voice.languages, (voice.name, 0)):
            best[code] = min(best.get(code, (rank, voice.name)), (rank, voice.name))
    return {code: name for code, (_, name) in best.items()}


def _suggest(language: str, voices: dict[str, str]) -> str:
    titles = {voice.title.lower(): voice.name for voice in list_voices() if voice.name not in _UNUSABLE}
    wanted = language.strip().lower()
    near = [titles[title] for title in get_close_matches(wanted, titles, n=2, cutoff=0.6)]
    near += get_close_matches(wanted, voices, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(dict.fromkeys(near))}? " if near else ""
