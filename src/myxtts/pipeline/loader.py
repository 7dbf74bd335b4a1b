"""What every loader is to the feed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from myxtts.pipeline.order import BatchPlan


class Loader(ABC):
    """Fills buffers with the utterances of plans. `fill` is called by several threads at once."""

    name: str

    @abstractmethod
    def fill(self, plan: BatchPlan, buffer: Any) -> Any:
        """The batch of a plan, made in the memory of the buffer; its `mel_lengths` say how many frames are real."""

    @abstractmethod
    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        """The id of each row; '' where a row only fills the shape."""

    def announce(self, plan: BatchPlan) -> None:  # noqa: B027 - most loaders have no use for it
        """Says that a plan will be filled soon. Returns at once."""

    def close(self) -> None:  # noqa: B027 - most loaders hold nothing
        """Ends what the loader has under way."""
