"""What `import myxtts` offers: every public name loads, and nothing heavy is loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import myxtts


@pytest.mark.parametrize("name", sorted(set(myxtts.__all__) - {"__version__"}))
def test_every_public_name_loads(name: str) -> None:
    assert getattr(myxtts, name) is not None
    assert name in dir(myxtts)


def test_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(AttributeError, match="XTTSConfig"):
        myxtts.XTTSConfg  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    program = (
        "import myxtts, sys; sys.exit(len({'tensorflow', 'keras', 'numpy', 'scipy', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
