"""The figures of a report."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from comsd.evaluation import make_evaluator
from comsd.reproduce.collect import FinishedRun
from comsd.reproduce.statistics import ENOUGH, Cell, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFERENCE = "ddpg"  # the arm without pre-training


def panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Any]]:
    """A figure with that many axes; the rest of its grid is blank."""
    from matplotlib.figure import Figure  # slow to import, and a plan draws nothing

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.axis("off")
    return figure, grid[:count]


def learning_curves(tasks: list[str], arms: list[str], runs: list[FinishedRun]) -> Figure:
    """Mean return over seeds at the steps that all seeds share, with its interval."""
    figure, grid = panels(len(tasks), 4, 3.6, 2.9)
    for axes, task in zip(grid, tasks, strict=True):
        for i, arm in enumerate(arms):
            rows = [r.rows for r in runs if (r.env, r.arm) == (task, arm)]
            curves = [{int(row["step"]): float(row["return"]) for row in run} for run in rows]
            if not curves:
                continue
            shared = sorted(set.intersection(*map(set, curves)))
            values = np.array([[curve[step] for step in shared] for curve in curves])
            colour = "black" if arm == REFERENCE else f"C{i}"
            axes.plot(shared, values.mean(0), color=colour, label=f"{arm} (n={len(curves)})")
            if len(curves) >= ENOUGH:
                axes.fill_between(shared, *interval(values), color=colour, alpha=0.15, linewidth=0)
        axes.set_title(task, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        axes.set_xlabel("environment steps")
    grid[0].set_ylabel("return")
    grid[0].legend(frameon=False, fontsize=8)
    return figure


def bars(cells: list[Cell], arms: list[str]) -> Figure:
    """A panel per row of the table; a black line is the paper's number."""
    rows = list(dict.fromkeys(cell.row for cell in cells))
    figure, grid = panels(len(rows), 4, 3.3, 2.8)
    for axes, row in zip(grid, rows, strict=True):
        for cell in (c for c in cells if c.row == row):
            i = arms.index(cell.arm)
            axes.bar(i, cell.ours.mean, yerr=cell.ours.sd, color=f"C{i}", capsize=3)
            if cell.paper:
                axes.plot(i, cell.paper[0], "k_", markersize=14)
        axes.set_xticks(range(len(arms)), arms, rotation=45, ha="right", fontsize=8)
        axes.set_title(row, fontsize=10)
    return figure


def skill_paths(labels: list[str], arms: list[str], runs: list[FinishedRun]) -> Figure:
    """The skills of the first seed of every arm."""
    figure, grid = panels(len(arms) * len(labels), len(arms), 2.6, 2.8)
    for axes, (label, arm) in zip(grid, product(labels, arms), strict=True):
        axes.axis("off")
        first = next((r.run for r in runs if (r.env, r.arm) == (label, arm)), None)
        if first:
            make_evaluator(first).draw(axes, first.policy)
            axes.set_title(f"{arm}, {label.rpartition('-')[2]} skills", fontsize=10)
    return figure
