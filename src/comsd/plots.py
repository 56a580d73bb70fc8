"""Pictures of runs."""

from __future__ import annotations

from pathlib import Path

from comsd.evaluation import Evaluator
from comsd.runs.run import Run


def draw_skills(run: Run, evaluator: Evaluator) -> Path:
    """Draw what each skill of a run does; returns the path of the picture."""
    from matplotlib.figure import Figure  # only who draws waits for it

    settings = run.config.run
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    evaluator.draw(axes, run.policy)
    about = f"{settings.method}, {settings.skills} skills"
    if not run.pretrains:
        about = f"{settings.stage} on {settings.env}"
    axes.set_title(f"{about}, seed {settings.seed}", fontsize=10)
    path = run.path / ("skills.png" if run.pretrains else "curve.png")
    figure.savefig(path, dpi=130)
    return path
