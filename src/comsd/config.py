"""Settings: frozen dataclasses whose every field carries its meaning, its range and its source.

A value comes from, later wins: the field's default · the environment's values · the method's
values for this kind of environment · the preset · what an adaptation takes from the run it starts
from · an explicit flag. `resolve` puts them together
and remembers where each came from, which is what `comsd config` prints.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np

from comsd.errors import InputError, UnknownMethodError

T = TypeVar("T")
S = TypeVar("S", bound="Settings")

Stage = Literal["pretrain", "finetune", "combine", "scratch"]

DEVICE = re.compile(r"cpu|cuda(:\d+)?")


class Setting(NamedTuple):
    """A value and where it comes from."""

    value: Any
    source: str


def sourced(source: str, **values: object) -> dict[str, Setting]:
    """Settings that all come from one place; `run__steps` stands for `run.steps`."""
    return {name.replace("__", "."): Setting(value, source) for name, value in values.items()}


def setting(
    default: T,
    help: str,
    source: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
) -> T:
    """A dataclass field: low <= value <= high, or above < value."""
    limits = {"low": low, "high": high, "above": above}
    return field(default=default, metadata={"help": help, "source": source, **limits})


@dataclass(frozen=True)
class Settings:
    """A group of settings that checks its own values."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.generic):  # a number out of an array
                object.__setattr__(self, f.name, value := value.item())
            self._check_type(f.name, value, hints[f.name])
            if hints[f.name] is float:
                object.__setattr__(self, f.name, float(value))  # 1 is as good as 1.0
            choices = get_args(hints[f.name])
            if choices and value not in choices:
                allowed = ", ".join(map(str, choices))
                raise InputError(f"{f.name} is {value!r}; allowed: {allowed}")
            self._check_range(f.name, value, f.metadata)

    @staticmethod
    def _check_type(name: str, value: Any, expected: Any) -> None:
        kinds: dict[Any, tuple[str, Any]] = {
            int: ("a whole number", int),
            float: ("a finite number", int | float),
            bool: ("True or False", bool),
            str: ("a text", str),
        }
        if expected in kinds:
            kind, types = kinds[expected]
            fits = isinstance(value, types) and isinstance(value, bool) == (expected is bool)
            if not fits or (expected is float and not math.isfinite(value)):
                raise InputError(f"{name} is {value!r}; it must be {kind}")

    @staticmethod
    def _check_range(name: str, value: Any, limits: Mapping[str, Any]) -> None:
        low, high, above = (limits.get(key) for key in ("low", "high", "above"))
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            bounds = f"at least {low}" if high is None else f"between {low} and {high}"
            raise InputError(f"{name} is {value}; it must be {bounds}")
        if above is not None and not value > above:
            raise InputError(f"{name} is {value}; it must be greater than {above}")


@dataclass(frozen=True)
class RunSettings(Settings):
    """What is run, for how long, and what is written down on the way."""

    stage: Stage = setting("pretrain", "what is done with skills", "the command")
    method: str = setting("comsd", "the method; `comsd methods` lists them", "default")
    env: str = setting("maze-tree", "the environment; `comsd envs` lists them", "default")
    preset: Literal["paper", "lite", "smoke"] = setting(
        "paper", "paper: as published; lite: for one CPU core; smoke: seconds", "paper"
    )
    space: Literal["one-hot", "box", "sphere", "none"] = setting(
        "one-hot", "kind of skill space", "paper"
    )
    skills: int = setting(10, "number of skills, or of dimensions of the skill", "paper", low=0)
    seed: int = setting(0, "seed of all randomness", "default", low=0)
    steps: int = setting(6_250_000, "environment steps in all", "paper", low=1)
    precision: Literal["float32", "bf16"] = setting("float32", "of the networks' products", "ours")
    device: str = setting("cpu", "torch device", "this library")
    threads: int = setting(
        1, "CPU threads of this run", "several runs share a machine", low=1, high=1024
    )
    log_every: int = setting(
        25_000, "environment steps between lines of metrics.csv", "ours", low=1
    )
    evaluate_every: int = setting(
        125_000, "environment steps between lines of evaluations.csv", "ours", low=1
    )
    rollouts: int = setting(100, "rollouts per skill in an evaluation", "ours", low=1)
    checkpoint_every: int = setting(125_000, "environment steps between checkpoints", "ours", low=1)
    tensorboard: bool = setting(False, "also write TensorBoard files; needs the extra", "ours")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not DEVICE.fullmatch(self.device):
            raise InputError(f"device is {self.device!r}; allowed: cpu, cuda, cuda:N")
        if self.skills < 2 and self.space != "none":
            raise InputError(f"skills is {self.skills}; it must be at least 2")
        if self.skills > 0 and self.space == "none":
            raise InputError(f"skills is {self.skills}; it must be 0 in the space 'none'")


GROUPS = ("run", "method", "agent", "adapt")  # of settings
NAMED = {"run.stage", "run.method"}
ADAPTED = NAMED | {"run.env", "run.space", "run.skills", "adapt.source", "agent.hold"}
ADAPTED |= {"agent.representation_steps"}  # there is no representation
FIXED: dict[str, set[str]] = {  # what cannot be chosen in a stage, since it follows from others
    "pretrain": NAMED,
    "finetune": ADAPTED | {"agent.hidden"},
    "combine": ADAPTED,
    "scratch": ADAPTED,
}


@dataclass(frozen=True)
class Config:
    """A whole run, resolved: nothing is decided later."""

    run: RunSettings
    method: Settings
    agent: Settings
    adapt: Settings  # how the skills of another run are used; empty in pre-training

    def to_json(self) -> dict[str, dict[str, Any]]:
        return dataclasses.asdict(self)

    @property
    def groups(self) -> list[str]:
        """The groups that mean something in this stage."""
        own = "method" if self.run.stage == "pretrain" else "adapt"
        return ["run", own, "agent"]


def choose(field_name: str, value: str, allowed: Mapping[str, T]) -> T:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(
            f"{field_name} is {value!r}{hint}; allowed: {', '.join(allowed) or 'none'}"
        )
    return allowed[value]


def replace(settings: S, group: str, values: Mapping[str, Any]) -> S:
    """A copy with other values; an unknown name is the user's mistake."""
    names = [f.name for f in dataclasses.fields(settings)]
    for name in values:
        choose(f"setting of {group}", name, dict.fromkeys(names))
    try:
        return dataclasses.replace(settings, **values)
    except InputError as error:
        prefix = "" if group == "run" else f"{group}."
        raise InputError(f"{prefix}{error}") from None


def resolve(
    method: str,
    env: str,
    preset: str = "paper",
    /,
    stage: Stage = "pretrain",
    adapted: Mapping[str, Setting] | None = None,
    **overrides: Any,
) -> tuple[Config, dict[str, str]]:
    """The config of a run and the source of each value, both by dotted name.

    Overrides: run settings by name (`seed=1`), groups as dicts (`method={"alpha": 0.2}`).
    """
    from comsd.adaptation import STAGES
    from comsd.agents import AGENTS
    from comsd.envs import ENVS, TASKS, env_spec
    from comsd.methods import METHODS
    from comsd.methods.task import TaskReward

    pretraining = stage == "pretrain"
    method_class = choose("method", method, METHODS) if pretraining else TaskReward
    spec = env_spec(env)
    if pretraining and env in TASKS:
        raise InputError(
            f"env is {env!r}, a task; skills are discovered without one; allowed: {', '.join(ENVS)}"
        )
    preset_values = choose("preset", preset, spec.presets)

    layers: dict[str, Setting] = dict(spec.values)
    for group in spec.families:
        tuned = method_class.config_class.tuned.get(group, {})
        layers |= {k if "." in k else f"method.{k}": value for k, value in tuned.items()}
    layers |= preset_values
    layers |= adapted or {}
    layers["run.stage"] = Setting(stage, "the command")
    for name, value in (("method", method), ("env", env), ("preset", preset)):
        usual = getattr(RunSettings, name)
        layers[f"run.{name}"] = Setting(value, "default" if value == usual else "you")
    for key, value in overrides.items():
        grouped = key in ("method", "agent", "adapt") or isinstance(value, Mapping)
        if grouped and not isinstance(value, Mapping):
            raise InputError(f"{key} settings are {value!r}; they must be a dict")
        group, name = (value, key) if grouped else ({key: value}, "run")
        choose("group of settings", name, dict.fromkeys(GROUPS))
        layers |= {f"{name}.{k}": Setting(v, "you") for k, v in group.items()}

    groups: dict[str, Any] = {
        "run": RunSettings(),
        "method": method_class.config_class(),
        "agent": AGENTS[spec.agent].config_class(),
        "adapt": STAGES[stage](),
    }
    sources = {
        f"{group}.{f.name}": f.metadata["source"]
        for group, settings in groups.items()
        for f in dataclasses.fields(settings)
    }
    for group, settings in groups.items():
        prefix = f"{group}."
        values = {k.removeprefix(prefix): s for k, s in layers.items() if k.startswith(prefix)}
        groups[group] = replace(settings, group, {k: s.value for k, s in values.items()})
        sources |= {prefix + k: s.source for k, s in values.items()}
    config = Config(**groups)
    allowed = [space.kind for space in method_class.spaces]
    if config.run.space not in allowed:
        raise InputError(
            f"space is {config.run.space!r}; allowed for {method}: {', '.join(allowed)}"
        )
    groups["method"].check_space(config.run.space)
    return config, sources


def check_free(stage: Stage, overrides: Mapping[str, Any]) -> None:
    """Raise InputError where one of the overrides of `resolve` is no matter of choice."""
    for key, value in overrides.items():
        within = value if isinstance(value, Mapping) else {}
        names = [f"{key}.{k}" for k in within] if key in GROUPS else [f"run.{key}"]
        for name in FIXED[stage].intersection(names):
            what = name.removeprefix("run.")
            raise InputError(f"{what} cannot be chosen: {stage} says what it is")


def from_json(data: Mapping[str, Mapping[str, Any]]) -> Config:
    """The config that `to_json` wrote."""
    from comsd.methods import METHODS

    run = data["run"]
    groups = {k: dict(v) for k, v in data.items()}
    stage = run.get("stage", "pretrain")
    if stage == "pretrain" and run["method"] not in METHODS:
        file = "give its file with --method-file"
        raise UnknownMethodError(f"method is {run['method']!r}, which is not built in: {file}")
    config, _ = resolve(run["method"], run["env"], run["preset"], stage=stage, **groups)
    return config
