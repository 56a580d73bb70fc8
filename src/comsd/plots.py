"""Pictures of skills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from comsd.envs.maze import Maze
from comsd.evaluation import evaluation_seed, maze_of
from comsd.evaluation.maze import rollouts

if TYPE_CHECKING:
    from comsd.run import Run

SHOWN = 20  # rollouts drawn per skill


def skill_colours(n: int) -> list[tuple[float, ...]]:
    if n <= 20:  # the first n of a palette, as integers select them
        return [matplotlib.colormaps["tab10" if n <= 10 else "tab20"](i) for i in range(n)]
    return [tuple(c) for c in matplotlib.colormaps["turbo"](np.linspace(0, 1, n))]


def draw_maze(axes: Axes, maze: Maze, paths: NDArray[np.float32]) -> None:
    """Rollouts (skills, rollouts, time, 2) in one colour per skill, inside the walls."""
    for skill, colour in zip(paths, skill_colours(len(paths)), strict=True):
        axes.add_collection(
            LineCollection(list(skill), colors=[colour], alpha=0.25, linewidths=1.5)
        )
        axes.scatter(*skill[:, -1].T, s=9, color=colour, zorder=2, linewidths=0)
    axes.add_collection(LineCollection(list(maze.walls), colors="black", linewidths=2))
    axes.plot(*maze.origin, "o", color="black", markersize=4)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.axis("off")


def draw_skills(run: Run) -> Path:
    """Draw what each skill of a run does; returns the path of the picture."""
    maze = maze_of(run)
    paths = rollouts(maze, run.policy, run.space, SHOWN, evaluation_seed(run))
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    draw_maze(axes, maze, paths)
    settings = run.config.run
    axes.set_title(f"{settings.method}, {len(paths)} skills, seed {settings.seed}", fontsize=10)
    path = run.path / "skills.png"
    figure.savefig(path, dpi=130)
    return path
