"""A sweep from what the user says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from comsd.config import choose
from comsd.envs.foreign import import_package
from comsd.errors import InputError
from comsd.sweeps.course import choose_sampler
from comsd.sweeps.settings import (
    FORM,
    METHOD,
    Choices,
    Range,
    Value,
    read_setting,
    sweepable,
)
from comsd.sweeps.sweep import Adaptation, Sweep, usual_rank


def make_sweep(
    method: str,
    env: str,
    settings: Mapping[str, str | Sequence[Value]],
    *,
    preset: str = "paper",
    seeds: int = 3,
    trials: int | None = None,
    sampler: str = "auto",
    task: str | None = None,
    adapt: str = "finetune",
    rank: str | None = None,
    lowest: bool = False,
    halve: int = 0,
) -> Sweep:
    """method: one, or several with commas; settings: lists of values, or texts as on the command
    line; checked before it returns.
    """
    stage = cast(Adaptation, choose("adapt", adapt, {"finetune": "finetune", "combine": "combine"}))
    for name in filter(None, (env, task)):
        import_package(name)
    agent = settings.get("agent")
    agent = agent if agent is None or isinstance(agent, str) else str(agent[0])
    methods = tuple(name.strip() for name in method.split(","))
    if len(set(methods)) < len(methods):
        raise InputError(f"method is {method!r}, which holds a method twice")
    options = sweepable(methods, env, agent and agent.partition(",")[0], task, stage)
    for name, value in settings.items():
        if not isinstance(value, (str, Sequence)):
            raise InputError(f"{name} is {value!r}; it must be a list of values or {FORM}")
    swept = tuple(read_setting(name, value, options) for name, value in settings.items())
    if len(methods) > 1:
        swept = (Choices(METHOD, methods), *swept)
    samples = trials is not None and any(isinstance(s, Range) for s in swept)
    chosen: Any = choose_sampler(sampler, samples, bool(halve))
    sweep = Sweep(
        methods=methods,
        env=env,
        preset=preset,
        settings=swept,
        seeds=seeds,
        trials=trials,
        task=task,
        adapt=stage,
        rank=rank or "",
        lowest=lowest,
        halve=halve,
        sampler=chosen,
    )
    sweep = sweep if rank else replace(sweep, rank=usual_rank(sweep))
    sweep.check()
    return sweep
