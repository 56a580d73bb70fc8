"""The paper's figure of behaviours for one run: activity of each skill, distances between them.

Bars of AKD per skill and sweep above, with their spread over starts, and activity along the flag;
maximum, range and variance, the MS-coverage and the mean states below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from comsd.evaluation.metrics import MEAN_NEIGHBOURS
from comsd.evaluation.pictures import draw_activity
from comsd.evaluation.rollouts import Floats

COLOURS = {"constant": "#3b6ea8", "flag": "#e1812c", "random": "#6b9f4b"}
MARKERS = {"constant": "o", "flag": "s", "random": "^"}
SUMMARIES = {  # the paper's names: our metrics
    "AKD maximum": "akd_max",
    "AKD range": "akd_range",
    "AKD variance": "akd_variance",
    "MS-coverage": f"ms_coverage{MEAN_NEIGHBOURS[0]}",
}
AXIS = {"c =": "c of the skill (c, ..., c)", "z1 =": "first coordinate of the skill, others 0.5"}


@dataclass(frozen=True)
class SweepFigures:
    """The data of one sweep."""

    title: str
    labels: list[str]
    akd: Floats  # (skills, starts)
    means: Floats  # (skills, O): the mean states


def draw_analysis(
    sweeps: dict[str, SweepFigures], flags: Floats | None, metrics: dict[str, float], title: str
) -> Figure:
    """flags: AKDs (flags, skills, starts) along the flag, if there is one."""
    along = flags is not None
    figure = Figure(
        figsize=(12 + 3 * along, 6.2), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    )
    figure.suptitle(title, fontsize=12, x=0.012, ha="left")
    rows = figure.add_gridspec(2, 1, height_ratios=(1, 1.15))
    upper, lower = figure.add_subfigure(rows[0]), figure.add_subfigure(rows[1])
    panels = upper.subplots(1, len(sweeps) + along, sharey=True, squeeze=False)[0]
    for axes, (name, sweep) in zip(panels, sweeps.items(), strict=False):
        draw_sweep(axes, name, sweep)
    if flags is not None:
        draw_activity(panels[-1], flags)
        panels[-1].set_ylabel("")
    panels[0].set_ylabel("AKD: how active the skill is")
    summaries = {
        name: key  # none with fewer skills than neighbours
        for name, key in SUMMARIES.items()
        if all(f"{key}_{sweep}" in metrics for sweep in sweeps)
    }
    *bars, scatter = lower.subplots(
        1, len(summaries) + 1, width_ratios=[1] * len(summaries) + [2.4], squeeze=False
    )[0]
    for axes, (name, key) in zip(bars, summaries.items(), strict=True):
        draw_summary(axes, name, sweeps, [metrics[f"{key}_{sweep}"] for sweep in sweeps])
    draw_means(scatter, sweeps)
    for axes in (*panels, *bars, scatter):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    return figure


def draw_sweep(axes: Axes, name: str, sweep: SweepFigures) -> None:
    """A bar per skill, a point per start. Random skills have no order: the most active first."""
    akd = sweep.akd.mean(1)
    order = np.argsort(-akd) if name == "random" else np.arange(len(akd))
    at = np.arange(len(order))
    axes.bar(at, akd[order], color=COLOURS[name], width=0.75, alpha=0.85)
    shift = np.linspace(-0.22, 0.22, sweep.akd.shape[1])
    axes.scatter(at[:, None] + shift, sweep.akd[order], 3, color="#30363c", linewidths=0, zorder=3)
    # The common start of all labels up to their last space: `c = ` of `c = 0.1`, `c = 0.2`.
    starts = {label[: label.rfind(" ") + 1] for label in sweep.labels}
    shared = starts.pop() if len(starts) == 1 else ""
    axes.set_xticks(at, [sweep.labels[i].removeprefix(shared) for i in order])
    axes.set_xlabel(AXIS.get(shared.strip(), "skill"), fontsize=9)
    axes.set_title(sweep.title, fontsize=10)


def short(sweep: SweepFigures) -> str:
    return sweep.title.removesuffix(" sweep")


def draw_summary(
    axes: Axes, title: str, sweeps: dict[str, SweepFigures], values: list[float]
) -> None:
    at, names = np.arange(len(sweeps)), [short(sweep) for sweep in sweeps.values()]
    bars = axes.bar(at, values, color=[COLOURS[name] for name in sweeps], width=0.7)
    axes.bar_label(bars, fmt="%.3g", fontsize=8, padding=2)
    axes.margins(y=0.12)
    axes.set_title(title, fontsize=10)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xticks(at, names, rotation=35, ha="right", rotation_mode="anchor")


def flat(means: Floats) -> Floats:
    """States of one number (., 1) with a second that is always the same."""
    return np.concatenate([means, np.zeros_like(means)], 1)


def draw_means(axes: Axes, sweeps: dict[str, SweepFigures]) -> None:
    """The mean states in the plane in which they differ most; larger means more active."""
    means = np.concatenate([sweep.means for sweep in sweeps.values()])
    if means.shape[1] == 1:  # a state of one number
        sweeps = {name: replace(sweep, means=flat(sweep.means)) for name, sweep in sweeps.items()}
        means = flat(means)
    centre = means.mean(0)
    _, strength, directions = np.linalg.svd(means - centre, full_matrices=False)
    share = strength**2 / max((strength**2).sum(), 1e-12)
    most = max(sweep.akd.mean(1).max() for sweep in sweeps.values()) + 1e-12
    for name, sweep in sweeps.items():
        x, y = directions[:2] @ (sweep.means - centre).T
        size = 18 + 110 * sweep.akd.mean(1) / most
        style = {"color": COLOURS[name], "edgecolors": "white", "linewidths": 0.7, "alpha": 0.85}
        axes.scatter(x, y, size, marker=MARKERS[name], label=short(sweep), **style)
    axes.set_title("mean states, larger = more active", fontsize=10)
    axes.set_xlabel(f"first component ({share[0]:.0%} of variance)", fontsize=9)
    axes.set_ylabel(f"second ({share[1]:.0%})", fontsize=9)
    legend = axes.legend(frameon=False, fontsize=8, markerscale=0.8)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set(sizes=[40])
