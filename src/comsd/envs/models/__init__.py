"""The bodies of the robots, built by `mujoco.MjSpec`: masses, joints, motors, sensors, looks.

All numbers are the DeepMind Control Suite's; compiled, each model equals the suite's, to the bit
(`tests/test_models.py`). What none of our tasks uses is left out: walls, ball, target, terrain and
range finders of the suite's Quadruped, and materials without a wearer. Floors are longer than some
of the suite's: physics takes them as infinite.
"""

from __future__ import annotations

from collections.abc import Callable

import mujoco

from comsd.envs.models.planar import cheetah, hopper, walker
from comsd.envs.models.quadruped import quadruped
from comsd.envs.models.scene import compile_with_mass

SPECS: dict[str, Callable[[], mujoco.MjSpec]] = {
    "walker": walker,
    "quadruped": quadruped,
    "hopper": hopper,
    "cheetah": cheetah,
}
TOTAL_MASS = {"cheetah": 14}  # kg, where it is not the sum of what the spec says


def build(name: str) -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """The spec, for those who export it, and what it compiles to."""
    spec = SPECS[name]()
    mass = TOTAL_MASS.get(name)
    return spec, spec.compile() if mass is None else compile_with_mass(spec, mass)
