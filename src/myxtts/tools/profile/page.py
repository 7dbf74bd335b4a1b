"""The page about a profile: where an average step goes, how data came, operations of `tf.data`, and all compiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from myxtts.tools.bench.page import show_machine
from myxtts.tools.charts import Curve, Flame, draw_curves, draw_flame
from myxtts.tools.page import Card, Html, Page, make_grid, make_panel, make_paragraph, make_section, make_table
from myxtts.tools.profile.result import OpTime, Spread, TrainingProfile
from myxtts.tools.profile_words import choose_profile_words
from myxtts.tools.report_words import Words

_PARTS = ("forward", "backward", "optimizer", "averaging", "rest")


def write_profile_report(profile: TrainingProfile, machine: Mapping[str, Any], path: Path, lang: str = "en") -> Path:
    return make_profile_page(profile, machine, choose_profile_words(lang)).write(path)


def make_profile_page(profile: TrainingProfile, machine: Mapping[str, Any], words: Words) -> Page:
    return Page(
        title=words.say("title"),
        lead=words.say(
            "lead",
            steps=words.count(len(profile.steps)),
            parameters=words.number(profile.num_parameters / 1e6),
            mode=words.say(f"mode_{profile.mode}"),
        ),
        cards=_make_cards(profile, words),
        sections=[
            _show_stages(profile, words),
            _show_loading(profile, words),
            _show_ops(profile, words),
            _show_compiling(profile, words),
            show_machine(machine, words),
        ],
        footer=words.say("footer"),
        lang=words.lang,
    )


def _make_cards(profile: TrainingProfile, words: Words) -> list[Card]:
    step = Spread.of([one.step_s for one in profile.steps])
    data = profile.data
    verdict = ", ".join(words.say(key) for key in (data.verdict, "stable" if data.is_stable else "unstable"))
    return [
        Card(
            words.say("step_card"),
            _ms(step.median_ms, words),
            words.say("median_remark", variation=words.share(step.variation)),
        ),
        Card(words.say("wait_card"), _ms(data.wait.mean_ms, words), words.say("wait_remark")),
        Card(words.say("load_card"), _ms(data.load.mean_ms, words), verdict),
        Card(words.say("au"), words.share(data.au), words.say("au_remark")),
        Card(
            words.say("graphs_card"),
            words.count(len(profile.compilations)),
            words.say("graphs_remark", count=words.count(profile.num_retraces)),
        ),
    ]


def _show_stages(profile: TrainingProfile, words: Words) -> Html:
    stages = profile.list_stages()
    total = sum(seconds for _, seconds in stages)
    rows = [
        [words.say(name), words.number(1000 * seconds), words.share(seconds / max(total, 1e-12))]
        for name, seconds in stages
    ]
    saving, parts = profile.saving, profile.parts
    often, seldom = (
        words.say("every", steps=words.count(count)) for count in (saving.log_steps, saving.checkpoint_steps)
    )
    once = [
        [words.say("held"), words.number(1000 * saving.checkpoint_held_s), seldom],
        [words.say("written"), words.number(1000 * saving.checkpoint_write_s), seldom],
        [words.say("record"), words.number(1000 * saving.log_s), often],
    ]
    picture = draw_flame(make_step_flame(profile, words), lambda seconds: _ms(1000 * seconds, words))
    heading = [words.say("stage"), words.say("ms"), words.say("share_of_step")]
    return make_section(
        words.say("stages"),
        make_panel(words.say("flame"), picture),
        make_grid(
            [
                make_panel(words.say("in_numbers"), make_table(heading, rows)),
                make_panel(words.say("once"), make_table([words.say("stage"), words.say("ms"), ""], once)),
            ]
        ),
        lead=words.say(
            "stages_lead",
            shape=parts.shape,
            sum=words.number(1000 * parts.sum_s),
            whole=words.number(1000 * parts.whole_s),
        ),
    )


def make_step_flame(profile: TrainingProfile, words: Words) -> Flame:
    """An average step, in it the training step, and in that its parts."""
    parts = [Flame(words.say(name), seconds) for name, seconds in profile.list_parts() if seconds > 0]
    training = Flame(words.say("training_step"), max(profile.parts.whole_s, profile.parts.sum_s), parts)
    others = {name: seconds for name, seconds in profile.list_stages() if name not in _PARTS}
    children = [
        Flame(words.say("data_wait"), others.pop("data_wait")),
        training,
        *(Flame(words.say(name), seconds) for name, seconds in others.items()),
    ]
    return Flame(words.say("average_step"), sum(child.value for child in children), children)


def _show_loading(profile: TrainingProfile, words: Words) -> Html:
    data = profile.data
    spreads = {"data_wait": data.wait, "loading_stage": data.load}
    spreads |= {f"stage_{name}": spread for name, spread in data.stages.items()}
    heading = [words.say(key) for key in ("stage", "mean", "median", "highest", "spread")]
    facts = [
        [words.say("verdict"), words.say(data.verdict)],
        [words.say("depth"), words.number(data.mean_depth)],
        [words.say("padding"), words.share(data.padding)],
    ]
    steps = [one.step for one in profile.steps]
    curves = [
        Curve(words.say("training_step"), steps, [1000 * one.step_s for one in profile.steps], is_noisy=False),
        Curve(words.say("data_wait"), steps, [1000 * one.wait_s for one in profile.steps], is_noisy=False),
    ]
    return make_section(
        words.say("loading"),
        make_grid(
            [
                make_panel(
                    words.say("of_a_batch"),
                    make_table(heading, [_list_spread(words.name(name), one, words) for name, one in spreads.items()]),
                    make_table([], facts),
                ),
                make_panel(words.say("step_times"), draw_curves(curves, words.tick)),
            ]
        ),
        lead=words.say("loading_lead", loader=data.loader),
    )


def _list_spread(label: str, spread: Spread, words: Words) -> list[str]:
    times = (spread.mean_ms, spread.median_ms, spread.highest_ms)
    return [label, *map(words.number, times), words.share(spread.variation)]


def _show_ops(profile: TrainingProfile, words: Words) -> Html:
    if not profile.ops:
        return make_section(words.say("ops"), make_paragraph(words.say(profile.no_ops_reason), "lead"))
    picture = draw_flame(make_op_flame(profile.ops, words), lambda value: _ms(value, words))
    heading = [words.say(key) for key in ("op", "own_ms", "elements", "parallelism", "buffered", "megabytes")]
    rows = [
        [
            "· " * op.level + op.name,
            words.number(op.own_ms),
            words.count(op.num_elements),
            words.count(op.parallelism) if op.parallelism is not None else "–",
            f"{words.count(op.num_buffered)} / {words.count(op.buffer_size)}" if op.buffer_size is not None else "–",
            words.number(op.megabytes),
        ]
        for op in profile.ops
    ]
    table = make_table(heading, rows, code_columns=(0,))
    return make_section(words.say("ops"), make_panel(words.say("pipeline"), picture, table), lead=words.say("ops_lead"))


def make_op_flame(ops: Sequence[OpTime], words: Words) -> Flame:
    """Each operation as wide as itself and all that it takes its elements from."""
    roots = _nest(ops)
    return Flame(words.say("pipeline"), sum(root.value for root in roots), roots)


def _nest(ops: Sequence[OpTime]) -> list[Flame]:
    """From a list in which each operation is followed by its inputs."""
    flames, place = [], 0
    while place < len(ops):
        others = range(place + 1, len(ops))
        stop = next((number for number in others if ops[number].level <= ops[place].level), len(ops))
        children = _nest(ops[place + 1 : stop])
        flames.append(Flame(ops[place].name, ops[place].own_ms + sum(child.value for child in children), children))
        place = stop
    return flames


def _show_compiling(profile: TrainingProfile, words: Words) -> Html:
    rows = [
        [
            one.shape,
            words.number(one.seconds),
            words.say("compiled" if one.is_compiled else "traced"),
            words.say("before") if one.step is None else words.say("at_step", step=words.count(one.step)),
        ]
        for one in profile.compilations
    ]
    heading = [words.say(key) for key in ("shape", "seconds_taken", "kind", "when")]
    log = make_table(heading, rows, code_columns=(0,)) if rows else make_paragraph(words.say("eager_note"))
    shapes = [_list_spread(shape, spread, words) for shape, spread in profile.measure_shapes().items()]
    heading = [words.say(key) for key in ("shape", "mean", "median", "highest", "spread")]
    place = make_paragraph(words.say("trace", place=profile.trace_dir)) if profile.trace_dir else Html("")
    return make_section(
        words.say("compiling"),
        make_panel(words.say("compiling"), log),
        make_panel(words.say("by_shape"), make_table(heading, shapes, code_columns=(0,))),
        place,
        lead=words.say("compiling_lead"),
    )


def _ms(value: float, words: Words) -> str:
    return words.say("milliseconds", value=words.number(value))
