"""Every function of the Python API with whatever a program may give it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comsd
from faults.attack import SEED, call, times
from faults.conftest import Count

ODD: list[Any] = [
    None, True, 0, -1, 2.5, 10**400, float("nan"), "", "x", "\x00", "\ud800", b"x", [], {}, (),
    object(), np.int64(3), np.float32(2), np.array([1, 2]), np.array(3), Path("x"), int, print,
    Path("/dev/zero"), "cuda", {"x": 1}, {1: 2}, {"lr": "x"}, {"lr": None}, {"name": "ppo"},
    {"hidden": np.int64(8)},
]  # fmt: skip
GOOD: dict[str, Any] = {"env": "maze-tree", "preset": "smoke", "skills": 3, "steps": 500}
SETTINGS = [
    "env", "preset", "skills", "seed", "steps", "agent", "method", "train", "adapt", "run",
    "device", "precision", "threads", "log_every", "rollouts", "tensorboard", "space", "snapshots",
    "unknown",
]  # fmt: skip


def calls(run: Path) -> list[tuple[str, Callable[[Any], Any]]]:
    """Every function of the API with one argument to be chosen."""
    found: list[tuple[str, Callable[[Any], Any]]] = [
        (name, lambda x, name=name: comsd.pretrain("comsd", **{**GOOD, name: x}))
        for name in SETTINGS
    ]
    return [
        *found,
        ("method name", lambda x: comsd.pretrain(x, **GOOD)),
        ("load", comsd.load),
        ("load at", lambda x: comsd.load(run, at=x)),
        ("resume", comsd.resume),
        ("resume steps", lambda x: comsd.resume(run, steps=x)),
        ("evaluate", comsd.evaluate),
        ("analyse", comsd.analyse),
        ("analyse sweep", lambda x: comsd.analyse(run, sweep=x)),
        ("finetune", lambda x: comsd.finetune(x, task="hopper_hop", preset="smoke")),
        ("finetune task", lambda x: comsd.finetune(None, task=x, preset="smoke")),
        ("combine", lambda x: comsd.combine(x, task="hopper_hop")),
        ("combine task", lambda x: comsd.combine(run, task=x)),
    ]


@pytest.mark.usefixtures("untrained")
def test_no_call_raises_anything_else(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: Count
) -> None:
    cases = [(name, function, value) for name, function in calls(runs["ppo"]) for value in ODD]
    rng = np.random.default_rng(SEED)
    wrong: list[str] = []
    for n, i in enumerate(rng.permutation(len(cases))[: times(120, len(cases))]):
        name, function, value = cases[i]
        (tmp_path / str(n)).mkdir()
        monkeypatch.chdir(tmp_path / str(n))
        try:
            count("API call", call(function, value))
        except Exception as error:  # all of them are shown
            wrong.append(f"{name} = {value!r:.60}: {type(error).__name__}: {error!s:.200}")
    assert not wrong, "\n".join(wrong)
