"""Environments in the Gymnasium API by name, and the settings that runs on them start from.

gym:Ant-v5, gym:package:Id-v0   what `gymnasium.make` knows, or knows once the package is imported
dmc:humanoid-walk               a task of dm_control
any other name                  what `comsd.register_env` or a file of the user registered

Gymnasium is imported when the first of them is looked up. No code is run because a run names it:
packages are imported by `import_package`, files by `comsd.user_files`, when the user says so.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from comsd.config import Stage, choose, setting, shown, sourced
from comsd.envs.base import Env
from comsd.envs.specs import (
    ENVS,
    OURS,
    PIXEL_AGENT,
    PIXEL_PRETRAINING,
    TASKS,
    TESTS,
    EnvSettings,
    EnvSpec,
    Values,
)
from comsd.errors import InputError, UnknownEnvError
from comsd.types import ObsSpec

if TYPE_CHECKING:
    from comsd.encoders import PixelSettings
    from comsd.envs.gym import GymEnv

Family = Literal["robots", "maze"]

DEFAULT_HORIZON = 1000
EXAMPLES: dict[str, EnvSpec] = {"robots": ENVS["walker"], "maze": ENVS["maze-tree"]}
ONE_STEP = sourced("the environment's own steps", pixels__repeat=1)
PIXELS: dict[str, Values] = {  # beside those of robots
    "paper": ONE_STEP,
    "lite": ONE_STEP,
    "smoke": ONE_STEP | sourced(TESTS, train__batch_size=32),
}
FORMS = "gym:ID, gym:PACKAGE:ID, dmc:DOMAIN-TASK, or the name of one from --env-file"


@dataclass(frozen=True)
class GymSettings(EnvSettings):
    """How an environment in the Gymnasium API is made."""

    family: Family = setting(
        "robots", "whose presets and tuned values: the robots', or those of small mazes", OURS
    )
    horizon: int = setting(
        DEFAULT_HORIZON, "time limit of an episode, in steps", "ours, since it has none", low=1
    )
    kwargs: str = setting("{}", "arguments of the environment, a JSON object", "default")

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_kwargs(self.kwargs)


def parse_kwargs(text: str) -> dict[str, Any]:
    try:
        kwargs = json.loads(text)
    except ValueError:
        kwargs = None
    if not isinstance(kwargs, dict):
        raise InputError(f'kwargs is {text!r}; it must be a JSON object such as {{"a": 1}}')
    return kwargs


@dataclass(frozen=True)
class Source:
    """How an environment is made: `make(**kwargs)`, without its time limit."""

    name: str
    summary: str
    make: Callable[..., Any]
    horizon: int | None = None  # its time limit, if it has one
    family: Family = "robots"
    vector: bool = False  # `make(num_envs=n, **kwargs)` returns many in one


REGISTERED: dict[str, Source] = {}
IMPORTED: dict[str, None] = {}  # packages that the user has named, in this order


def register_env(
    name: str,
    make: Callable[..., Any],
    *,
    horizon: int | None = None,
    family: Family = "robots",
    vector: bool = False,
) -> None:
    """Make an environment known by name: `make(**kwargs)` returns a `gymnasium.Env`; a class does.

    vector: `make(num_envs=n, **kwargs)` returns a `gymnasium.vector.VectorEnv`; known of a class.
    horizon: the time limit in steps; if not given, `max_episode_steps` of the class or of its
    Gymnasium spec, or 1000. family: whose presets and tuned values it starts from.
    """
    if not name or ":" in name or name in ENVS or name in TASKS:
        raise InputError(f"env name is {name!r}; it must be new, without a colon")
    choose("family", family, EXAMPLES)
    limit = horizon or getattr(make, "max_episode_steps", None)
    summary = (getattr(make, "__doc__", None) or "an environment of yours").strip().splitlines()[0]
    bases = make.__mro__ if isinstance(make, type) else ()
    vector = vector or any(base.__module__.startswith("gymnasium.vector") for base in bases)
    REGISTERED[name] = Source(name, summary, make, limit, family, vector)


def import_package(env: str) -> None:
    """Import the package that an environment's name contains; only for names the user gives."""
    if not isinstance(env, str):
        raise InputError(f"env or task is {shown(env)}; it must be a name")
    prefix, _, rest = env.partition(":")
    package, _, _ = rest.rpartition(":")
    if prefix == "gym" and package:
        try:
            if package not in sys.modules and find_spec(package.partition(".")[0]) is None:
                sys.path.append(str(Path.cwd()))  # one that lies where the command is called
            import_module(package)
            IMPORTED[package] = None
        except Exception as error:  # whatever the user's code raises
            raise InputError(f"env is {env!r}: {type(error).__name__}: {error}") from error


def find_source(name: str) -> Source | None:
    prefix, colon, rest = name.partition(":")
    finders = {"gym": gym_source, "dmc": dmc_source}
    return finders[prefix](name, rest) if colon and prefix in finders else REGISTERED.get(name)


def gym_source(name: str, rest: str) -> Source:
    import gymnasium

    package, _, env_id = rest.rpartition(":")
    if package and package not in sys.modules:
        raise UnknownEnvError(
            f"env is {name!r}, whose package is only imported when you name it: "
            f"give --env-package {package}"
        )
    try:
        spec = gymnasium.spec(env_id)
    except gymnasium.error.Error as error:
        raise UnknownEnvError(f"env is {name!r}: {str(error).strip()}") from None
    summary, vector = f"{env_id} of Gymnasium", spec.entry_point is None
    make = gym_maker(env_id, vector)
    return Source(name, summary, make, spec.max_episode_steps, vector=vector)


@cache  # the same function each time, or `observations` would not know its source again
def gym_maker(env_id: str, vector: bool) -> Callable[..., Any]:
    import gymnasium

    if vector:  # there is no single one
        return partial(gymnasium.make_vec, env_id)
    return partial(gymnasium.make, env_id, max_episode_steps=-1, disable_env_checker=True)


@cache
def dmc_maker(task: str) -> Callable[..., Any]:
    from comsd.envs.dmc import DMCEnv

    return partial(DMCEnv, task)


def dmc_source(name: str, rest: str) -> Source:
    from comsd.envs.dmc import task_names

    try:
        tasks = task_names()
    except ImportError:
        raise UnknownEnvError(
            f"env is {name!r}, which needs the extra: pip install 'comsd[dmc]'"
        ) from None
    choose("env", name, dict.fromkeys(f"dmc:{task}" for task in tasks))
    return Source(name, f"{rest} of dm_control", dmc_maker(rest), 1000)


@cache
def observations(source: Source, kwargs: str, horizon: int) -> ObsSpec:
    from comsd.envs.gym import estimate_observations

    return estimate_observations(adapted(source, kwargs, horizon, range(1)))


def adapted(
    source: Source, kwargs: str, horizon: int, seeds: range, spec: ObsSpec | None = None
) -> GymEnv:
    make, title = partial(source.make, **parse_kwargs(kwargs)), repr(source.name)
    if source.vector:
        from comsd.envs.gym_vector import VectorGymEnv

        return VectorGymEnv(make, seeds, horizon, title, spec)
    from comsd.envs.gym import GymEnv

    return GymEnv(make, seeds, horizon, title, spec)


def make_gym(source: Source, kwargs: str, horizon: int, num_envs: int, seed: int) -> GymEnv:
    spec = observations(source, kwargs, horizon)
    return adapted(source, kwargs, horizon, range(seed, seed + num_envs), spec)


def make_gym_pixels(
    source: Source, kwargs: str, horizon: int, num_envs: int, seed: int, settings: PixelSettings
) -> Env:
    from comsd.envs.pixels import gym_pixels

    return gym_pixels(make_gym(source, kwargs, horizon, num_envs, seed), settings)


def foreign_spec(source: Source, stage: Stage, given: Mapping[str, Any]) -> EnvSpec:
    """given: values of `GymSettings` that are known."""
    family = given.get("family", source.family)
    example = choose("env.family", family, EXAMPLES)
    limit = f"time limit of {source.name}" if source.horizon else "ours, since it has none"
    usual = source.horizon or DEFAULT_HORIZON
    kwargs, horizon = given.get("kwargs", "{}"), given.get("horizon", usual)
    own = sourced(limit, env__horizon=usual) | sourced(OURS, env__family=source.family)
    images = PIXEL_PRETRAINING
    if stage != "pretrain":
        example, images = TASKS["walker_run"], PIXEL_AGENT
    return dataclasses.replace(
        example,
        name=source.name,
        families=("gymnasium", family) if stage == "pretrain" else ("tasks", source.name),
        summary=source.summary,
        make=partial(make_gym, source, kwargs, horizon),
        horizon=horizon,
        values=example.values | own,
        agents={name: held(presets, horizon) for name, presets in example.agents.items()},
        tasks=(source.name,) if stage == "pretrain" else (),
        make_pixels=partial(make_gym_pixels, source, kwargs, horizon),
        pixels={preset: values | PIXELS[preset] for preset, values in images.items()},
        settings=GymSettings,
    )


def held(presets: dict[str, Values], horizon: int) -> dict[str, Values]:
    """Where the example holds a skill for an episode, it is an episode of this environment."""
    hold = sourced("one skill per episode", train__hold=horizon)
    return {
        preset: values | (hold if "train.hold" in values else {})
        for preset, values in presets.items()
    }
