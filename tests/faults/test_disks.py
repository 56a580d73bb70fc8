"""Full disks and disks without inodes: one sentence, and the run goes on when there is room.

Real small file systems (tmpfs) if the tests may mount them, as root may in a container; elsewhere
only a limit on the size of files.
"""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from faults.attack import LONG, SEED, ask, check, fingerprint, finish, start, times
from faults.conftest import Count

COMMANDS = {
    "ppo": "pretrain comsd --env maze-tree --preset smoke --skills 3 --method.hidden 16 "
    "--agent.hidden 16 --steps 1000 --checkpoint-every 500 --evaluate-every 1000",
    "ddpg": "pretrain comsd --env maze-tree --agent ddpg --preset smoke --skills 3 --steps 500 "
    "--checkpoint-every 100 --log-every 50 --evaluate-every 500 --train.replay 500",
}


def mount(place: Path, *options: str) -> None:
    asked = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    subprocess.run(asked, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A place for small file systems."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mount(place, "size=1m")
        subprocess.run(["umount", str(place)], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], capture_output=True)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(
    kind: str, disk: Path, tmp_path: Path, count: Count
) -> None:
    words, whole = COMMANDS[kind].split(), tmp_path / "whole"
    check(ask(*words, "--run", whole))
    wanted = fingerprint(whole)
    used = subprocess.run(["du", "-sk", str(whole)], capture_output=True, text=True, check=True)
    kilobytes, entries = int(used.stdout.split()[0]), sum(1 for _ in whole.rglob("*"))
    rng = np.random.default_rng([SEED, len(kind)])
    for trial in range(times(2, 21)):
        inodes = trial % 3 == 1
        if inodes:
            mount(disk, "size=100m", f"nr_inodes={int(rng.integers(2, entries + 2))}")
        else:
            mount(disk, f"size={int(rng.integers(1, kilobytes * 3 // 2)) // 4 * 4 + 4}k")
        run = disk / "run"
        end = check(ask(*words, "--run", run), kind)
        for verb in ("evaluate", "resume") if trial % 2 else ():
            if (run / "config.json").exists():
                check(ask(verb, run), f"{verb} {kind}")
        mount(disk, "remount", "size=200m", "nr_inodes=10000")
        asked = ["resume", run] if (run / "config.json").exists() else [*words, "--run", run]
        answer = ask(*asked)
        assert check(answer, f"after {end}") == "done", answer.err
        assert fingerprint(run) == wanted
        subprocess.run(["umount", str(disk)], check=True)
        count("disk without inodes" if inodes else "full disk", end)


def limit_files(size: int) -> None:
    """No file may become larger."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.skipif(not LONG, reason="small disks are tried in the short suite")
@pytest.mark.parametrize("kind", COMMANDS)
def test_files_that_may_not_grow(kind: str, tmp_path: Path, count: Count) -> None:
    words, whole, log = COMMANDS[kind].split(), tmp_path / "whole", tmp_path / "log"
    check(ask(*words, "--run", whole))
    wanted, rng = fingerprint(whole), np.random.default_rng(SEED)
    largest = max(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    for _ in range(8):
        run = tmp_path / "run"
        limit = int(rng.integers(500, largest))
        process = start(*words, "--run", run, log=log, prepare=limit_files, given=limit)
        end = check(finish(process, log), f"files of {limit} bytes")
        asked = ["resume", run] if (run / "config.json").exists() else [*words, "--run", run]
        check(ask(*asked))
        assert fingerprint(run) == wanted
        shutil.rmtree(run)
        log.unlink()
        count("file size limit", end)
