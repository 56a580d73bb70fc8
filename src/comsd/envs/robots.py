"""Walker, Quadruped, Hopper and Cheetah with the sixteen tasks of the paper.

Seven tasks are the DeepMind Control Suite's, nine are URLB's. All rewards lie in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import mujoco
import numpy as np
from numpy.typing import NDArray

from comsd.envs.mujoco import Robot
from comsd.envs.recipe import Part
from comsd.envs.simulation import Doubles, Readings

HINGE = mujoco.mjtJoint.mjJNT_HINGE.value
XX, XZ, ZX, ZZ = 0, 2, 6, 8  # entries of a rotation matrix, row by row
NOT_X = slice(1, None)  # of qpos: observations do not say how far the robot has come
STEEPNESS = float(np.sqrt(-2 * np.log(0.1)))  # of a Gaussian that is 0.1 at 1


def ramp(low: float, high: float, x: Doubles | float) -> float:
    """Linear from 0 at `low` to 1 at `high`, constant on both sides."""
    distance = (high - float(x)) / (high - low)
    return 1 - distance if 0 < distance < 1 else float(distance <= 0)


def contiguous(indices: Sequence[int] | NDArray[np.integer]) -> slice:
    """Adjacent indices as a slice, which reads without a copy."""
    whole = slice(int(indices[0]), int(indices[-1]) + 1)
    assert list(indices) == list(range(whole.start, whole.stop)), "not adjacent"
    return whole


class Planar(Robot):
    """Moves in the x-z plane; speed and spin are those of the whole body."""

    spin_unit = "kg m²/s"

    def __init__(self) -> None:
        super().__init__()
        self.velocity = self.sensor("torso_subtreelinvel")
        self.slides = [int(self.model.joint(name).qposadr[0]) for name in ("rootx", "rootz")]
        self.origin = self.model.body_pos[self.torso, [0, 2]]  # where both slides are 0

    def start(self, data: mujoco.MjData, rng: np.random.RandomState) -> None:
        """Limited joints anywhere in their range, free hinges at any angle, slides stay."""
        model = self.model
        for joint in range(model.njnt):
            if model.jnt_limited[joint]:
                low, high = model.jnt_range[joint]
            elif model.jnt_type[joint] == HINGE:
                low, high = -np.pi, np.pi
            else:
                continue
            data.qpos[model.jnt_qposadr[joint]] = rng.uniform(low, high)

    def position(self, qpos: Doubles) -> Doubles:
        return self.origin + qpos[..., self.slides]

    def speed(self, x: Readings) -> Doubles:
        return x["sensordata"][..., self.velocity]

    def scalar_speed(self, x: Readings) -> float:
        """The speed of one simulation as a Python number, which rewards compute with faster."""
        return x["sensordata"].item(self.velocity)

    def spin(self, x: Readings) -> Doubles:
        """Angular momentum about the centre of mass, positive when rolling forwards."""
        return x["subtree_angmom"][..., self.torso, 1]


class Walker(Planar):
    name = "walker"
    substeps = 10
    fields = ("qvel", "xmat", "xpos", "sensordata", "subtree_angmom")

    def __init__(self) -> None:
        super().__init__()
        bodies = range(1, self.model.nbody)  # all but the world
        orientations = np.array([9 * body + entry for body in bodies for entry in (XX, XZ)])
        height = 3 * self.torso + 2
        self.recipe = [
            Part("xmat", orientations),
            Part("xpos", slice(height, height + 1)),
            Part("qvel"),
        ]
        self.tasks = {
            "stand": self.stand,
            "walk": lambda x: self.moving(x, ramp(0, 1, self.scalar_speed(x))),
            "run": lambda x: self.moving(x, ramp(0, 8, self.scalar_speed(x))),
            "flip": lambda x: self.moving(x, ramp(0, 5, self.spin(x))),
        }

    def stand(self, x: Readings) -> float:
        below = max((1.2 - float(self.height(x))) / 0.6, 0.0)
        standing = float(np.exp(-0.5 * (below * STEEPNESS) ** 2))
        upright = (1 + x["xmat"].item(self.torso, ZZ)) / 2
        return (3 * standing + upright) / 4

    def moving(self, x: Readings, move: float) -> float:
        return self.stand(x) * (5 * move + 1) / 6


class Hopper(Planar):
    name = "hopper"
    substeps = 4
    fields = ("qpos", "qvel", "xipos", "sensordata", "subtree_angmom")

    def __init__(self) -> None:
        super().__init__()
        self.foot: int = self.model.body("foot").id
        touch = contiguous([self.sensor("touch_toe"), self.sensor("touch_heel")])
        self.recipe = [Part("qpos", NOT_X), Part("qvel"), Part("sensordata", touch, "log1p")]
        self.tasks = {
            "hop": lambda x: ramp(0, 2, self.scalar_speed(x)) if self.stands(x) else 0.0,
            "flip": lambda x: ramp(0, 5, self.spin(x)) if self.stands(x) else 0.0,
            "hop_backward": lambda x: ramp(0, 2, -self.scalar_speed(x)) if self.stands(x) else 0.0,
            "flip_backward": lambda x: ramp(0, 5, -self.spin(x)) if self.stands(x) else 0.0,
        }

    def stands(self, x: Readings) -> bool:
        centres = x["xipos"]
        return 0.6 <= centres.item(self.torso, 2) - centres.item(self.foot, 2) <= 2


class Cheetah(Planar):
    name = "cheetah"
    substeps = 1
    fields = ("qpos", "qvel", "sensordata", "subtree_angmom")
    SETTLE = 200  # physics steps before an episode

    def __init__(self) -> None:
        super().__init__()
        self.recipe = [Part("qpos", NOT_X), Part("qvel")]
        self.tasks = {
            "run": lambda x: ramp(0, 10, self.scalar_speed(x)),
            "flip": lambda x: ramp(0, 5, self.spin(x)),
            "run_backward": lambda x: ramp(0, 10, -self.scalar_speed(x)),
            "flip_backward": lambda x: ramp(0, 5, -self.spin(x)),
        }

    def start(self, data: mujoco.MjData, rng: np.random.RandomState) -> None:
        limited = self.model.jnt_limited == 1
        low, high = self.model.jnt_range[limited].T
        data.qpos[limited] = rng.uniform(low, high)
        mujoco.mj_step2(self.model, data)
        mujoco.mj_step(self.model, data, self.SETTLE - 1)
        mujoco.mj_step1(self.model, data)
        data.time = 0


class Quadruped(Robot):
    name = "quadruped"
    substeps = 4
    fields = ("qpos", "qvel", "act", "xmat", "sensordata")
    camera = 2  # as in URLB: from the side, moving along
    spin_unit = "rad/s"

    def __init__(self) -> None:
        super().__init__()
        kinds = mujoco.mjtSensor
        imu = self.sensors_of(kinds.mjSENS_ACCELEROMETER, kinds.mjSENS_GYRO)
        toes = self.sensors_of(kinds.mjSENS_FORCE, kinds.mjSENS_TORQUE)
        self.velocity = self.sensors_of(kinds.mjSENS_VELOCIMETER)
        self.gyro = self.sensors_of(kinds.mjSENS_GYRO)
        self.centre = self.sensor("center_of_mass") + 2  # its height
        hinges = self.model.jnt_type == HINGE
        upright = 9 * self.torso + ZZ
        self.recipe = [
            Part("qpos", contiguous(self.model.jnt_qposadr[hinges])),
            Part("qvel", contiguous(self.model.jnt_dofadr[hinges])),
            Part("act"),
            Part("sensordata", self.velocity),
            Part("xmat", slice(upright, upright + 1)),
            Part("sensordata", imu),
            Part("sensordata", toes, "arcsinh"),
        ]
        self.tasks = {
            "stand": self.upright,
            "walk": lambda x: self.upright(x) * ramp(-0.5, 0.5, self.speed(x)),
            "run": lambda x: self.upright(x) * ramp(-5, 5, self.speed(x)),
            "jump": lambda x: self.upright(x) * ramp(-1, 1, x["sensordata"].item(self.centre)),
        }

    def sensors_of(self, *kinds: mujoco.mjtSensor) -> slice:
        """Slice of `sensordata` with all sensors of these kinds."""
        wanted = [kind.value for kind in kinds]
        found = np.flatnonzero(np.isin(self.model.sensor_type, wanted))
        spans = zip(self.model.sensor_adr[found], self.model.sensor_dim[found], strict=True)
        return contiguous([n for start, size in spans for n in range(start, start + size)])

    def start(self, data: mujoco.MjData, rng: np.random.RandomState) -> None:
        """Any orientation, just high enough above the floor to touch nothing."""
        orientation = rng.randn(4)
        orientation /= np.linalg.norm(orientation)
        height = 0.0
        while True:
            self.reset(data)
            data.qpos[:3] = 0, 0, height
            data.qpos[3:7] = orientation
            self.forward_unactuated(data)
            if data.ncon == 0:
                return
            height += 0.01

    def position(self, qpos: Doubles) -> Doubles:
        return qpos[..., :2].copy()  # of the free joint

    def speed(self, x: Readings) -> Doubles:
        """Along the torso's own axis."""
        return x["sensordata"][..., self.velocity.start]

    def spin(self, x: Readings) -> Doubles:
        """About the vertical, positive to the left; the gyro is in the torso's frame."""
        vertical = x["xmat"][..., self.torso, ZX:]  # in the torso's frame
        return (vertical * x["sensordata"][..., self.gyro]).sum(-1)

    def upright(self, x: Readings) -> float:
        return ramp(-1, 1, x["xmat"].item(self.torso, ZZ))


ROBOTS: dict[str, type[Robot]] = {r.name: r for r in (Walker, Quadruped, Hopper, Cheetah)}


@cache
def load_robot(name: str) -> Robot:
    return ROBOTS[name]()
