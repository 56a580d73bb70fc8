"""Figures of runs."""

from __future__ import annotations

from pathlib import Path

from comsd.evaluation import Evaluator
from comsd.runs import Run


def draw_skills(run: Run, evaluator: Evaluator) -> Path:
    """The skills of a run, or its learning curve, as a PNG file in its directory."""
    from matplotlib.figure import Figure  # slow to import

    settings = run.config.run
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    evaluator.draw(axes, run.policy)
    title = f"{settings.method}, {settings.skills} skills"
    if not run.pretrains:
        title = f"{settings.stage} on {settings.env}"
    axes.set_title(f"{title}, seed {settings.seed}", fontsize=10)
    path = run.path / ("skills.png" if run.pretrains else "curve.png")
    figure.savefig(path, dpi=130)
    return path
