"""The picture of an adapted agent's episodes: reward over time, and which skill acted when."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from comsd.agents.dqn import GreedyPolicy
from comsd.evaluation.rollouts import Floats, Rollouts
from comsd.runs import Run

COLOURS = ("#8d99a6", "#e1812c", "#3b6ea8")  # what it began with, a skill alone, what has learned
SHADES = ["#3b6ea8", "#e1812c", "#6b9f4b", "#d1495b", "#7b5ea7", "#3fb3b3", "#e8c547", "#8c564b"]
SHADES += ["#d5d9dd"]
SMOOTHED = 50  # steps of the moving mean of rewards
EPISODES = 8  # rows of the timeline
NAMED = 8  # candidates with a colour of their own, those that act most


def draw_episodes(run: Run, seen: dict[str, Rollouts], title: str) -> Figure:
    learned = [*seen.values()][-1]
    chosen = learned.watched.get("skill")
    figure = Figure(figsize=(11, 6.2 if chosen is not None else 3.6), layout="constrained")
    figure.suptitle(title, fontsize=12, x=0.012, ha="left")
    ratios = [1.5, 1] if chosen is not None else [1]
    panels = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios, squeeze=False)[:, 0]
    draw_rewards(panels[0], seen)
    if chosen is not None:
        draw_choices(panels[1], run, chosen[0], learned.valid[0])
    panels[-1].set_xlabel("step of the episode")
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    return figure


def draw_rewards(axes: Axes, seen: dict[str, Rollouts]) -> None:
    """The moving mean of all episodes, with a standard deviation over them."""
    colours = COLOURS if len(seen) == len(COLOURS) else (COLOURS[0], COLOURS[-1])
    for (name, rollouts), colour in zip(seen.items(), colours, strict=True):
        assert rollouts.reward is not None
        reward = smoothed(rollouts.reward[0])
        mean, spread = reward.mean(0), reward.std(0)
        returns = rollouts.reward.sum(2)[0]
        label = f"{name}: return {returns.mean():.0f} ± {returns.std():.0f}"
        at = np.arange(len(mean))
        axes.plot(at, mean, color=colour, linewidth=1.8, label=label)
        low, high = mean - spread, mean + spread
        axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
    if min(rollouts.reward.min() for rollouts in seen.values() if rollouts.reward is not None) >= 0:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(f"reward, mean of {SMOOTHED} steps", fontsize=9)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))


def smoothed(values: Floats) -> Floats:
    """The mean of each step and those before it, at most SMOOTHED; (episodes, time)."""
    total = np.cumsum(values, 1, dtype=np.float64)
    total[:, SMOOTHED:] -= total[:, :-SMOOTHED].copy()
    return total / np.minimum(np.arange(1, values.shape[1] + 1), SMOOTHED)


def draw_choices(axes: Axes, run: Run, skill: Floats, valid: NDArray[np.bool_]) -> None:
    """A row per episode; a colour per candidate, or that of the flag."""
    rows = min(EPISODES, len(skill))
    skill, valid = skill[:rows], valid[:rows]
    axes.set_yticks(range(rows), [str(i + 1) for i in range(rows)])
    axes.set_ylabel("episode", fontsize=9)
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
    if isinstance(policy := run.policy, GreedyPolicy):
        candidates = policy.candidates.cpu().numpy()
        index = (skill[:, :, None] == candidates).all(-1).argmax(-1)
        count = np.bincount(index[valid], minlength=len(candidates))
        most = np.argsort(-count, kind="stable")
        rank = np.argsort(most)[index].clip(max=NAMED)  # the others share the last colour
        shown = np.ma.masked_where(~valid, rank)
        axes.imshow(shown, cmap=ListedColormap(SHADES), vmin=-0.5, vmax=NAMED + 0.5, **style)
        for i, shade in zip(most, SHADES[:NAMED], strict=False):
            if count[i]:
                share = f"candidate {i}: {count[i] / count.sum():.0%} of the time"
                axes.plot([], [], "s", color=shade, label=share)
        if (rest := count[most[NAMED:]]).any():
            share = f"{(rest > 0).sum()} others: {rest.sum() / count.sum():.0%}"
            axes.plot([], [], "s", color=SHADES[NAMED], label=share)
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1.05))
        axes.set_title("which skill acts when, a colour per candidate", fontsize=10)
        return
    assert run.source is not None
    flag = run.source.space.flag(torch.from_numpy(skill.copy())).numpy()
    shown = axes.imshow(np.ma.masked_where(~valid, flag), cmap="viridis", vmin=0, vmax=1, **style)
    axes.figure.colorbar(shown, ax=axes, label="flag of the skill", pad=0.01)
    axes.set_title("which skill acts when, by its flag", fontsize=10)
