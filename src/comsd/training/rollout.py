"""The one roll-out loop: a policy acts in environments until their first episodes end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from comsd.envs.base import Env
from comsd.errors import RunError
from comsd.types import Array, Mask, PolicyFn


class Stopped(Exception):  # noqa: N818 (not an error)
    """A signal arrived during a roll-out."""


StopFn = Callable[[], bool]  # has a signal arrived?


def never() -> bool:
    return False


class Transition(NamedTuple):
    """One step of all environments."""

    obs: NDArray[Any]  # (N, ...)
    action: Array  # (N, A)
    next_obs: NDArray[Any]  # (N, ...)
    reward: NDArray[np.floating]  # (N,)
    ended: Mask  # (N,)  terminated or truncated by this step
    alive: Mask  # (N,)  the step belongs to the first episode of the environment


def random_policy_fn(action_dim: int, num_envs: int, rng: np.random.Generator) -> PolicyFn:
    """Uniformly random actions."""
    return lambda _: rng.uniform(-1, 1, (num_envs, action_dim)).astype(np.float32)


@contextmanager
def single_threaded() -> Iterator[None]:
    """One torch thread: the products of a few rows gain nothing from more, and idle threads of
    torch would spin on the cores of the simulator's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def rollout(
    env: Env,
    policy_fn: PolicyFn,
    length: int | None = None,
    *,
    stopped: StopFn = never,
) -> Iterator[Transition]:
    """Reset the environments and act, until no first episode is left or for `length` steps.

    Environments whose first episode ended earlier are reset and continue with `alive` False.
    Raises `Stopped` when `stopped()` is true.
    """
    obs = env.reset()
    alive = np.ones(env.num_envs, bool)
    with single_threaded():
        for _ in count() if length is None else range(length):
            if stopped():
                raise Stopped
            action = policy_fn(obs)
            step = env.step(action)
            if not (np.isfinite(step.obs).all() and np.isfinite(step.reward).all()):
                raise RunError("observations or rewards of the environment hold NaN or infinity")
            ended = step.ended
            yield Transition(obs, action, step.obs, step.reward, ended, alive)
            alive = alive & ~ended
            if not alive.any():
                return
            obs = env.reset(ended) if ended.any() else step.obs
