"""Too little memory is one sentence; what is left can be gone on with."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import numpy as np

from faults.attack import SEED, ask, check, finish, start, times
from faults.conftest import Count

HUNGRY = [  # each wants gigabytes somewhere else
    "--agent.hidden 8000",
    "--method.hidden 8000",
    "--train.envs 100000",
    "--agent ddpg --train.batch-size 400000",
    "--agent ddpg --train.replay 30000000",
    "--rollouts 100000",
    "--skills 3",
]


def limit_memory(megabytes: int) -> None:
    """That this process may take beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def test_too_little_memory_is_one_sentence(tmp_path: Path, count: Count) -> None:
    rng = np.random.default_rng(SEED)
    base = "pretrain comsd --env maze-tree --preset smoke --skills 3"
    for trial in range(times(1, 14)):
        run, log = tmp_path / "run", tmp_path / f"log-{trial}"
        extra = HUNGRY[trial % len(HUNGRY)]
        words = (base if extra != "--skills 3" else base.removesuffix(" --skills 3")).split()
        megabytes = int(rng.integers(40, 600))
        asked = [*words, *extra.split(), "--run", run]
        process = start(*asked, log=log, prepare=limit_memory, given=megabytes)
        end = check(finish(process, log), f"{extra} within {megabytes} MB")
        count("memory limit", end)
        if end != "done":  # nothing that refuses a smaller try is left behind
            again = (
                ["resume", run] if (run / "config.json").exists() else [*asked[:-2], "--run", run]
            )
            if again[0] != "resume":
                assert not run.exists() or not list(run.iterdir()), list(run.rglob("*"))
            else:
                process = start(*again, log=log, prepare=limit_memory, given=megabytes)
                check(finish(process, log))
        shutil.rmtree(run, ignore_errors=True)
    assert check(ask(*base.split(), "--steps", "500", "--run", tmp_path / "run")) == "done"
