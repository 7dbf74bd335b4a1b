"""A run whose data are other ones is refused where its weights stand for other names, even with --override."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.models.toys import make_spec

from myxtts.errors import ConfigError
from myxtts.training.voice.setup import _refuse_other_names

SPEC = make_spec()


def make_data(**changes: Any) -> Any:
    values = {name: getattr(SPEC, name) for name in ("factor_sizes", "languages", "speakers")} | changes
    utterances = SimpleNamespace(languages=list(values["languages"]), speakers=list(values["speakers"]))
    return SimpleNamespace(frontend=SimpleNamespace(factor_sizes=values["factor_sizes"]), utterances=utterances)


def test_the_same_names_are_accepted() -> None:
    _refuse_other_names(SPEC, make_data(), Path("runs/run"))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"speakers": ("somebody", *SPEC.speakers)}, "speakers"),
        ({"speakers": tuple(reversed(("a", *SPEC.speakers)))}, "speakers"),
        ({"languages": ("xx",)}, "languages"),
        ({"factor_sizes": (3,)}, "symbols"),
    ],
)
def test_other_names_are_refused_with_the_way_to_fine_tune(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=rf"The {word} of the data .* the run runs/run") as caught:
        _refuse_other_names(SPEC, make_data(**changes), Path("runs/run"))
    assert "--init-from runs/run" in caught.value.next_step
