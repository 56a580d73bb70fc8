"""Robots drawn from the positions of their geoms, without OpenGL.

Every geom becomes its outline in a parallel projection: a capsule a stadium, a sphere or an
ellipsoid an ellipse. Planar robots are drawn from the side, x to the right and z up; the others
from the side and a little above.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from comsd.envs.mujoco import Robot
from comsd.envs.robots import Planar
from comsd.envs.simulation import Doubles

NEAR, FAR = "#34495e", "#b3c0cc"  # limbs on the near and on the far side
TORSO = "#e1812c"
EDGE, GROUND, SHADOW = "white", "#8a8f94", "#e9ebed"
ROUND = np.linspace(0, 2 * np.pi, 32, endpoint=False)
CIRCLE = np.stack([np.cos(ROUND), np.sin(ROUND)], 1)
SHADOW_RADIUS = 0.45  # m

LONG = (mujoco.mjtGeom.mjGEOM_CAPSULE.value, mujoco.mjtGeom.mjGEOM_CYLINDER.value)
BALL = mujoco.mjtGeom.mjGEOM_SPHERE.value


@dataclass(frozen=True)
class View:
    """A parallel projection; the camera looks along y by default. Angles in degrees."""

    azimuth: float = 0
    elevation: float = 0

    @cached_property
    def axes(self) -> Doubles:
        """(3, 3): rightwards, upwards and away from the camera."""
        a, e = np.radians([self.azimuth, self.elevation])
        right = [np.cos(a), np.sin(a), 0]
        up = [-np.sin(a) * np.sin(e), np.cos(a) * np.sin(e), np.cos(e)]
        away = [-np.sin(a) * np.cos(e), np.cos(a) * np.cos(e), -np.sin(e)]
        return np.array([right, up, away])


SIDE, OBLIQUE = View(), View(azimuth=25, elevation=20)


def view_of(robot: Robot) -> View:
    return SIDE if isinstance(robot, Planar) else OBLIQUE


@dataclass(frozen=True)
class Outline:
    """The projection of one geom."""

    points: Doubles  # (P, 2)
    depth: float  # of its centre
    torso: bool


class PoseModel:
    """Kinematics of a robot: outlines of its geoms in any pose."""

    def __init__(self, robot: Robot) -> None:
        self.model, self.view = robot.model, view_of(robot)
        self.data = mujoco.MjData(robot.model)
        self.geoms = np.flatnonzero(self.model.geom_bodyid > 0).tolist()  # all but the floor
        self.torso = robot.torso

    def ends(self, geom: int) -> Doubles:
        """(2, 3): the ends of a capsule's axis; the centre twice for other geoms."""
        size, centre = self.model.geom_size[geom], self.data.geom_xpos[geom]
        half = size[1] if self.model.geom_type[geom] in LONG else 0
        axis = self.data.geom_xmat[geom].reshape(3, 3)[:, 2]
        return np.stack([centre - half * axis, centre + half * axis])

    def set_pose(self, qpos: Doubles) -> None:
        self.data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)

    def pose(self, qpos: Doubles) -> list[Outline]:
        """Outlines from far to near, relative to the floor under the centre of mass."""
        self.set_pose(qpos)
        origin = self.data.subtree_com[0] * [1, 1, 0]
        outlines = [self.outline(geom, origin) for geom in self.geoms]
        return sorted(outlines, key=lambda o: -o.depth)

    def outline(self, geom: int, origin: Doubles) -> Outline:
        size, kind = self.model.geom_size[geom], self.model.geom_type[geom]
        plane = self.view.axes[:2]
        ends = self.ends(geom) - origin
        first, last = ends @ plane.T
        if kind in LONG or kind == BALL:
            points = stadium(first, last, size[0])
        else:
            rotation = self.data.geom_xmat[geom].reshape(3, 3)
            points = first + ellipse(plane @ rotation * size)
        depth = float(ends.mean(0) @ self.view.axes[2])
        return Outline(points, depth, bool(self.model.geom_bodyid[geom] == self.torso))


def stadium(first: Doubles, last: Doubles, radius: float) -> Doubles:
    """Around a line from first to last, (2,) each: half a circle at either end."""
    direction = last - first
    ahead = CIRCLE @ direction >= 0
    return first + np.where(ahead[:, None], direction, 0) + radius * CIRCLE


def ellipse(shape: Doubles) -> Doubles:
    """The outline of {shape u, |u| = 1}, shape (2, 3): a projected ellipsoid."""
    squares, axes = np.linalg.eigh(shape @ shape.T)
    return CIRCLE * np.sqrt(squares) @ axes.T


def colours(pose: list[Outline]) -> list[tuple[float, ...]]:
    """The torso in its own colour, limbs lighter with distance."""
    depths = np.array([o.depth for o in pose])
    reach = max(np.abs(depths).max(), 1e-3)
    near, far = np.array(to_rgb(NEAR)), np.array(to_rgb(FAR))
    mix = 0.5 + 0.5 * depths / reach if np.ptp(depths) > 1e-3 else np.zeros(len(pose))
    return [
        to_rgb(TORSO) if o.torso else tuple(near + m * (far - near))
        for o, m in zip(pose, mix, strict=True)
    ]


def extent(poses: list[list[Outline]]) -> tuple[Doubles, Doubles]:
    """(least, greatest) coordinates of many poses."""
    points = np.concatenate([o.points for pose in poses for o in pose])
    return points.min(0), points.max(0)


def draw_pose(axes: Axes, pose: list[Outline], at: tuple[float, float]) -> None:
    shapes = [o.points + at for o in pose]
    axes.add_collection(
        PolyCollection(shapes, facecolors=colours(pose), edgecolors=EDGE, linewidths=0.5)
    )


def draw_shadow(axes: Axes, view: View, at: tuple[float, float]) -> None:
    """A disc on the floor, which shows the height of the robot above it."""
    disc = np.concatenate([SHADOW_RADIUS * CIRCLE, np.zeros((len(CIRCLE), 1))], 1)
    shape = disc @ view.axes[:2].T + at
    axes.add_collection(PolyCollection([shape], facecolors=SHADOW, edgecolors="none", zorder=0))
