"""`myxtts plan`: the GPUs, threads, buffers, precision and batch size of a training on this machine, with reasons."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from myxtts.cli.help import option
from myxtts.cli.screen import Screen, print_paragraph
from myxtts.cli.settings import ALL_FLAGS, DEVICE_FLAGS, LOADING_FLAGS, MODEL_FLAGS, takes_settings

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.runtime.hardware import Hardware
    from myxtts.runtime.plan import Plan
    from myxtts.training.execution import Execution


@takes_settings("steps", *MODEL_FLAGS, *DEVICE_FLAGS, *LOADING_FLAGS, hidden=ALL_FLAGS)
def run_plan(
    config: XTTSConfig,
    as_json: Annotated[bool, option("Print the plan as one JSON object.", flag="--json")] = False,
) -> None:
    """Show which GPUs, threads, buffers, precision and batch size training will use here, and why.

    Takes the flags of myxtts train. Nothing is trained, and TensorFlow is not loaded.

    [bold]Examples[/bold]

    myxtts plan

    myxtts plan --model-size normal --multi-gpu

    myxtts plan --data-gpu 0 --model-gpu 1 --preprocessing-mode on_the_fly
    """
    screen = Screen(as_json=as_json)
    screen.finish(show_plan(config, screen))


def show_plan(config: XTTSConfig, screen: Screen) -> dict[str, Any]:
    """Prints devices, threads, buffers, batch and precision with the reasons; returns all of it for JSON."""
    from rich.text import Text

    from myxtts.runtime.hardware import detect_hardware
    from myxtts.runtime.plan import choose_plan

    hardware = detect_hardware()
    plan = choose_plan(config, hardware)
    execution = _choose_execution(config, plan, hardware)
    lines = {
        "Mode": plan.mode.label,
        "Train on": f"{', '.join(plan.model_devices)}: {plan.name_model_devices(hardware)}",
        "Load on": f"{plan.data_device}, {plan.num_workers} loader thread{'s' * (plan.num_workers != 1)}",
        "Batch": _describe_batch(config),
        "Buffer": _describe_buffer(plan),
        "Precision": "bfloat16 and float32 (mixed)" if execution.policy == "mixed_bfloat16" else "float32",
        "Step": "compiled with XLA" if execution.is_compiled else "graph mode" if execution.is_graph else "eager",
    }
    for label, text in lines.items():
        print_paragraph(screen.console, Text.assemble((f"{label:<11}", "bold"), text))
    screen.console.print("Why:")
    reasons = [*plan.reasons, *execution.reasons]
    for reason in reasons:
        print_paragraph(screen.console, Text(f"  - {reason}"))
    for warning in plan.warnings:
        screen.warn(warning)
    return {
        **asdict(plan),
        "reasons": reasons,
        "batch_size": config.data.batch_size,
        "policy": execution.policy,
        "is_compiled": execution.is_compiled,
    }


def _choose_execution(config: XTTSConfig, plan: Plan, hardware: Hardware) -> Execution:
    """Chooses precision and compilation as a run would; the corpus may lead to fewer batch shapes than num_shapes."""
    from myxtts.training.execution import Device, choose_execution

    gpus = plan.find_model_gpus(hardware)
    device = Device("GPU", min(gpu.compute_capability for gpu in gpus)) if gpus else Device("CPU")
    training, asked = config.training, config.data.num_shapes
    num_shapes = None if asked == "auto" else asked
    return choose_execution(training, device, total_steps=training.steps, num_shapes=num_shapes)


def _describe_batch(config: XTTSConfig) -> str:
    size, origin = config.data.batch_size, config.origins["data.batch_size"]
    if size == "auto":
        return "auto: the largest that fits is found when training starts"
    if config.data.frame_budget:
        return f"up to {size} utterances and {config.data.frame_budget:,} frames ({origin})"
    return f"{size} utterances ({origin})"


def _describe_buffer(plan: Plan) -> str:
    on_gpu = f", {plan.prefetch_buffer_size} on each GPU" if plan.prefetch_devices else ""
    return f"{plan.buffer_size} batches in memory{on_gpu}"
