"""Pictures of runs."""

from __future__ import annotations

from pathlib import Path

from comsd.evaluation import Evaluator
from comsd.run import Run


def draw_skills(run: Run, look: Evaluator) -> Path:
    """Draw what each skill of a run does; returns the path of the picture."""
    from matplotlib.figure import Figure  # only who draws waits for it

    settings = run.config.run
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    look.draw(axes, run.policy)
    axes.set_title(
        f"{settings.method}, {settings.skills} skills, seed {settings.seed}", fontsize=10
    )
    path = run.path / "skills.png"
    figure.savefig(path, dpi=130)
    return path
