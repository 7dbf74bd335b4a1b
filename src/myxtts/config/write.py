"""Writes a resolved configuration as YAML, into a run folder so that power loss never leaves half a file."""

from __future__ import annotations

from pathlib import Path

from myxtts.config.scalars import format_scalar
from myxtts.config.settings import ResolvedConfig, list_settings
from myxtts.files import write_atomically

RESOLVED_FILE_NAME = "config.yaml"


def format_yaml(config: ResolvedConfig) -> str:
    """Every setting, section by section; a comment names the origin of each value that is not the default."""
    lines: list[str] = []
    section = ""
    for setting in list_settings(config):
        home, _, name = setting.key.rpartition(".")
        if home != section:
            section = home
            lines += ["", f"{section}:"]
        indent = "  " if section else ""
        comment = f"  # {setting.origin}" if setting.value != setting.default else ""
        lines.append(f"{indent}{name}: {format_scalar(setting.value)}{comment}")
    return "\n".join(lines) + "\n"


def write_resolved(config: ResolvedConfig, directory: str | Path) -> Path:
    """Writes `config.yaml` into `directory`, which is made if need be: either all of it appears or nothing changes."""
    path = Path(directory) / RESOLVED_FILE_NAME
    with write_atomically(path) as file:
        file.write(format_yaml(config).encode())
    return path
