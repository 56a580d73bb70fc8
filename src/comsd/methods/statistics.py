"""Figures that several methods log: retrieval accuracy, means by flag."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from comsd.types import Metrics


def retrieval(scores: Tensor, skill: Tensor) -> Tensor:
    """Share of rows whose skill fits a transition of that same skill best; scores (B, B)."""
    found = skill[scores.argmax(1)]
    return (found == skill).all(-1).float().mean()


def chance(skill: Tensor) -> Tensor:
    """The same share by guessing: how often two rows drawn at random have the same skill."""
    counts = skill.unique(dim=0, return_counts=True)[1]
    return (counts / len(skill)).square().sum()


def by_tercile(group: str, flag: Tensor, terms: Mapping[str, Tensor]) -> Metrics:
    """Means of each term where the flag is low, middle and high; of all rows if none is."""
    third = (flag * 3).long().clamp(0, 2)
    rows = {label: third == i for i, label in enumerate(("low", "mid", "high"))}
    return {
        f"{group}/{name}_{label}": (values[at] if bool(at.any()) else values).mean()
        for name, values in terms.items()
        for label, at in rows.items()
    }
