"""Settings: frozen dataclasses whose every field carries its meaning, its range and its source.

`comsd.resolve` puts the values of a run together.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np

from comsd.errors import InputError

T = TypeVar("T")
S = TypeVar("S", bound="Settings")

Stage = Literal["pretrain", "finetune", "combine", "scratch"]
Preset = Literal["paper", "lite", "smoke", "literal"]
Precision = Literal["float32", "bf16"]
# Whose sizes a preset has; `literal` differs from `paper` in the form of the equations alone.
SCALES = {"paper": "paper", "lite": "lite", "smoke": "smoke", "literal": "paper"}


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
    """A dataclass field: low <= value <= high, or above < value; numbers end at LARGEST anyway."""
    limits = {"low": low, "high": high, "above": above}
    return field(default=default, metadata={"help": help, "source": source, **limits})


@dataclass(frozen=True)
class Settings:
    """A group of settings that checks its own values."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:  # out of an array
                value = value.item()
            check_value(f.name, value, hints[f.name], f.metadata)
            value = float(value) if hints[f.name] is float else value  # 1 is as good as 1.0
            object.__setattr__(self, f.name, value)


KINDS: dict[Any, tuple[str, Any]] = {
    int: ("a whole number", int),
    float: ("a finite number", int | float),
    bool: ("True or False", bool),
    str: ("a text", str),
}


LONGEST = 4096  # characters of a text
LARGEST = 10**12  # of all numbers for which no limit is given


def shown(value: object) -> str:
    """A value in a message: short, in one line."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number that is too long to be written"
    return text if len(text) <= 100 else f"{text[:80]}..."


def whole_number(text: str) -> int:
    """From 100000, 100_000 or 1e5; raises ValueError for anything else."""
    with suppress(ValueError):
        return int(text)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError from None
    short = number.is_finite() and number.adjusted() < 100  # a billion digits cannot be made
    if not short or number != number.to_integral_value():
        raise ValueError
    return int(number)


def check_value(name: str, value: Any, expected: Any, limits: Mapping[str, Any]) -> None:
    """Raise InputError unless a value has its type and is in its range."""
    if expected in KINDS:
        kind, types = KINDS[expected]
        fits = isinstance(value, types) and isinstance(value, bool) == (expected is bool)
        if not fits or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(f"{name} is {shown(value)}; it must be {kind}")
        if isinstance(value, str) and ("\0" in value or len(value) > LONGEST):
            raise InputError(f"{name} is {shown(value)}; it must be a text of a line")
    elif (choices := get_args(expected)) and not (isinstance(value, str) and value in choices):
        raise InputError(f"{name} is {shown(value)}; allowed: {', '.join(map(str, choices))}")
    if expected not in (int, float) or isinstance(value, str):
        return
    low, high, above = (limits.get(key) for key in ("low", "high", "above"))
    if (low is not None and value < low) or (high is not None and value > high):
        both = f"between {low} and {high}" if low is not None else f"at most {high}"
        bounds = f"at least {low}" if high is None else both
        raise InputError(f"{name} is {shown(value)}; it must be {bounds}")
    if above is not None and not value > above:
        raise InputError(f"{name} is {shown(value)}; it must be greater than {above}")
    if not -LARGEST <= value <= LARGEST:
        raise InputError(f"{name} is {shown(value)}; it must be at most {LARGEST}")


@dataclass(frozen=True)
class RunSettings(Settings):
    """What is run, for how long, and what is written down on the way."""

    stage: Stage = setting("pretrain", "what is done with skills", "the command")
    method: str = setting("comsd", "the method; `comsd methods` lists them", "default")
    env: str = setting("maze-tree", "the environment; `comsd envs` lists them", "default")
    preset: Preset = setting(
        "paper",
        "paper: as published; literal: to the letter; lite: for one CPU core; smoke: seconds",
        "paper",
    )
    space: Literal["one-hot", "box", "sphere", "none"] = setting(
        "one-hot", "kind of skill space", "paper"
    )
    skills: int = setting(
        10, "number of skills, or of dimensions of the skill", "paper", high=10_000
    )
    agent: str = setting(
        "ddpg", "the agent: ddpg, sac, ppo; dqn is the discrete controller", "default"
    )
    pixels: bool = setting(False, "observe images in place of states; docs/pixels.md", "default")
    seed: int = setting(0, "seed of all randomness", "default", low=0)
    steps: int = setting(6_250_000, "environment steps in all", "paper", low=1)
    device: str = setting("cpu", "torch device", "this library")
    precision: Precision = setting(
        "float32", "of the networks' matrix products; bf16 where the processor has it", "ours"
    )
    threads: int = setting(
        1, "CPU threads of this run", "several runs share a machine", low=1, high=1024
    )
    log_every: int = setting(
        25_000, "environment steps between lines of metrics.csv", "ours", low=1
    )
    evaluate_every: int = setting(
        125_000, "environment steps between lines of evaluations.csv", "ours", low=1
    )
    rollouts: int = setting(
        100, "evaluation: per skill in mazes, episodes on tasks", "ours", low=1, high=10_000
    )
    starts: int = setting(
        12, "evaluation: starts per skill, but in mazes and on tasks", "ours", low=2, high=10_000
    )
    rollout_steps: int = setting(
        500, "evaluation: steps from each start", "ours", low=1, high=1_000_000
    )
    checkpoint_every: int = setting(125_000, "environment steps between checkpoints", "ours", low=1)
    snapshots: str = setting(
        "", "steps at which the skills are saved for good, such as 100000,500000", "ours"
    )
    tensorboard: bool = setting(False, "also write TensorBoard files; needs the extra", "ours")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise InputError(f"device is {self.device!r}; allowed: cpu, cuda, cuda:N")
        if self.skills < 2 and self.space != "none":
            raise InputError(f"skills is {self.skills}; it must be at least 2")
        if self.skills != 0 and self.space == "none":
            raise InputError(f"skills is {self.skills}; it must be 0 in the space 'none'")
        try:
            steps = self.snapshot_steps
        except ValueError:
            steps = [0]
        if steps != sorted({*steps}) or not all(1 <= step <= self.steps for step in steps):
            raise InputError(
                f"snapshots is {shown(self.snapshots)}; it must be increasing whole numbers "
                f"between 1 and steps {self.steps}, such as 100000,500000"
            )
        object.__setattr__(self, "snapshots", ",".join(map(str, steps)))  # 1e5 as 100000

    @property
    def snapshot_steps(self) -> list[int]:
        return [whole_number(step) for step in self.snapshots.split(",")] if self.snapshots else []


GROUPS = ("run", "method", "agent", "train", "pixels", "adapt", "env")


@dataclass(frozen=True)
class Config:
    """A whole run, resolved: nothing is decided later."""

    run: RunSettings
    method: Settings
    agent: Settings
    train: Settings  # how experience is gathered and used, apart from the agent
    adapt: Settings  # how the skills of another run are used; empty in pre-training
    pixels: Settings = field(default_factory=Settings)  # of images; empty for states
    env: Settings = field(default_factory=Settings)  # how the one that `run.env` names is made
    sources: dict[str, str] = field(default_factory=dict, compare=False)  # by dotted name

    @classmethod
    def build(cls, classes: Mapping[str, type[Settings]], values: Mapping[str, Setting]) -> Config:
        """From the class of each group and the values, by dotted name, that are no defaults."""
        groups: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for group, kind in classes.items():
            prefix = f"{group}."
            own = {k.removeprefix(prefix): s for k, s in values.items() if k.startswith(prefix)}
            groups[group] = replace(kind(), group, {name: s.value for name, s in own.items()})
            sources |= {prefix + f.name: f.metadata["source"] for f in dataclasses.fields(kind)}
            sources |= {prefix + name: s.source for name, s in own.items()}
        return cls(**groups, sources=sources)

    def to_json(self) -> dict[str, dict[str, Any]]:
        groups = {group: dataclasses.asdict(getattr(self, group)) for group in GROUPS}
        return {name: group for name, group in groups.items() if group or name != "pixels"}

    def derive(self, name: str, value: object, source: str) -> Config:
        """A copy in which a setting has a value that follows from others."""
        group, _, field_name = name.partition(".")
        settings = replace(getattr(self, group), group, {field_name: value})
        sources = self.sources | {name: source}
        return dataclasses.replace(self, **{group: settings, "sources": sources})


def choose(field_name: str, value: str, allowed: Mapping[str, T]) -> T:
    if not isinstance(value, str) or value not in allowed:
        near = difflib.get_close_matches(shown(value).strip("'"), allowed, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(
            f"{field_name} is {shown(value)}{hint}; allowed: {', '.join(allowed) or 'none'}"
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
