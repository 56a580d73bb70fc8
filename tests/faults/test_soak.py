"""A long run keeps its memory and its descriptors."""

from __future__ import annotations

import ctypes
import os
import threading
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


class MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]


def tell_memory(told: Path) -> None:
    """Write down what malloc has given out, again and again.

    Resident memory also holds what was given back and waits to be used again, which comes and goes
    by tens of megabytes; the memory in use does not.
    """
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = MallocInfo

    def tell() -> None:
        while True:
            found = libc.mallinfo2()
            with told.open("a") as file:
                file.write(f"{(found.uordblks + found.hblkhd) / 1e6}\n")
            time.sleep(SECONDS / 1000)

    threading.Thread(target=tell, daemon=True).start()


def descriptors(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def evaluated(run: Path) -> int:
    """How often so far."""
    table = run / "evaluations.csv"
    return len(table.read_text().splitlines()) - 1 if table.exists() else 0


@pytest.mark.parametrize("kind", ["walker lite"] if LONG else ["maze, DDPG"])
def test_memory_and_descriptors_stay(kind: str, tmp_path: Path, count: Count) -> None:
    """Compared is with what it takes once the replay is full and all that recurs has been done."""
    words = [*COMMANDS[kind].split(), "--steps", "100000000", "--run", str(tmp_path / "run")]
    told = tmp_path / "memory"
    process = start(*words, log=tmp_path / "log", prepare=tell_memory, given=told)
    assert process.pid is not None
    open_files: set[int] = set()
    try:
        wait_until(lambda: evaluated(tmp_path / "run") >= WARM, process, 1800)
        warm = len(told.read_text().splitlines())
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            time.sleep(SECONDS / 100)
            assert process.is_alive(), (tmp_path / "log").read_text()
            open_files.add(descriptors(process.pid))
    finally:
        process.terminate()
        process.join(60)
    assert process.exitcode == 143, "a signal stops it within a minute"
    assert max(open_files) - min(open_files) <= 3, open_files  # a checkpoint is open for a moment
    used = [float(line) for line in told.read_text().splitlines()[warm:]]
    tenth = len(used) // 10
    first, last = min(used[:tenth]), min(used[-tenth:])  # between two updates
    growth = last / first - 1
    count(f"soak of {SECONDS:.0f} s, {kind}", f"{first:.0f} MB in use, {growth:+.1%} at the end")
    assert growth < (0.02 if LONG else 0.05), used
