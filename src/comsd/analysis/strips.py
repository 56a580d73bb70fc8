"""Strips of poses: one row per skill of a sweep, time from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from comsd.analysis.poses import GROUND, SIDE, PoseModel, draw_pose, draw_shadow, extent
from comsd.envs.mujoco import Robot
from comsd.envs.simulation import Doubles

POSES = 12
BETWEEN = 0.15  # seconds from pose to pose: a flip takes about one
ROOM = 1.04  # of a pose's slot, compared with the widest pose
GAP = 0.1  # m between rows

WIDTH, LABEL, ABOVE, BELOW, ASIDE = 12.0, 1.1, 0.35, 0.45, 0.1  # inches
LEAST = 0.42  # inches of a row, for its two lines of text
GREY = "#555555"


def control_step(robot: Robot) -> float:
    """Seconds."""
    return robot.substeps * robot.model.opt.timestep


def moments(robot: Robot, length: int) -> NDArray[np.int64]:
    """The steps that are drawn: from the middle of the roll-out, after its transient."""
    stride = max(1, round(BETWEEN / control_step(robot)))
    return length // 2 + stride * np.arange(POSES)


def draw_strips(
    robot: Robot, qpos: Doubles, labels: Sequence[str], akd: Doubles, title: str
) -> Figure:
    """One row per skill; qpos (skills, time, .)."""
    model, times = PoseModel(robot), moments(robot, qpos.shape[1])
    strips = [[model.pose(q) for q in skill[times]] for skill in qpos]
    least, greatest = extent([pose for strip in strips for pose in strip])
    slot, centre = ROOM * (greatest - least)[0], (greatest + least)[0] / 2
    width = POSES * slot
    scale = (WIDTH - LABEL - ASIDE) / width  # inches per m
    low = min(0.0, least[1])  # parts nearer than the middle of the floor are drawn below it
    tops = [max(extent(strip)[1][1], low + LEAST / scale) for strip in strips]
    height = sum(tops) + (GAP - low) * len(strips)
    figure = Figure(figsize=(WIDTH, height * scale + ABOVE + BELOW))
    axes = figure.add_axes(inches(figure, LABEL, BELOW, width * scale, height * scale))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    floor = height
    for strip, top, label, activity in zip(strips, tops, labels, akd, strict=True):
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
        write(axes, f"AKD {activity:.2f}", beside, (-10, -2), ha="right", va="top", fontsize=9)
        floor += low
    seconds = times * control_step(robot)
    for j, second in enumerate(seconds - seconds[0]):
        under = ((j + 0.5) * slot, 0)
        write(axes, f"{second:.2f}", under, (0, -4), ha="center", va="top", fontsize=8, color=GREY)
    start = f"time after second {seconds[0]:g} of the roll-out [s]"
    write(axes, start, (width / 2, 0), (0, -17), ha="center", va="top", fontsize=9, color=GREY)
    write(axes, title, (0, height), (0, 8), ha="left", va="bottom", fontsize=11)
    return figure


def inches(
    figure: Figure, left: float, bottom: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """A rectangle in inches as shares of the figure."""
    x, y = figure.get_size_inches()
    return left / x, bottom / y, width / x, height / y


def write(
    axes: Axes, text: str, at: tuple[float, float], shift: tuple[float, float], **style: Any
) -> None:
    """Text at an offset in points."""
    axes.annotate(text, at, shift, textcoords="offset points", annotation_clip=False, **style)
