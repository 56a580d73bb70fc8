"""What an adapted agent does in episodes of its task, beside what it began with.

A controller of skills also shows which skill acts when. Mean actions, the same starts for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from comsd.agents.dqn import GreedyPolicy
from comsd.analysis.skills import DPI, ROBOT_MEASURES, as_csv, draw_robot
from comsd.envs.skills import ControlledSkills
from comsd.envs.specs import ROBOT_TASKS
from comsd.errors import InputError
from comsd.evaluation.base import untrained_policy
from comsd.evaluation.episodes import episodes
from comsd.evaluation.metrics import activity
from comsd.evaluation.pictures import png_of
from comsd.evaluation.rollouts import Rollouts
from comsd.evaluation.tasks import TaskEvaluator
from comsd.files import Folder
from comsd.runs import Run
from comsd.training.logger import Progress
from comsd.types import PolicyFn

FEWEST_STARTS = 2  # of which a spread can be told
NAMES = {  # before and after, by stage
    "finetune": ("before", "fine-tuned"),
    "combine": ("untrained", "controller"),
    "scratch": ("untrained", "trained"),
}


@dataclass(frozen=True)
class EpisodeFigures:
    """One behaviour: a line of episodes.csv. Means over episodes; None where it is unknown."""

    behaviour: str
    mean_return: float
    return_sd: float  # over episodes
    length: float  # steps
    akd: float
    height: float | None  # of a robot's torso, m
    speed: float | None  # forwards, m/s
    spin: float | None  # in `EpisodeAnalysis.spin_unit`


@dataclass(frozen=True)
class EpisodeAnalysis:
    """Episodes of an adapted agent and of what it is compared with."""

    step: int  # of the checkpoint
    starts: int  # episodes of each behaviour
    behaviours: list[EpisodeFigures]
    spin_unit: str | None
    files: dict[str, Path]

    def to_json(self) -> dict[str, Any]:
        files = {name: str(path) for name, path in self.files.items()}
        return dataclasses.asdict(self) | {"files": files}


def measure_episodes(
    evaluator: TaskEvaluator, folder: Folder, video: bool, report: Callable[[str], None]
) -> EpisodeAnalysis:
    """episodes.csv and .png; of our robots strips of poses and a video, too."""
    from comsd.analysis.episodes_figure import draw_episodes  # slow to import

    run = evaluator.run
    starts = max(evaluator.rollouts, FEWEST_STARTS)
    robot = run.spec.families[-1] in ROBOT_TASKS
    if video and not robot:
        raise InputError("video is for our robots; episodes.png shows rewards and skills over time")
    actors = behaviours(run, evaluator, starts)
    with Progress(len(actors) * starts * run.spec.horizon, 0, {}, report) as progress:
        seen = {
            name: episodes(run, act, starts, evaluator.seed, progress.count)
            for name, act in actors.items()
        }
    title = f"{evaluator.title}, {starts} episodes each"
    akd = {name: activity(rollouts) for name, rollouts in seen.items()}
    rows = [describe(name, rollouts, akd[name].mean()) for name, rollouts in seen.items()]
    folder.replace("episodes.csv", as_csv(rows))
    folder.replace("episodes.png", png_of(draw_episodes(run, seen, title), DPI))
    files = {name: folder.path / name for name in ("episodes.csv", "episodes.png")}
    spin_unit = None
    if robot:
        all_of_them = side_by_side([*seen.values()])
        shown = all_of_them, [*seen], np.concatenate([*akd.values()]), title
        film = report if video else None
        spin_unit = draw_robot(run.spec.families[-1], *shown, folder, files, film, "episodes")
    files["episodes.json"] = folder.path / "episodes.json"
    analysis = EpisodeAnalysis(run.used_step, starts, rows, spin_unit, files)
    folder.write_sealed("episodes.json", analysis.to_json())
    return analysis


def behaviours(run: Run, evaluator: TaskEvaluator, starts: int) -> dict[str, PolicyFn]:
    """Before and after; the best candidate alone is what a discrete controller has to beat."""
    before, after = NAMES[run.config.run.stage]
    shown = {before: run.actor(starts, untrained_policy(run))}
    if isinstance(policy := run.policy, GreedyPolicy):
        best = evaluator.best_candidate(policy)
        always = policy.candidates[best].expand(starts, -1).cpu().numpy()
        alone = run.actor(starts)
        assert isinstance(alone, ControlledSkills)
        alone.controller = lambda _: always
        shown[f"candidate {best}"] = alone
    return {**shown, after: run.actor(starts)}


def side_by_side(parts: list[Rollouts]) -> Rollouts:
    """Of several behaviours of a robot, whose episodes are all of a length, as if of skills."""
    names = ("qpos", *ROBOT_MEASURES)
    watched = {name: np.concatenate([part.watched[name] for part in parts]) for name in names}
    obs = np.concatenate([part.obs for part in parts])
    return Rollouts(obs, np.concatenate([part.length for part in parts]), None, watched)


def describe(name: str, rollouts: Rollouts, akd: float) -> EpisodeFigures:
    assert rollouts.reward is not None
    returns = rollouts.reward.sum(2)[0]
    known = {what: rollouts.watched.get(what) for what in ROBOT_MEASURES}
    means = {
        what: None if values is None else float(rollouts.mean(values).mean())
        for what, values in known.items()
    }
    spread = float(returns.std())
    return EpisodeFigures(
        name, float(returns.mean()), spread, float(rollouts.length.mean()), float(akd), **means
    )
