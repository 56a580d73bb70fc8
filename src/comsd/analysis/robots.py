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

from comsd import checkpoint
from comsd.config import choose
from comsd.errors import InputError
from comsd.evaluation.metrics import MEAN_NEIGHBOURS, SWEEPS, akd, skill_sweeps, sweep_metrics
from comsd.runs import Run
from comsd.skills import Box, OneHot, SkillSpace, Sphere

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from comsd.analysis.motion import Motion

DPI = 150
SUMMARIES = {  # the paper's names: our metrics
    "AKD maximum": "akd_max",
    "AKD range": "akd_range",
    "AKD variance": "akd_variance",
    "MS-coverage": f"ms_coverage{MEAN_NEIGHBOURS[0]}",
}


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
        return {
            **dataclasses.asdict(self),
            "files": {name: str(path) for name, path in self.files.items()},
        }


def labels(space: SkillSpace, sweep: str, skills: Tensor) -> list[str]:
    """A short name for each skill of a sweep."""
    if isinstance(space, OneHot):
        return [f"skill {int(i)}" for i in space.index(skills)]
    if sweep == "random":
        return [f"random {i}" for i in range(1, len(skills) + 1)]
    if isinstance(space, Sphere):
        return [f"angle {360 * i / len(skills):.0f}°" for i in range(len(skills))]
    name = "z1" if sweep == "flag" else "c"
    assert isinstance(space, Box)
    return [f"{name} = {z:.2g}" for z in skills[:, 0].tolist()]


def describe(sweep: str, names: list[str], motion: Motion) -> list[SkillFigures]:
    activity = akd(motion.states).tolist()
    means = [x.mean(1).tolist() for x in (motion.height, motion.speed, motion.spin)]
    return [SkillFigures(sweep, *row) for row in zip(names, activity, *means, strict=True)]


def analyse_robot(
    run: Run, folder: Path, sweep: str, video: bool, report: Callable[[str], None]
) -> Analysis:
    """Metrics of all sweeps; one of them drawn as strips and, if asked for, as a video."""
    from comsd.analysis.figure import SweepFigures, draw_analysis  # slow to import
    from comsd.analysis.motion import skill_motion
    from comsd.analysis.strips import control_step, draw_strips
    from comsd.analysis.video import write_video
    from comsd.envs.robots import load_robot

    robot, policy, sweeps = load_robot(run.spec.name), run.policy, skill_sweeps(run.space)
    choose("sweep", sweep, {name: SWEEPS[name] for name in sweeps})
    make_folder(folder)
    motions = {name: skill_motion(robot.name, policy, skills) for name, skills in sweeps.items()}
    names = {name: labels(run.space, name, skills) for name, skills in sweeps.items()}
    metrics: dict[str, float] = {}
    rows: list[SkillFigures] = []
    drawn: dict[str, SweepFigures] = {}
    for name, motion in motions.items():
        values, table = sweep_metrics(name, motion.states), describe(name, names[name], motion)
        activity = np.array([row.akd for row in table])
        keys = {title: f"{key}_{name}" for title, key in SUMMARIES.items()}
        summary = {title: values[key] for title, key in keys.items() if key in values}
        means = motion.states.mean(1, dtype=np.float64)
        drawn[name] = SweepFigures(names[name], activity, means, summary)
        metrics |= values
        rows += table

    s, shown = run.config.run, motions[sweep]
    title = f"{s.method} on {s.env}, seed {s.seed}"
    files = {name: folder / name for name in ("skills.csv", "analysis.png", "strips.png")}
    checkpoint.replace_file(files["skills.csv"], as_csv(rows))
    checkpoint.replace_file(files["analysis.png"], as_png(draw_analysis(drawn, title)))
    strips = draw_strips(
        robot, shown.qpos, names[sweep], drawn[sweep].akd, f"{title}: {sweep} sweep"
    )
    checkpoint.replace_file(files["strips.png"], as_png(strips))
    if video:
        film = write_video(
            robot.name, shown.qpos, names[sweep], control_step(robot), folder, report
        )
        files[film.name] = film
    files["analysis.json"] = folder / "analysis.json"
    analysis = Analysis(run.used_step, metrics, rows, robot.spin_unit, files)
    checkpoint.write_json(files["analysis.json"], analysis.to_json())
    return analysis


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"out {folder} cannot be created: {error.strerror}") from None


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
