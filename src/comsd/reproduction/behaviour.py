"""What skills do, in the exhibits: which figures are shown, every run as it was measured, a figure.

All figures are those of `comsd analyse`, from several starts per skill.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from comsd.evaluation import SkillEvaluator
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.figures import from_zero, panels
from comsd.reproduction.statistics import Cell, number
from comsd.skill_sets import FLAGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINES = {"untrained": "untrained policy", "random": "random actions"}
PAPERS = {
    "akd_max_constant": "AKD maximum",
    "akd_range_constant": "AKD range",
    "akd_variance_constant": "AKD variance",
    "ms_coverage3_constant": "MS-coverage",
}
OTHER_SWEEPS = {
    "akd_max_flag": "AKD maximum, flag sweep",
    "akd_range_flag": "AKD range, flag sweep",
    "akd_range_random": "AKD range, random skills",
    "ms_coverage3_random": "MS-coverage, random skills",
}
SPREAD = {"akd_sd_random": "AKD of a skill, SD over starts"}
ALONG_THE_FLAG = {f"activity_{flag:g}": f"A({flag:g})" for flag in FLAGS}
MEASURED = {  # with intervals of their own
    **ALONG_THE_FLAG,
    "activity_rho": "rho (flag, AKD)",
    "identification": "identification",
    "held_out_auc": "held-out AUC",
    "held_out_nats": "held-out nats",
}
UNLEARNED = {f"identification_{b}": f"identification, {name}" for b, name in BASELINES.items()}
ROWS = PAPERS | OTHER_SWEEPS | SPREAD | MEASURED | UNLEARNED
DRAWN = [*PAPERS, "activity_rho", "akd_range_flag", "akd_range_random", "ms_coverage3_random"]
DRAWN += ["identification"]
PAPER = "the paper's number"
MARKS = {
    row: (mark, name)
    for row, mark, name in zip(UNLEARNED.values(), "^x", BASELINES.values(), strict=True)
}


class Measurement(NamedTuple):
    """A figure of one run, with the interval of its measurement: over skills and starts."""

    env: str
    arm: str
    seed: int
    figure: str
    value: float
    low: float | None  # 95 %
    high: float | None
    starts: int  # per skill
    steps: int  # of a roll-out

    @property
    def text(self) -> str:
        spread = "" if self.low is None else f" [{number(self.low)}, {number(self.high)}]"
        return number(self.value) + spread


def figures(analysis: dict[str, Any]) -> dict[str, float]:
    """All figures of an analysis, those of the baselines among them."""
    found = dict(analysis["metrics"])
    for baseline in BASELINES:
        if "identification" in analysis.get(baseline, {}):
            found[f"identification_{baseline}"] = float(analysis[baseline]["identification"])
    return found


def measurements(runs: list[FinishedRun]) -> list[Measurement]:
    """Run by run: seeds are the unit of replication, this is how well each was measured."""
    table: list[Measurement] = []
    for r in runs:
        if r.analysis is None:
            continue
        values, intervals = figures(r.analysis), r.analysis["intervals"]
        for metric, label in (MEASURED | UNLEARNED).items():
            if metric in values:
                low, high = intervals.get(metric, (None, None))
                made = r.analysis["starts"], r.analysis["steps"]
                who = r.env, r.arm, r.seed
                table.append(Measurement(*who, label, values[metric], low, high, *made))
    return table


def notes(table: list[Measurement]) -> list[str]:
    made = sorted({(m.starts, m.steps) for m in table})
    each = ", ".join(f"{starts} starts of {steps} steps" for starts, steps in made)
    return [f"per skill {each}"] if each else []


def meanings(rows: set[str]) -> list[str]:
    """Of the rows that are shown."""
    named = {metric: label for metric, label in ROWS.items() if metric not in ALONG_THE_FLAG}
    known = {metric: label for metric, label in named.items() if metric in SkillEvaluator.meanings}
    return [
        "AKD: mean distance of a state to its nearest others in the roll-out",
        "A(f): mean AKD of random skills with flag f",
        *(f"{row}: {SkillEvaluator.meanings[m]}" for m, row in known.items() if row in rows),
    ]


def draw(envs: list[str], arms: list[str], cells: list[Cell]) -> Figure:
    """Per robot: activity along the flag, then bars; black: what they are compared with."""
    found = {(cell.row, cell.arm): cell for cell in cells}
    shown = [env for env in envs if any(cell.row.startswith(f"{env}: ") for cell in cells)]
    figure, grid = panels(len(shown) * (len(DRAWN) + 1), (len(DRAWN) + 1) // 2, 3.3, 2.8)
    for axes, (env, metric) in zip(grid, product(shown, ["", *DRAWN]), strict=True):
        if not metric:
            draw_flags(axes, env, arms, found)
            continue
        for i, arm in enumerate(arms):
            if cell := found.get((f"{env}: {ROWS[metric]}", arm)):
                axes.bar(i, cell.mean, yerr=cell.sd, color=f"C{i}", capsize=3)
                if cell.paper_mean is not None:
                    axes.plot(i, cell.paper_mean, "k_", markersize=14, label=PAPER)
            for row, (mark, name) in MARKS.items() if metric == "identification" else ():
                if cell := found.get((f"{env}: {row}", arm)):
                    axes.plot(i, cell.mean, f"k{mark}", ms=5, label=name, clip_on=False)
        axes.set_xlim(-0.7, len(arms) - 0.3)
        if not axes.dataLim.height:  # all bars are 0
            axes.set_ylim(0, 1)
        axes.set_xticks(range(len(arms)), arms, rotation=45, ha="right", fontsize=8)
        axes.set_title(f"{env}: {ROWS[metric]}", fontsize=10)
    marks = [axes.get_legend_handles_labels() for axes in grid]
    named = {name: mark for pairs in marks for mark, name in zip(*pairs, strict=True)}
    known = [name for name in (PAPER, *BASELINES.values()) if name in named]
    if known:
        figure.legend([named[name] for name in known], known, loc="outside lower left", ncols=3)
    return figure


def draw_flags(axes: Axes, env: str, arms: list[str], found: dict[tuple[str, str], Cell]) -> None:
    """A(f), mean and standard deviation over seeds."""
    for i, arm in enumerate(arms):
        rows = {f: found.get((f"{env}: A({f:g})", arm)) for f in FLAGS}
        line = [(f, cell.mean, cell.sd or 0.0) for f, cell in rows.items() if cell]
        if line:
            x, mean, sd = np.array(line).T
            axes.errorbar(x, mean, sd, color=f"C{i}", capsize=2, marker="o", ms=3, label=arm)
    axes.set_title(f"{env}: A(f)", fontsize=10)
    axes.set(xlabel="flag", ylabel="mean AKD")
    from_zero(axes)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=7)
