"""The verbs: what the command line calls and what a notebook calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comsd.adaptation import resolve_combine, resolve_finetune, resolve_scratch
from comsd.analysis import Analysis, analyse_robot
from comsd.config import check_free, resolve
from comsd.errors import InputError
from comsd.evaluation import make_evaluator
from comsd.loop import prepare, readable_failures, train
from comsd.plots import draw_skills
from comsd.run import Run


def silent(message: str) -> None:
    """No report."""


def pretrain(
    method: str,
    /,
    *,
    env: str,
    run: Path | str,
    preset: str = "paper",
    report: Callable[[str], None] = silent,
    **settings: Any,
) -> Run:
    """Discover skills without rewards; everything goes to the directory `run`.

    Settings: those of the run by name (`skills=10, seed=1, steps=100_000`), those of the method
    and of the agent as dicts (`method={"alpha": 0.2}, agent={"lr": 1e-4}`).
    """
    check_free("pretrain", settings)
    config, sources = resolve(method, env, preset, **settings)
    started = Run.create(run, config, sources)
    train(started, report)
    return started


def finetune(
    source: Run | Path | str | None,
    /,
    *,
    task: str,
    run: Path | str,
    preset: str | None = None,
    report: Callable[[str], None] = silent,
    **settings: Any,
) -> Run:
    """Go on learning with a task's reward from one skill of a pre-trained run (Algorithm 3).

    Without a source: plain DDPG from scratch, the reference. How the skill is chosen and what is
    taken over: `adapt={"rule": "best-of-k", "critic_init": "none"}`.
    """
    if source is None:
        started = Run.create(run, *resolve_scratch(task, preset or "paper", **settings))
    else:
        opened = opened_run(source)
        resolved = resolve_finetune(opened, task, preset, **settings)
        started = Run.create(run, *resolved, opened)
    train(started, report)
    return started


def combine(
    source: Run | Path | str,
    /,
    *,
    task: str,
    run: Path | str,
    preset: str | None = None,
    report: Callable[[str], None] = silent,
    **settings: Any,
) -> Run:
    """Learn which of a pre-trained run's skills to use when (Algorithm 2).

    A controller is trained on the task; its action is the skill. `adapt={"hold": 10}` makes a
    choice last.
    """
    opened = opened_run(source)
    started = Run.create(run, *resolve_combine(opened, task, preset, **settings), opened)
    train(started, report)
    return started


def opened_run(run: Run | Path | str) -> Run:
    return run if isinstance(run, Run) else Run(run)


def resume(
    run: Path | str, report: Callable[[str], None] = silent, *, steps: int | None = None
) -> Run:
    """Continue a run where its last checkpoint is, exactly as if it had never stopped.

    steps: train to this number of steps instead, a finished run too.
    """
    opened = Run(run)
    if steps is not None:
        opened.extend(steps)
    train(opened, report)
    return opened


def load(run: Path | str) -> Run:
    """Open a run to use its policy: `load(path).policy.act(obs, skill)`."""
    return Run(run)


@dataclass(frozen=True)
class Evaluation:
    """What a run's skills do, beside what random actions do."""

    metrics: dict[str, float]
    random: dict[str, float]
    picture: Path
    step: int  # of the checkpoint that was measured
    steps: int  # to which it is to be trained


def evaluate(
    run: Run | Path | str, *, greedy: bool = False, random_start: bool = False
) -> Evaluation:
    """Roll out every skill, measure and draw. `greedy` takes mean actions."""
    opened = opened_run(run)
    prepare(opened)
    look = make_evaluator(opened)
    with readable_failures(opened):
        metrics = look.evaluate(opened.policy, greedy=greedy, random_start=random_start)
        random, picture = look.evaluate(None, random_start=random_start), draw_skills(opened, look)
    return Evaluation(metrics, random, picture, opened.used_step, opened.config.run.steps)


def analyse(
    run: Run | Path | str,
    *,
    sweep: str = "constant",
    video: bool = False,
    out: Path | str | None = None,
    report: Callable[[str], None] = silent,
) -> Analysis:
    """Measure and draw a robot's skills one by one; everything goes to `out`, or RUN/analysis.

    `sweep` is the one drawn as strips of poses and filmed; all of them are measured.
    """
    opened = opened_run(run)
    if "robots" not in opened.spec.families:
        raise InputError(
            f"analyse is for the skills of robots and {opened.path} is a run on "
            f"{opened.spec.name}: `comsd evaluate {opened.path}` measures and draws it"
        )
    prepare(opened)
    folder = opened.path / "analysis" if out is None else Path(out)
    with readable_failures(opened):
        return analyse_robot(opened, folder, sweep, video, report)
