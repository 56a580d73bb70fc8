"""The skills of a run one by one: activity, height, speed, spin.

Every sweep is rolled out once; metrics, tables, figures and video are made from that.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.config import Settings, choose
from comsd.envs.pixels import act_on_states
from comsd.envs.specs import make_robot
from comsd.evaluation.robots import SWEEPS, States, akd, skill_sweeps, sweep_metrics
from comsd.files import Folder
from comsd.runs import Run
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.training.rollout import rollout
from comsd.types import PolicyFn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from comsd.envs.mujoco import RobotEnv
    from comsd.envs.simulation import Doubles

DPI = 150


@dataclass(frozen=True)
class Motion:
    """Roll-outs of skills, with the quantities that describe and draw them."""

    states: States  # (skills, time, O)
    qpos: Doubles  # (skills, time, .)
    height: Doubles  # (skills, time), as the next two
    speed: Doubles
    spin: Doubles


def skill_motion(
    robot: str, policy: Policy, skills: Tensor, pixels: Settings | None = None
) -> Motion:
    """One roll-out per skill with mean actions, all from the same initial state.

    pixels: the settings of a run on images.
    """
    env = make_robot(robot, [0] * len(skills), motion=True)
    policy_fn = make_policy_fn(policy, skills, None)
    return record_motion(env, act_on_states(env, pixels or Settings(), policy_fn))


def record_motion(env: RobotEnv, policy_fn: PolicyFn, length: int | None = None) -> Motion:
    robot, x = env.robot, env.readings
    rows = []
    for step in rollout(env, policy_fn, length):
        row = step.next_obs, x["qpos"], robot.height(x), robot.speed(x), robot.spin(x)
        rows.append([np.array(part) for part in row])  # the next step overwrites the readings
    return Motion(*(np.stack(column, 1) for column in zip(*rows, strict=True)))


@dataclass(frozen=True)
class SkillFigures:
    """One skill: a line of skills.csv. All but the AKD are means over the roll-out."""

    sweep: str
    skill: str
    akd: float
    height: float  # of the torso, m
    speed: float  # forwards, m/s
    spin: float  # in `Analysis.spin_unit`


@dataclass(frozen=True)
class Analysis:
    """The skills of a robot's run."""

    step: int  # of the checkpoint
    metrics: dict[str, float]
    skills: list[SkillFigures]
    spin_unit: str
    files: dict[str, Path]

    def to_json(self) -> dict[str, Any]:
        files = {name: str(path) for name, path in self.files.items()}
        return dataclasses.asdict(self) | {"files": files}


def labels(space: SkillSpace, sweep: str, skills: Tensor) -> list[str]:
    """A short name for each skill of a sweep."""
    if isinstance(space, OneHot):
        return [f"skill {int(i)}" for i in space.index(skills)]
    if sweep == "random":
        return [f"random {i}" for i in range(1, len(skills) + 1)]
    if isinstance(space, Sphere):
        return [f"angle {360 * i / len(skills):.0f}°" for i in range(len(skills))]
    name = "z1" if sweep == "flag" else "c"
    return [f"{name} = {z:.2g}" for z in skills[:, 0].tolist()]


def describe(sweep: str, names: list[str], motion: Motion) -> list[SkillFigures]:
    activity = akd(motion.states).tolist()
    means = [x.mean(1).tolist() for x in (motion.height, motion.speed, motion.spin)]
    return [SkillFigures(sweep, *row) for row in zip(names, activity, *means, strict=True)]


def analyse_robot(
    run: Run, folder: Folder, sweep: str, video: bool, report: Callable[[str], None]
) -> Analysis:
    """Metrics of all sweeps; one of them drawn as strips and, if asked for, as a video."""
    from comsd.analysis.figure import SweepFigures, draw_analysis  # slow to import
    from comsd.analysis.poses import control_step, draw_strips
    from comsd.analysis.video import write_video
    from comsd.envs.robots import load_robot

    robot, policy, sweeps = load_robot(run.spec.name), run.policy, skill_sweeps(run.space)
    choose("sweep", sweep, {name: SWEEPS[name] for name in sweeps})
    pixels = run.config.pixels
    motions = {n: skill_motion(robot.name, policy, skills, pixels) for n, skills in sweeps.items()}
    names = {name: labels(run.space, name, skills) for name, skills in sweeps.items()}
    metrics: dict[str, float] = {}
    rows: list[SkillFigures] = []
    drawn: dict[str, SweepFigures] = {}
    for name, motion in motions.items():
        table, means = describe(name, names[name], motion), motion.states.mean(1, dtype=np.float64)
        drawn[name] = SweepFigures(names[name], np.array([row.akd for row in table]), means)
        metrics |= sweep_metrics(name, motion.states)
        rows += table

    s, qpos, shown = run.config.run, motions[sweep].qpos, names[sweep]
    title = f"{s.method} on {s.env}, seed {s.seed}"
    strips = draw_strips(robot, qpos, shown, drawn[sweep].akd, f"{title}: {sweep} sweep")
    written = ("skills.csv", "analysis.png", "strips.png", "analysis.json")
    files = {name: folder.path / name for name in written}
    folder.replace("skills.csv", as_csv(rows))
    folder.replace("analysis.png", as_png(draw_analysis(drawn, metrics, title)))
    folder.replace("strips.png", as_png(strips))
    if video:
        film = write_video(robot.name, qpos, shown, control_step(robot), folder, report)
        files[film.name] = film
    analysis = Analysis(run.used_step, metrics, rows, robot.spin_unit, files)
    folder.write_sealed("analysis.json", analysis.to_json())
    return analysis


def as_csv(rows: list[SkillFigures]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [f.name for f in dataclasses.fields(SkillFigures)])
    writer.writeheader()
    writer.writerows(dataclasses.asdict(row) for row in rows)
    return text.getvalue().encode()


def as_png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, dpi=DPI, format="png")
    return content.getvalue()
