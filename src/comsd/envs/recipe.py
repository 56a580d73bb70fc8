"""Observations as data: which numbers of mjData, in which order, and what is done to them.

Robots observe by their recipe, and the page of `comsd explore` follows the same one in the browser.
MuJoCo environments of others declare theirs as `comsd_recipe`, a list of parts; those of Gymnasium
are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comsd.config import choose, shown
from comsd.envs.simulation import Doubles, Readings
from comsd.errors import InputError
from comsd.types import Array

Reader = Callable[[Readings], Doubles]

GYMNASIUM = "gymnasium.envs.mujoco."

TRANSFORMS: dict[str, Callable[[Doubles], Doubles]] = {
    "log1p": np.log1p,
    "arcsinh": np.arcsinh,
    "sin": np.sin,
    "cos": np.cos,
}


@dataclass(frozen=True)
class Part:
    """Some numbers of a field of mjData, counted flat, row by row."""

    field: str  # such as qpos, xmat, sensordata
    index: slice | NDArray[np.integer] | None = None  # by default all
    transform: str | None = None  # of TRANSFORMS
    clip: tuple[float, float] | None = None  # bounds, before the transform

    def reader(self) -> Reader:
        """Reads the numbers of all simulations, (N, .); a function made once is quicker."""
        field, transform, clip = self.field, TRANSFORMS.get(self.transform or ""), self.clip
        index = slice(None) if self.index is None else self.index

        def read(x: Readings) -> Doubles:
            rows = x[field]
            flat = rows if rows.ndim == 2 else rows.reshape(len(rows), -1)
            return flat[:, index] if isinstance(index, slice) else flat.take(index, 1)

        if clip is None:
            return read if transform is None else lambda x: transform(read(x))
        if transform is None:
            return lambda x: read(x).clip(*clip)
        return lambda x: transform(read(x).clip(*clip))

    def to_json(self, data: Any) -> dict[str, Any]:
        """The indices spelled out; `data` is an mjData, for the size of the field."""
        numbers = np.arange(getattr(data, self.field).size)
        numbers = numbers if self.index is None else numbers[self.index]
        return {
            "field": self.field,
            "index": numbers.tolist(),
            "transform": self.transform,
            "clip": self.clip,
        }


Recipe = Sequence[Part]


def observe(recipe: Recipe, data: Any) -> Array:
    """Of one mjData."""
    x = {part.field: getattr(data, part.field)[None] for part in recipe}
    return np.concatenate([part.reader()(x)[0] for part in recipe], dtype=np.float32)


# --- environments of others -----------------------------------------------------------------------


def declared_recipe(env: Any) -> Recipe | None:
    """Of an unwrapped environment with `model` and `data`; None if nothing is known of it."""
    declared = getattr(env, "comsd_recipe", None)
    return gymnasium_recipe(env) if declared is None else check_recipe(declared, env.data)


def check_recipe(recipe: Any, data: Any) -> Recipe:
    parts = list(recipe) if isinstance(recipe, Sequence) else []
    if not parts or not all(isinstance(part, Part) for part in parts):
        raise InputError(f"comsd_recipe is {shown(recipe)}; it must be a list of comsd.Part")
    for part in parts:
        if not isinstance(getattr(data, str(part.field), None), np.ndarray):
            raise InputError(
                f"comsd_recipe has the field {shown(part.field)}; it must be an array of mjData"
            )
        if part.transform is not None:
            choose("transform of comsd_recipe", part.transform, TRANSFORMS)
        try:
            observe([part], data)
        except (IndexError, TypeError, ValueError) as error:
            raise InputError(f"comsd_recipe: {part} cannot be read: {error}") from None
    return parts


# By class of gymnasium.envs.mujoco: the bounds to which fields are clipped. Which numbers of which
# fields, these environments say themselves (`observation_structure`).
CLIPPED: dict[str, dict[str, tuple[float, float]]] = {
    "AntEnv": {},  # cfrc_ext, to an argument of the environment
    "HalfCheetahEnv": {},
    "HopperEnv": {"qvel": (-10, 10)},
    "HumanoidEnv": {},
    "HumanoidStandupEnv": {},
    "InvertedPendulumEnv": {},
    "SwimmerEnv": {},
    "Walker2dEnv": {"qvel": (-10, 10)},
}


def gymnasium_recipe(env: Any) -> Recipe | None:
    """Of Gymnasium's MuJoCo environments, version 5."""
    known = [c.__name__ for c in type(env).__mro__ if c.__module__.startswith(GYMNASIUM)]
    name = known[0] if known else ""
    if name == "InvertedDoublePendulumEnv":
        angles, ten = slice(1, None), (-10, 10)
        return [
            Part("qpos", slice(1)),
            Part("qpos", angles, "sin"),
            Part("qpos", angles, "cos"),
            Part("qvel", clip=ten),
            Part("qfrc_constraint", slice(1), clip=ten),
        ]
    if name == "PusherEnv":
        bodies = [3 * env.model.body(body).id for body in ("tips_arm", "object", "goal")]
        places = [Part("xpos", slice(at, at + 3)) for at in bodies]
        return [Part("qpos", slice(7)), Part("qvel", slice(7)), *places]
    structure = getattr(env, "observation_structure", None)
    if name not in CLIPPED or not isinstance(structure, dict):
        return None
    clipped = dict(CLIPPED[name])
    if name == "AntEnv":
        clipped["cfrc_ext"] = env._contact_force_range
    # What is left out of a field stands at its beginning: places, the world's body, the root.
    return [
        Part(field, slice(getattr(env.data, field).size - size, None), clip=clipped.get(field))
        for field, size in structure.items()
        if size and not field.startswith("skipped")
    ]
