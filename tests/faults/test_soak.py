"""A long run keeps its memory and its descriptors."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from faults.attack import LONG, start, wait_until
from faults.conftest import Count

SECONDS = float(os.environ.get("COMSD_SOAK", "1800" if LONG else "10"))
WARM = 3  # evaluations, by which the replay is full
COMMANDS = {
    "maze, DDPG": "pretrain comsd --env maze-tree --agent ddpg --preset smoke --skills 3 "
    "--train.replay 2000 --log-every 200 --checkpoint-every 500 --evaluate-every 1000",
    "walker lite": "pretrain comsd --env walker --preset lite --train.replay 20000 "
    "--evaluate-every 10000 --checkpoint-every 10000",
}


def usage(process: int) -> tuple[float, int]:
    """Resident megabytes and open descriptors."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096 / 1e6, len(list(Path(f"/proc/{process}/fd").iterdir()))


def evaluated(run: Path) -> int:
    """How often so far."""
    table = run / "evaluations.csv"
    return len(table.read_text().splitlines()) - 1 if table.exists() else 0


@pytest.mark.parametrize("kind", ["walker lite"] if LONG else ["maze, DDPG"])
def test_memory_and_descriptors_stay(kind: str, tmp_path: Path, count: Count) -> None:
    """Compared is with what it takes once the replay is full and all that recurs has been done."""
    words = [*COMMANDS[kind].split(), "--steps", "100000000", "--run", str(tmp_path / "run")]
    process = start(*words, log=tmp_path / "log")
    assert process.pid is not None
    samples: list[tuple[float, int]] = []
    try:
        wait_until(lambda: evaluated(tmp_path / "run") >= WARM, process, 1800)
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            time.sleep(SECONDS / 100)
            assert process.is_alive(), (tmp_path / "log").read_text()
            samples.append(usage(process.pid))
    finally:
        process.terminate()
        process.join(60)
    assert process.exitcode == 143, "a signal stops it within a minute"
    tenth = len(samples) // 10
    first = max(memory for memory, _ in samples[:tenth])
    growth = max(memory for memory, _ in samples[-tenth:]) / first - 1
    open_files = {number for _, number in samples}
    assert max(open_files) - min(open_files) <= 3, open_files  # a checkpoint is open for a moment
    count(f"soak of {SECONDS:.0f} s, {kind}", f"{first:.0f} MB at first, {growth:+.1%} at the end")
    assert growth < (0.02 if LONG else 0.05), samples
