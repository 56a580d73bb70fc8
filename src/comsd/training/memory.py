"""How much memory there is, said before it is taken."""

from __future__ import annotations

from pathlib import Path

from comsd.errors import InputError
from comsd.replay import Layout


def free_memory() -> int | None:
    """Bytes that can be had without swapping, where the system says."""
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def check_memory(layout: Layout) -> None:
    """Raise InputError where a replay would not fit."""
    free = free_memory()
    if free is not None and layout.bytes > free:
        raise InputError(
            f"train.replay is {layout.capacity}: it needs {layout.bytes / 1e9:.1f} GB of memory "
            f"and {free / 1e9:.1f} GB are free; it must be at most "
            f"{int(layout.capacity * free / layout.bytes)}"
        )
