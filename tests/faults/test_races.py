"""Several processes at one directory: one works, the others are told, the run is as if alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from faults.attack import SEED, ask, check, copy, fingerprint, finish, start, times
from faults.conftest import Count

COMMAND = (
    "pretrain comsd --env maze-tree --agent ddpg --preset smoke --skills 3 --steps 600 "
    "--checkpoint-every 100 --log-every 50 --evaluate-every 600"
)


def race(lines: list[list[object]], place: Path) -> list[str]:
    """Several commands at the same time; how each ended."""
    logs = [place / f"log-{i}" for i in range(len(lines))]
    for log in logs:
        log.unlink(missing_ok=True)
    started = [start(*line, log=log) for line, log in zip(lines, logs, strict=True)]
    answers = [finish(process, log) for process, log in zip(started, logs, strict=True)]
    return [check(answer, line) for answer, line in zip(answers, lines, strict=True)]


def test_two_writers(tmp_path: Path, count: Count) -> None:
    words, whole = COMMAND.split(), tmp_path / "whole"
    check(ask(*words, "--run", whole))
    wanted = fingerprint(whole)
    half = tmp_path / "half"
    check(ask(*(w if w != "600" else "300" for w in words), "--run", half))
    rng = np.random.default_rng(SEED)
    for trial in range(times(1, 10)):
        run = tmp_path / f"run-{trial}"
        if trial % 2 == 0:
            lines: list[list[object]] = [[*words, "--run", run] for _ in range(3)]
        else:
            copy(half, run)
            lines = [["resume", run, "--steps", 600], ["resume", run, "--steps", 600]]
            lines.append(["evaluate", run])
        ends = race([lines[i] for i in rng.permutation(len(lines))], tmp_path)
        assert "done" in ends
        if trial % 2 == 0:
            assert sorted(ends) == ["done", "refused", "refused"]
        count("race", ", ".join(sorted(ends)))
        assert check(ask("resume", run)) == "done"
        if trial % 2 == 0:
            assert fingerprint(run) == wanted
