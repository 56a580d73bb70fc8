"""Figures of exhibits: learning curves of tasks, skills in mazes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comsd.evaluation import make_evaluator
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.exhibits import REFERENCES
from comsd.reproduction.statistics import ENOUGH, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # slow to import, and a plan draws nothing

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, i + 1) for i in range(count)]


def draw_steps(axes: Axes, fontsize: int | None = None) -> None:
    """The axis of environment steps: 200, 20k, 2M."""
    from matplotlib.ticker import EngFormatter  # slow to import

    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("environment steps", fontsize=fontsize)


def from_zero(axes: Axes) -> None:
    """Upwards, with a margin above what is drawn; where all is 0, to 1."""
    top = axes.dataLim.y1
    axes.set_ylim(0, 1.08 * top if top > 0 else 1)


def seed_curves(
    runs: Sequence[Sequence[Mapping[str, str]]], metric: str
) -> tuple[list[int], NDArray[np.float64]]:
    """The steps at which all seeds were evaluated, and the metric there, (seeds, steps).

    runs: the evaluations of each seed.
    """
    curves = [{int(row["step"]): float(row[metric]) for row in rows} for rows in runs]
    steps = sorted(set.intersection(*map(set, curves)))
    return steps, np.array([[curve[step] for step in steps] for curve in curves])


def learning_curves(tasks: list[str], arms: list[str], runs: list[FinishedRun]) -> Figure:
    """Mean return over seeds at the steps that all seeds share, with its interval.

    Dotted: of discrete controllers, the best of the candidate skills if it acts alone.
    """
    figure, grid = panels(len(tasks), 4, 3.6, 2.9)
    for axes, task in zip(grid, tasks, strict=True):
        for i, arm in enumerate(arms):
            rows = [r.rows for r in runs if (r.env, r.arm) == (task, arm)]
            if not rows:
                continue
            steps, values = seed_curves(rows, "return")
            colour = "black" if arm in REFERENCES else f"C{i}"
            axes.plot(steps, values.mean(0), color=colour, label=f"{arm} (n={len(values)})")
            alone = [float(run[-1].get("return_best_candidate", "nan")) for run in rows]
            if not np.isnan(alone).any():
                axes.axhline(float(np.mean(alone)), color=colour, linestyle=":", linewidth=1)
            if len(values) >= ENOUGH:
                axes.fill_between(steps, *interval(values), color=colour, alpha=0.15, linewidth=0)
        axes.set_title(task, fontsize=10)
        from_zero(axes)
        draw_steps(axes)
        axes.legend(frameon=False, fontsize=7)
    grid[0].set_ylabel("return")
    return figure


def skill_paths(labels: list[str], arms: list[str], runs: list[FinishedRun]) -> Figure:
    """The skills of the first seed of every arm."""
    figure, grid = panels(len(arms) * len(labels), len(arms), 2.6, 2.8)
    for axes, (label, arm) in zip(grid, product(labels, arms), strict=True):
        axes.axis("off")
        first = next((r.run for r in runs if (r.env, r.arm) == (label, arm) and r.drawable), None)
        if first:
            make_evaluator(first).draw(axes, first.policy)
            axes.set_title(f"{arm}, {label.rpartition('-')[2]} skills", fontsize=10)
    return figure
