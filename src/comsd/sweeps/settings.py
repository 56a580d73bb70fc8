"""Swept settings: lists of values and ranges, and the arguments of `comsd` they become."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from comsd.config import Stage, choose
from comsd.errors import InputError
from comsd.options import Option, converted, setting_options

FORM = "name=value,value or name=low..high or name=low..high:log"
TASK = "task."  # before the settings of the adaptation
METHOD = "method"  # what trials are called by if several are compared
NOT_SWEPT = {
    "run.seed": "--seeds says how many",
    "run.env": "--env says which",
    "run.preset": "--preset says which",
    "run.device": "--gpus says whether",
}
DIGITS = 6  # of sampled numbers

Value = int | float | str | bool


@dataclass(frozen=True)
class Choices:
    name: str
    values: tuple[Value, ...]

    @property
    def ends(self) -> tuple[Value, ...]:
        return self.values

    def draw(self, rng: np.random.Generator) -> Value:
        return self.values[int(rng.integers(len(self.values)))]


@dataclass(frozen=True)
class Range:
    name: str
    low: float
    high: float
    log: bool
    whole: bool  # numbers only

    @property
    def ends(self) -> tuple[Value, ...]:
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def draw(self, rng: np.random.Generator) -> Value:
        if self.whole and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        x = rng.uniform(low, high)
        x = min(max(math.exp(x) if self.log else x, self.low), self.high)
        return round(x) if self.whole else float(f"{x:.{DIGITS}g}")


Swept = Choices | Range


def sweepable(
    methods: Sequence[str], env: str, agent: str | None, task: str | None, stage: Stage
) -> Options:
    """The options of pre-training, those that all methods share, and, with `task.` before the
    name, of the adaptation.
    """
    known = [{name_of(o): o for o in setting_options(method, env, agent)} for method in methods]
    options = {name: o for name, o in known[0].items() if all(name in other for other in known)}
    if task is not None:
        adapting = setting_options("task", task, None, stage)
        options |= {TASK + name_of(option): option for option in adapting}
    return {name: option for name, option in options.items() if option.setting}


Options = Mapping[str, Option]


def name_of(option: Option) -> str:
    return option.name.removeprefix("--").replace("-", "_")


def read_setting(name: str, given: str | Sequence[Value], options: Options) -> Swept:
    """From what the user writes, a text as on the command line or a list of values."""
    name = name.strip().replace("-", "_")
    if name == METHOD:
        raise InputError("method is no setting; name several: comsd sweep comsd,diayn --env ENV")
    option = choose("setting", name, options)
    if option.setting in NOT_SWEPT:
        raise InputError(f"{name} cannot be swept: {NOT_SWEPT[option.setting]}")
    numeric = option.type in (int, float)
    if isinstance(given, str) and numeric and ".." in given:
        return read_range(name, given, option.type)
    words = given.split(",") if isinstance(given, str) else list(given)
    values = [read_value(name, w, option.type) if isinstance(w, str) else w for w in words]
    if not values or "" in words:
        raise InputError(f"{name} is {given!r}, which holds an empty value; write {FORM}")
    if len(set(values)) < len(values):
        raise InputError(f"{name} is {given!r}, which holds a value twice")
    return Choices(name, tuple(values))


def read_value(name: str, word: str, kind: Any) -> Value:
    if kind is not bool:
        if kind is float or kind is int or get_args(kind):
            return converted(name, word.strip(), kind)
        return word.strip()
    return choose(name, word.strip().lower(), {"true": True, "false": False})


def read_range(name: str, text: str, kind: type) -> Range:
    ends, _, scale = text.partition(":")
    if scale not in ("", "log"):
        raise InputError(f"{name} is {text!r}; after the range only ':log' is allowed")
    low, _, high = ends.partition("..")
    bounds = [float(converted(name, word, kind)) for word in (low, high)]
    if not all(map(math.isfinite, bounds)) or not bounds[0] < bounds[1]:
        raise InputError(f"{name} is {text!r}, an empty range; low must be less than high")
    if scale and bounds[0] <= 0:
        raise InputError(f"{name} is {text!r}; a range on a logarithmic scale must be above 0")
    return Range(name, *bounds, log=bool(scale), whole=kind is int)


def arguments(option: Option, value: Value) -> list[str]:
    """Of `comsd pretrain` and the other commands that train."""
    if option.type is bool:
        return [option.name if value else str(option.off)]
    return [option.name, str(value)]
