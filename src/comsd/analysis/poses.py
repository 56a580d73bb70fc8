"""Strips of poses: one row per skill of a sweep, time from left to right; without OpenGL.

Every geom becomes its outline in a parallel projection: a capsule a stadium, a sphere or an
ellipsoid an ellipse. Planar robots are drawn from the side, x to the right and z up; the others
from the side and a little above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from comsd.envs.mujoco import Robot
from comsd.envs.robots import Planar
from comsd.envs.simulation import Doubles
from comsd.evaluation.rollouts import Floats

NEAR, FAR = "#34495e", "#b3c0cc"  # limbs on the near and on the far side
TORSO = "#e1812c"
EDGE, GROUND, SHADOW = "white", "#8a8f94", "#e9ebed"
ROUND = np.linspace(0, 2 * np.pi, 32, endpoint=False)
CIRCLE = np.stack([np.cos(ROUND), np.sin(ROUND)], 1)
SHADOW_RADIUS = 0.45  # m

POSES = 12
BETWEEN = 0.15  # seconds from pose to pose: a flip takes about one
ROOM = 1.04  # of a pose's slot, compared with the widest pose
GAP = 0.1  # m between rows
WIDTH, LABEL, ABOVE, BELOW, ASIDE = 12.0, 1.45, 0.35, 0.45, 0.1  # inches
LEAST = 0.42  # inches of a row, for its two lines of text
GREY = "#555555"

LONG = (mujoco.mjtGeom.mjGEOM_CAPSULE.value, mujoco.mjtGeom.mjGEOM_CYLINDER.value)
BALL = mujoco.mjtGeom.mjGEOM_SPHERE.value


def projection(azimuth: float, elevation: float) -> Doubles:
    """(3, 3): rightwards, upwards and away from a camera that looks along y, turned by degrees."""
    a, e = np.radians([azimuth, elevation])
    right = [np.cos(a), np.sin(a), 0]
    up = [-np.sin(a) * np.sin(e), np.cos(a) * np.sin(e), np.cos(e)]
    away = [-np.sin(a) * np.cos(e), np.cos(a) * np.cos(e), -np.sin(e)]
    return np.array([right, up, away])


SIDE, OBLIQUE = projection(0, 0), projection(25, 20)


@dataclass(frozen=True)
class Outline:
    """The projection of one geom."""

    points: Doubles  # (P, 2)
    depth: float  # of its centre
    torso: bool


class PoseModel:
    """Kinematics of a robot: outlines of its geoms in any pose."""

    def __init__(self, robot: Robot) -> None:
        self.model, self.view = robot.model, SIDE if isinstance(robot, Planar) else OBLIQUE
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
        plane = self.view[:2]
        ends = self.ends(geom) - origin
        first, last = ends @ plane.T
        if kind in LONG or kind == BALL:
            points = stadium(first, last, size[0])
        else:
            rotation = self.data.geom_xmat[geom].reshape(3, 3)
            points = first + ellipse(plane @ rotation * size)
        depth = float(ends.mean(0) @ self.view[2])
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
    near, far = np.array(to_rgb(NEAR)), np.array(to_rgb(FAR))
    flat = np.ptp(depths) <= 1e-3
    mix = 0 * depths if flat else 0.5 + 0.5 * depths / np.abs(depths).max()
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
    style = {"facecolors": colours(pose), "edgecolors": EDGE, "linewidths": 0.5}
    axes.add_collection(PolyCollection(shapes, **style))


def draw_shadow(axes: Axes, view: Doubles, at: tuple[float, float]) -> None:
    """A disc on the floor, which shows the height of the robot above it."""
    shape = SHADOW_RADIUS * CIRCLE @ view[:2, :2].T + at
    axes.add_collection(PolyCollection([shape], facecolors=SHADOW, edgecolors="none", zorder=0))


# --- strips ---------------------------------------------------------------------------------------


def control_step(robot: Robot) -> float:
    """Seconds."""
    return robot.substeps * robot.model.opt.timestep


def moments(robot: Robot, length: int) -> NDArray[np.int64]:
    """The steps that are drawn: from the middle of the roll-out, after its transient."""
    stride = max(1, min(round(BETWEEN / control_step(robot)), (length - 1) // (2 * POSES)))
    return (length // 2 + stride * np.arange(POSES)).clip(max=length - 1)


def draw_strips(
    robot: Robot, qpos: Doubles, labels: Sequence[str], akd: Floats, title: str
) -> Figure:
    """One row per skill; qpos (skills, time, .), akd (skills, starts)."""
    model, times = PoseModel(robot), moments(robot, qpos.shape[1])
    strips = [[model.pose(q) for q in skill[times]] for skill in qpos]
    least, greatest = extent([pose for strip in strips for pose in strip])
    slot, centre = ROOM * (greatest - least)[0], (greatest + least)[0] / 2
    width = POSES * slot
    scale = (WIDTH - LABEL - ASIDE) / width  # inches per m
    low = min(0.0, least[1])  # parts nearer than the middle of the floor are drawn below it
    tops = [max(extent(strip)[1][1], low + LEAST / scale) for strip in strips]
    height = sum(tops) + (GAP - low) * len(strips)
    tall = height * scale + ABOVE + BELOW  # inches
    figure = Figure(figsize=(WIDTH, tall))
    within = LABEL / WIDTH, BELOW / tall, width * scale / WIDTH, height * scale / tall
    axes = figure.add_axes(within, xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    floor = height
    activity = [f"AKD {row.mean():.1f} ± {row.std(ddof=1):.1f}" for row in akd]
    for strip, top, label, active in zip(strips, tops, labels, activity, strict=True):
        floor -= top + GAP
        if model.view is SIDE:
            axes.plot([0, width], [floor] * 2, color=GROUND, linewidth=0.8, clip_on=False)
        for j, pose in enumerate(strip):
            at = ((j + 0.5) * slot - centre, floor)
            if model.view is not SIDE:
                draw_shadow(axes, model.view, at)
            draw_pose(axes, pose, at)
        beside = (0, floor + (top + low) / 2)
        write(axes, label, beside, (-10, 1), ha="right", va="bottom", weight="bold", fontsize=10)
        write(axes, active, beside, (-10, -2), ha="right", va="top", fontsize=9)
        floor += low
    seconds = times * control_step(robot)
    for j, second in enumerate(seconds - seconds[0]):
        under = ((j + 0.5) * slot, 0)
        write(axes, f"{second:.2f}", under, (0, -4), ha="center", va="top", fontsize=8, color=GREY)
    start = f"time after second {seconds[0]:g} of the roll-out [s]"
    write(axes, start, (width / 2, 0), (0, -17), ha="center", va="top", fontsize=9, color=GREY)
    write(axes, title, (0, height), (0, 8), ha="left", va="bottom", fontsize=11)
    return figure


def write(
    axes: Axes, text: str, at: tuple[float, float], shift: tuple[float, float], **style: Any
) -> None:
    """Text at an offset in points."""
    axes.annotate(text, at, shift, textcoords="offset points", annotation_clip=False, **style)
