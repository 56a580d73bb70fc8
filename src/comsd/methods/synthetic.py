"""A method in every skill space and with all its values, and synthetic batches to try it on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from comsd.encoders import OBSERVATIONS
from comsd.errors import InputError
from comsd.methods.base import Method, MethodConfig
from comsd.skills import SkillSpace
from comsd.types import Batch, ObsSpec

ROWS = 64
SKILLS = 5
NARROW = 16  # width of the networks, which every method has as `hidden`
OBS = ObsSpec((2,), "float32", np.array([0.0, -3.5], np.float32), np.array([3.7, 1.6], np.float32))
FAMILIES = {  # for what a method has values: the names in its `tuned`
    "mazes": ("maze",),
    "robots": ("robots",),
    "images": ("robots", "pixels"),
    "defaults": (),
}


def make_batch(space: SkillSpace, rows: int, seed: int = 0, window: int = 1) -> Batch:
    """Random transitions; window: steps from s to s'."""
    rng = np.random.default_rng(seed)
    obs = torch.from_numpy(rng.normal(0, 3, (rows, 2)).astype(np.float32))
    action = torch.from_numpy(rng.uniform(-1, 1, (rows, 2)).astype(np.float32))
    skill, reward, discount = space.sample(rows, rng), torch.zeros(rows), torch.full((rows,), 0.99)
    one_step = after = obs + 0.95 * action
    for _ in range(window - 1):
        after = after + torch.from_numpy(rng.uniform(-1, 1, (rows, 2)).astype(np.float32))
    return Batch(obs, action, after, one_step, skill, reward, discount)


def narrow_config(
    config_class: type[MethodConfig], families: Collection[str], **values: Any
) -> MethodConfig:
    """A method's values for some families, with narrow networks if it can have them."""
    layers = [config_class.tuned.get(family, {}) for family in families]
    tuned: dict[str, Any] = {
        name: s.value for layer in layers for name, s in layer.items() if "." not in name
    }
    if "pixels" in families:
        states_only = config_class.states_only.items()
        tuned = {k: v for k, v in tuned.items() if (k, v) not in states_only}
    narrow: dict[str, Any] = tuned | {"hidden": NARROW}
    try:
        return config_class(**narrow | values)
    except InputError:
        return config_class(**tuned | values)


def state_of(method: Method) -> dict[str, Any]:
    """A copy."""
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in method.state_dict().items()
    }


class Case(NamedTuple):
    """A method with its values for a family of environments, in a skill space."""

    kind: type[Method]
    config: MethodConfig
    space: SkillSpace
    family: str  # a key of FAMILIES

    def __str__(self) -> str:
        values = "default values" if self.family == "defaults" else f"values for {self.family}"
        return f"{self.space.kind} skills, {values}"

    def check(self) -> None:
        """Raise InputError where the method refuses such a run itself."""
        self.config.check_space(self.space.kind)
        if self.family == "images":
            self.config.check_pixels()

    def method(self, obs: ObsSpec = OBS, seed: int = 0) -> Method:
        torch.manual_seed(seed)
        return self.kind(self.config, self.space, obs)

    def twins(self) -> tuple[Method, Method]:
        first, second = self.method(), self.method()
        second.load_state_dict(state_of(first))
        return first, second

    def batch(self, rows: int = ROWS, seed: int = 0) -> Batch:
        """As the method would see them there: robots have windows, features of images gradients."""
        batch = make_batch(self.space, rows, seed, 1 if self.family == "mazes" else 3)
        if self.family == "images":
            for name in OBSERVATIONS:
                getattr(batch, name).requires_grad_()
        return batch


def cases(kind: type[Method]) -> list[Case]:
    """Every skill space with every family's values, but for what the method itself refuses."""
    found: list[Case] = []
    for space in kind.spaces:
        for name, families in FAMILIES.items():
            config = narrow_config(kind.config_class, families)
            case = Case(kind, config, space(SKILLS), name)
            try:
                case.check()
            except InputError:
                continue
            found.append(case)
    if not found:
        raise InputError(f"{kind.__name__} accepts no skill space")
    return found
