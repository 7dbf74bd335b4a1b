"""How many batches fit: buffers in memory and on the device keep to a share of what is there."""

from __future__ import annotations

from dataclasses import dataclass

_SHARE_OF_RAM = 0.25
_SHARE_OF_VRAM = 0.10


@dataclass(frozen=True, slots=True)
class BufferSizes:
    """Batches in memory and on the device, and what was cut in words."""

    in_memory: int
    on_device: int
    messages: tuple[str, ...]


def fit_buffers(
    asked_in_memory: int,
    asked_on_device: int,
    batch_bytes: int,
    available_ram_bytes: int,
    ram_budget_gb: float | None,
    free_vram_bytes: int | None,
) -> BufferSizes:
    """The numbers asked for, or as many as the budgets hold; at least two in memory and one on a device."""
    ram_bytes = measure_ram_budget(available_ram_bytes, ram_budget_gb)
    in_memory, messages = asked_in_memory, []
    if in_memory * batch_bytes > ram_bytes:
        in_memory = max(min(2, asked_in_memory), ram_bytes // batch_bytes)
        messages.append(
            f"buffer_size is {asked_in_memory}, but as many batches of {_show(batch_bytes)} exceed the memory budget "
            f"of {_show(ram_bytes)}: {in_memory} are held. Set data.ram_budget_gb to allow more."
        )
    on_device = fit_on_device(asked_on_device, batch_bytes, free_vram_bytes)
    if on_device < asked_on_device:
        messages.append(
            f"prefetch_buffer_size is {asked_on_device}, but a tenth of the GPU's free memory holds {on_device}."
        )
    return BufferSizes(in_memory, on_device, tuple(messages))


def fit_on_device(asked: int, batch_bytes: int, free_vram_bytes: int | None) -> int:
    """As many batches as asked for, or as a tenth of a GPU's free memory holds; at least one if any was asked for."""
    if free_vram_bytes is None:
        return asked
    return min(asked, max(1, int(free_vram_bytes * _SHARE_OF_VRAM) // batch_bytes))


def measure_ram_budget(available_ram_bytes: int, ram_budget_gb: float | None) -> int:
    """What buffers may take, and again what features kept in memory may take."""
    return int(available_ram_bytes * _SHARE_OF_RAM) if ram_budget_gb is None else int(ram_budget_gb * 2**30)


def _show(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.1f} MB"
