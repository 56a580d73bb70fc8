"""The skills of a run one by one: a table, figures, trajectories; of robots poses and video.

Everything comes from the roll-outs that `comsd evaluate` measures.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comsd.config import choose
from comsd.envs.maze import MAZES
from comsd.errors import InputError
from comsd.evaluation.base import Options, untrained_policy
from comsd.evaluation.maze import draw_maze
from comsd.evaluation.metrics import Interval, mean_states, travel
from comsd.evaluation.pictures import png_of
from comsd.evaluation.rollouts import Floats, Rollouts
from comsd.evaluation.skills import RobotEvaluator, SkillEvaluator
from comsd.files import Folder
from comsd.skill_sets import SWEEPS, labels, sweep_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
ROBOT_MEASURES = ("height", "speed", "spin")


@dataclass(frozen=True)
class SkillFigures:
    """One skill: a line of skills.csv. Means over starts; None where it is unknown."""

    sweep: str
    skill: str
    akd: float
    akd_sd: float  # over starts
    travel: float | None  # from start to end, in a straight line
    height: float | None  # of a robot's torso, m; mean over the roll-out, as the next two
    speed: float | None  # forwards, m/s
    spin: float | None  # in `Analysis.spin_unit`


@dataclass(frozen=True)
class Analysis:
    """The skills of a run."""

    step: int  # of the checkpoint
    starts: int  # per skill
    steps: int  # of each roll-out
    usual: bool  # with no option but those of the run: only these are averaged over seeds
    metrics: dict[str, float]
    intervals: dict[str, Interval]
    untrained: dict[str, float]
    random: dict[str, float]
    skills: list[SkillFigures]
    spin_unit: str | None
    files: dict[str, Path]

    def to_json(self) -> dict[str, Any]:
        files = {name: str(path) for name, path in self.files.items()}
        return dataclasses.asdict(self) | {"files": files}


def describe(
    sweep: str, names: list[str], rollouts: Rollouts, active: Floats
) -> list[SkillFigures]:
    """A line per skill of a sweep, from its roll-outs and their AKDs (skills, starts)."""
    columns: list[list[Any]] = [names, active.mean(1).tolist(), active.std(1, ddof=1).tolist()]
    if rollouts.positions is None:
        columns.append([None] * len(names))
    else:
        columns.append(travel(rollouts).mean(1).tolist())
    for name in ROBOT_MEASURES:
        values = rollouts.watched.get(name)
        unknown = [None] * len(names)
        columns.append(unknown if values is None else rollouts.mean(values).mean(1).tolist())
    return [SkillFigures(sweep, *row) for row in zip(*columns, strict=True)]


def analyse_skills(
    evaluator: SkillEvaluator,
    folder: Folder,
    sweep: str,
    video: bool,
    report: Callable[[str], None],
) -> Analysis:
    """Metrics of all sweeps; one of them drawn as trajectories and, of a robot, poses or video."""
    from comsd.analysis.figure import SweepFigures, draw_analysis  # slow to import

    run, robot = evaluator.run, isinstance(evaluator, RobotEvaluator)
    choose("sweep", sweep, {name: SWEEPS[name] for name in evaluator.sweeps})
    if video and not robot:
        raise InputError("video is for our robots; trajectories.png shows where skills lead")
    if isinstance(evaluator, RobotEvaluator):
        evaluator.motion = True
    measured, seen = evaluator.measure(run.policy), evaluator.observe(run.policy)
    baselines = evaluator.baseline(untrained_policy(run)), evaluator.baseline(None)
    names = {name: labels(run.space, name, skills) for name, skills in evaluator.sweeps.items()}
    titles = {n: sweep_title(run.space, n, skills) for n, skills in evaluator.sweeps.items()}
    rows: list[SkillFigures] = []
    drawn: dict[str, SweepFigures] = {}
    for name, rollouts in seen.sweeps.items():
        rows += describe(name, names[name], rollouts, seen.akd[name])
        drawn[name] = SweepFigures(titles[name], names[name], seen.akd[name], mean_states(rollouts))

    s = run.config.run
    at, starts = evaluator.seed_and_step, evaluator.starts
    title = f"{s.method} on {s.env}, {at}; {starts} starts per skill"
    summary = draw_analysis(drawn, seen.flags, measured.values, title)
    folder.replace("skills.csv", as_csv(rows))
    folder.replace("analysis.png", png_of(summary, DPI))
    trajectories = draw_paths(evaluator, sweep, f"{title}: {titles[sweep]}")
    folder.replace("trajectories.png", png_of(trajectories, DPI))
    written = ["skills.csv", "analysis.png", "trajectories.png", "analysis.json"]
    files, spin_unit = {name: folder.path / name for name in written}, None
    if robot:
        shown = seen.sweeps[sweep], names[sweep], seen.akd[sweep], f"{title}: {titles[sweep]}"
        spin_unit = draw_robot(run.spec.name, *shown, folder, files, report if video else None)
    analysis = Analysis(
        run.used_step,
        evaluator.starts,
        evaluator.steps,
        evaluator.options == Options(),
        *measured,
        *baselines,
        rows,
        spin_unit,
        files,
    )
    folder.write_sealed("analysis.json", analysis.to_json())
    return analysis


def draw_paths(evaluator: SkillEvaluator, sweep: str, title: str) -> Figure:
    """Where the skills of a sweep lead."""
    from matplotlib.figure import Figure  # slow to import

    run = evaluator.run
    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.add_subplot()
    evaluator.draw_trajectories(axes, run.policy, sweep)
    if run.spec.families[0] == "maze":
        draw_maze(axes, MAZES[run.spec.name.removeprefix("maze-")])
    axes.set_title("")  # the trajectories' own, in the middle
    axes.set_title(title, fontsize=11, loc="left")
    return figure


def draw_robot(
    name: str,
    rollouts: Rollouts,
    labels: list[str],
    active: Floats,
    title: str,
    folder: Folder,
    files: dict[str, Path],
    report: Callable[[str], None] | None,
    film_name: str = "skills",
) -> str:
    """The poses of a robot from its first start; a video, too, if there is somebody to report to.

    Adds to `files`; returns the unit of spin.
    """
    from comsd.analysis.poses import control_step, draw_strips  # slow to import
    from comsd.analysis.video import write_video
    from comsd.envs.robots import load_robot

    robot, qpos = load_robot(name), rollouts.watched["qpos"][:, 0]
    strips = draw_strips(robot, qpos, labels, active, title)
    files["strips.png"] = folder.path / "strips.png"
    folder.replace("strips.png", png_of(strips, DPI))
    if report:
        seconds = control_step(robot)
        film = write_video(robot.name, qpos, labels, seconds, folder, report, film_name)
        files[film.name] = film
    return robot.spin_unit


def as_csv(rows: Sequence[Any]) -> bytes:
    """Of dataclasses, without the columns of which nothing is known."""
    table = [dataclasses.asdict(row) for row in rows]
    text = io.StringIO(newline="")
    names = [name for name in table[0] if any(row[name] is not None for row in table)]
    writer = csv.DictWriter(text, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue().encode()
