"""Numbers that are none, at every entry of training: the run stops and none is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from comsd.envs.maze import MazeEnv
from comsd.methods.comsd import ComSD
from faults.attack import LONG, ask, check
from faults.conftest import Count

COMMANDS = {
    "ppo": "pretrain comsd --env maze-tree --preset smoke --skills 3 --checkpoint-every 500",
    "ddpg": "pretrain comsd --env maze-tree --agent ddpg --preset smoke --skills 3 --steps 800 "
    "--checkpoint-every 100 --log-every 50",
}


def spoil_tensor(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """One number of a tensor, its gradient kept."""
    mask = torch.zeros_like(tensor)
    mask.view(-1)[0] = value
    return tensor + mask


def first(result: Any, value: float) -> Any:
    """A loss or a reward, before its metrics."""
    return spoil_tensor(result[0], value), *result[1:]


def metric(result: Any, value: float) -> Any:
    name = next(iter(result[1]))
    return result[0], result[1] | {name: torch.full_like(result[1][name], value)}


def observation(result: Any, value: float) -> Any:
    obs = result.obs.copy()
    obs[0, 0] = value
    return result._replace(obs=obs)


def task_reward(result: Any, value: float) -> Any:
    given = np.array(result.reward, dtype=float)
    given[0] = value
    return result._replace(reward=given)


ENTRIES: dict[str, tuple[type, str, Callable[[Any, float], Any]]] = {
    "loss of the representation": (ComSD, "loss", first),
    "intrinsic reward": (ComSD, "reward", first),
    "metric of the reward": (ComSD, "reward", metric),
    "observation": (MazeEnv, "step", observation),
    "reward of the environment": (MazeEnv, "step", task_reward),
}


@cache
def moments(kind: str) -> dict[str, int]:
    """Calls of each entry up to two thirds of a run: some checkpoints are there by then."""
    calls = Counter[str]()
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as place:
        for entry, (owner, name, _) in ENTRIES.items():
            original = getattr(owner, name)

            def counted(
                *args: Any, entry: str = entry, original: Any = original, **given: Any
            ) -> Any:
                calls[entry] += 1
                return original(*args, **given)

            patch.setattr(owner, name, counted)
        check(ask(*COMMANDS[kind].split(), "--run", Path(place) / "run"))
    return {entry: max(1, number * 2 // 3) for entry, number in calls.items()}


def written(run: Path) -> list[str]:
    """Where a run directory holds a number that is none."""
    found = [str(table) for table in run.glob("*.csv") if is_bad(table.read_text())]
    for file in run.rglob("*.safetensors"):
        for name, tensor in load_file(file).items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                found.append(f"{file}: {name}")
    return found


def is_bad(text: str) -> bool:
    return any(
        word in ("nan", "inf", "-inf") for word in text.lower().replace("\n", ",").split(",")
    )


@pytest.mark.parametrize("value", [math.nan, math.inf] if LONG else [math.nan])
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", COMMANDS)
def test_no_such_number_is_written(
    kind: str,
    entry: str,
    value: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: Count,
) -> None:
    owner, name, spoil = ENTRIES[entry]
    moment, calls, original = moments(kind)[entry], 0, getattr(owner, name)

    def spoiled(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        result = original(self, *args, **options)
        return spoil(result, value) if calls == moment else result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, spoiled)
        answer = ask(*COMMANDS[kind].split(), "--run", tmp_path / "run")
    assert calls >= moment
    count("NaN or infinity", check(answer, f"{entry}, {kind}"))
    assert written(tmp_path / "run") == []
    if check(answer) == "failed":
        assert check(ask("resume", tmp_path / "run")) == "done", "the last good checkpoint is kept"
        assert written(tmp_path / "run") == []
