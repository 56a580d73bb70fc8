"""Figures that several methods log: retrieval accuracy, means by flag."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from comsd.skills import SkillSpace
from comsd.types import Metrics

TERCILES = ("low", "mid", "high")  # of the flag


def retrieval(scores: Tensor, skill: Tensor) -> Tensor:
    """Share of rows whose skill fits a transition of that same skill best; scores (B, B)."""
    found = skill[scores.argmax(1)]
    return (found == skill).all(-1).float().mean()


def chance(skill: Tensor) -> Tensor:
    """The same share by guessing: how often two rows drawn at random have the same skill."""
    counts = skill.unique(dim=0, return_counts=True)[1]
    return (counts / len(skill)).square().sum()


def tercile(flag: Tensor) -> Tensor:
    """0, 1 or 2 per row."""
    return (flag * 3).long().clamp(0, 2)


def by_tercile(
    group: str, space: SkillSpace, skill: Tensor, terms: Mapping[str, Tensor]
) -> Metrics:
    """Means of each term where the flag is low, middle and high.

    Two one-hot skills have no middle. Where a space has skills, but this batch none, it is the
    mean of all rows: the columns of a log are those of its first line.
    """
    possible = tercile(space.flag(space.flags(100))).unique().tolist()
    third = tercile(space.flag(skill))
    rows = {TERCILES[i]: third == i for i in possible}
    return {
        f"{group}/{name}_{label}": (values[at] if bool(at.any()) else values).mean()
        for name, values in terms.items()
        for label, at in rows.items()
    }
