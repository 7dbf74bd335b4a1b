"""A diagnosis in sentences, the same for screen and page, and as data for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from myxtts.tools.diagnosis.advice import Advice
from myxtts.tools.diagnosis.causes import Finding
from myxtts.tools.diagnosis.oscillation import draw_timeline
from myxtts.tools.report_words import Words
from myxtts.tools.rhythm import rate_loading

if TYPE_CHECKING:
    from myxtts.tools.diagnose import Diagnosis

_WHOLE = ("threads", "cores", "shapes", "steps", "batches", "ops")
_SHARES = ("padding", "overlap")


def explain(finding: Finding, words: Words) -> str:
    """What shows the cause, in one sentence with its numbers."""
    kind = finding.facts.get("kind", finding.cause.value)
    return words.say(f"why_{kind}", **format_facts(finding.facts, words))


def format_facts(facts: Mapping[str, float | str], words: Words) -> dict[str, str]:
    """Numbers as the language writes them: counts whole, shares in percent."""
    return {name: _format(name, value, words) for name, value in facts.items()}


def _format(name: str, value: float | str, words: Words) -> str:
    if isinstance(value, str):
        return words.say(f"name_{value}") if name == "stage" else value
    if name in _SHARES:
        return words.share(value)
    return words.count(value) if name in _WHOLE else words.number(value)


def tell_gain(advice: Advice, words: Words) -> str:
    """The factor, and in brackets between which it lies."""
    gain = advice.gain
    interval = words.say("between", low=words.number(gain.low), high=words.number(gain.high))
    return f"{words.say('times_faster', value=words.number(gain.factor))} ({interval})"


def tell_oscillation(diagnosis: Diagnosis, words: Words) -> str:
    oscillation = diagnosis.oscillation
    if oscillation.period_steps is None or oscillation.period_s is None:
        return words.say("no_period")
    return words.say(
        "period",
        steps=words.count(oscillation.period_steps),
        seconds=words.number(oscillation.period_s),
        correlation=words.number(oscillation.correlation),
    )


def tell_verified(diagnosis: Diagnosis, words: Words) -> str:
    compared = diagnosis.verified
    if compared is None:
        return ""
    return words.say(
        "predicted_measured",
        predicted=words.say("times_faster", value=words.number(diagnosis.first.gain)),
        measured=words.say("times_faster", value=words.number(compared.factor)),
        low=words.number(compared.low),
        high=words.number(compared.high),
    )


def tell_split(diagnosis: Diagnosis, words: Words) -> str:
    """Whether data-parallel training beats a data GPU, with the measured numbers."""
    split = diagnosis.split
    if split is None:
        return ""
    features = diagnosis.evidence.find_stage("features")
    numbers = words.say(
        "split_numbers",
        features_ms=words.number(1e3 * features.seconds if features else 0.0),
        step_ms=words.number(1e3 * diagnosis.evidence.step_s),
        split=words.number(split.split_rate),
        parallel=words.number(split.parallel_rate),
    )
    return f"{numbers} {words.say(f'split_{split.winner}', gain=words.share(split.gain_percent / 100))}"


def to_json(diagnosis: Diagnosis, words: Words) -> dict[str, Any]:
    """Everything, for programs: numbers as numbers, sentences in the language of `words`."""
    evidence, loop, oscillation = diagnosis.evidence, diagnosis.evidence.loop, diagnosis.oscillation
    compared = diagnosis.verified
    return {
        "cause": diagnosis.first.cause.value,
        "is_healthy": diagnosis.is_healthy,
        "findings": [
            {
                "cause": one.cause.value,
                "title": words.say(one.cause.value),
                "explanation": explain(one.finding, words),
                "loss_ms": 1e3 * one.finding.loss_s,
                "loss_share": one.finding.loss_s / loop.interval_s,
                "facts": one.finding.facts,
                "recommendations": [_describe_advice(advice, words) for advice in one.advice],
            }
            for one in diagnosis.findings
        ],
        "stages": [{**asdict(stage), "batches_per_s": _finite(stage.batches_per_s)} for stage in evidence.stages],
        "interval_ms": 1e3 * loop.interval_s,
        "batches_per_s": 1 / loop.interval_s,
        "data_ms": 1e3 * evidence.data_s,
        "step_ms": 1e3 * evidence.step_s,
        "is_step_emulated": evidence.is_step_emulated,
        "loading": rate_loading(evidence.data_s),
        "au": diagnosis.au,
        "padding": evidence.padding,
        "oscillation": {**asdict(oscillation), "is_stable": oscillation.is_stable},
        "timeline": {"text": draw_timeline(loop.intervals_s), "intervals_ms": (1e3 * loop.intervals_s).tolist()},
        "python_functions": [asdict(function) for function in evidence.python_functions],
        "machine": asdict(evidence.machine),
        "machine_settings": [asdict(setting) for setting in diagnosis.machine_settings],
        "split": asdict(diagnosis.split) if diagnosis.split else None,
        "changes": diagnosis.list_changes(),
        "verified": {"factor": compared.factor, "low": compared.low, "high": compared.high} if compared else None,
    }


def _describe_advice(advice: Advice, words: Words) -> dict[str, Any]:
    return {
        "setting": advice.setting,
        "value": advice.value,
        "reason": words.say(advice.reason),
        "is_setting": advice.is_setting,
        "predicted_gain": asdict(advice.gain),
    }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
