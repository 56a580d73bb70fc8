"""Pictures of what skills do: trajectories coloured by skill, activity with its spread."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from comsd.evaluation.metrics import flag_metrics
from comsd.evaluation.rollouts import Floats, Rollouts
from comsd.skill_sets import FLAGS
from comsd.skills import OneHot, SkillSpace, Sphere

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colour = tuple[float, ...]

FLAT = 0.15  # height over width below which a trajectory is drawn against time
ACTIVE = "#d1495b"
QUIET = "#8d99a6"
GOLDEN = 0.618034  # multiples of it, modulo 1, are far apart


def png_of(figure: Figure, dpi: int) -> bytes:
    """The same bytes for the same figure."""
    content = io.BytesIO()
    figure.savefig(content, dpi=dpi, format="png", metadata={"Software": None})
    return content.getvalue()


def skill_colours(n: int) -> list[Colour]:
    """Distinct ones: neighbours differ, and so do the first few of many."""
    import matplotlib  # slow to import

    if n <= 20:  # the ten strong ones of a palette, which integers select, then the ten light ones
        return [matplotlib.colormaps["tab20"](2 * i % 20 + i // 10) for i in range(n)]
    return [matplotlib.colormaps["turbo"](i * GOLDEN % 1) for i in range(n)]


def sweep_colours(space: SkillSpace, sweep: str, skills: Tensor) -> list[Colour]:
    """Of the skills of a sweep: a scale for those in an order, which is a circle on a sphere.

    One of separate skills has the same colour in every sweep.
    """
    import matplotlib  # slow to import
    from matplotlib.colors import hsv_to_rgb

    n = len(skills)
    if isinstance(space, OneHot):
        colours = skill_colours(space.dim)
        return [colours[i] for i in space.index(skills).tolist()]
    if sweep == "random":
        return skill_colours(n)
    if isinstance(space, Sphere):
        return [tuple(hsv_to_rgb((i / n, 1, 0.88))) for i in range(n)]
    return [tuple(c) for c in matplotlib.colormaps["viridis"](np.linspace(0, 0.95, n))]


def principal_plane(rollouts: Rollouts) -> Floats:
    """(skills, starts, 1 + time, 2): states in the plane in which they spread most.

    A state of one number is the first coordinate.
    """
    states = rollouts.obs[rollouts.valid].astype(np.float64)
    centre, scale = states.mean(0), states.std(0) + 1e-8
    if states.shape[1] == 1:
        plane = np.concatenate([rollouts.obs, np.zeros_like(rollouts.obs)], -1)
    else:
        _, directions = np.linalg.eigh(np.cov(((states - centre) / scale).T))
        plane = ((rollouts.obs - centre) / scale) @ directions[:, :-3:-1]
    return np.concatenate([plane[:, :, :1], plane], 2)


def draw_trajectories(
    axes: Axes,
    rollouts: Rollouts,
    names: Sequence[str],
    colours: Sequence[Colour],
    entries: tuple[str, str],
) -> None:
    """One colour per skill, a dot where a roll-out ends; entries: names of the positions' two.

    Bodies that hardly leave a line are drawn against time; where no position is known, states in
    the plane of their first two principal components, or against time if they are one number.
    """
    from matplotlib.collections import LineCollection  # slow to import

    known = rollouts.positions is not None
    if not known:
        rollouts = Rollouts(rollouts.obs, rollouts.length, principal_plane(rollouts))
    tracks = rollouts.tracks()
    spread = np.ptp(np.concatenate([t for skill in tracks for t in skill]), axis=0)
    single = not known and rollouts.obs.shape[-1] == 1
    against_time = single or (known and spread[1] < FLAT * spread[0])
    if against_time:
        tracks = [[np.stack([t[:, 0], np.arange(len(t))], 1) for t in skill] for skill in tracks]
    alpha = max(0.25, 0.8 / np.sqrt(rollouts.length.shape[1]))
    for skill, colour, name in zip(tracks, colours, names, strict=True):
        axes.add_collection(LineCollection(skill, colors=[colour], alpha=alpha, linewidths=1.1))
        ends = np.array([t[-1] for t in skill])
        axes.scatter(*ends.T, s=16, color=colour, zorder=3, linewidths=0.4, edgecolors="white")
        axes.plot([], [], color=colour, linewidth=2.5, label=name)
    axes.autoscale_view()
    if not known:
        entries = "state" if single else "first principal component of the states", "second"
    axes.set_xlabel(entries[0])
    axes.set_ylabel("steps" if against_time else entries[1])
    if known and not against_time:
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_title("trajectories, a colour per skill", fontsize=10)
    axes.grid(color="#e6e9ec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_activity(axes: Axes, active: Floats) -> None:
    """A(f) with its interval, a thin line for each skill; AKDs (flags, skills, starts)."""
    measured = flag_metrics(active)
    names = [f"activity_{f:g}" for f in FLAGS]
    means = [measured.values[name] for name in names]
    axes.plot(FLAGS, active.mean(2), color=QUIET, linewidth=0.8, alpha=0.55)
    axes.plot(FLAGS, means, "o-", color=ACTIVE, linewidth=2.2, markersize=5)
    title = f"activity along the flag, rho = {measured.values['activity_rho']:.2f}"
    if measured.intervals:
        low, high = np.array([measured.intervals[name] for name in names]).T
        axes.fill_between(FLAGS, low, high, color=ACTIVE, alpha=0.2, linewidth=0)
        title += " [{:.2f}, {:.2f}]".format(*measured.intervals["activity_rho"])
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("flag f, the first coordinate of the skill")
    axes.set_ylabel("A(f): mean AKD of random skills; thin: one skill", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def draw_bars(axes: Axes, names: Sequence[str], colours: Sequence[Colour], active: Floats) -> None:
    """The AKD of each skill, (skills, starts): mean and standard deviation over starts."""
    at = np.arange(len(names))
    spread = active.std(1, ddof=1) if active.shape[1] > 1 else None
    style = {"ecolor": "#444444", "capsize": 2, "error_kw": {"linewidth": 0.9}}
    axes.bar(at, active.mean(1), yerr=spread, color=colours, alpha=0.85, width=0.75, **style)
    axes.set_xticks(at, names, rotation=35, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("AKD: how active the skill is")
    axes.set_title("activity of each skill, SD over starts", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
