"""Does it learn? Minutes each; run by `make test-slow`."""

from __future__ import annotations

from pathlib import Path

import pytest

import comsd
from comsd.evaluation.maze import CLAIMS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("skills", [6, 10])
def test_comsd_reaches_the_papers_claim(skills: int, tmp_path: Path) -> None:
    """A seed that no published figure uses, 200 cycles."""
    run = comsd.pretrain(
        "comsd",
        env="maze-tree",
        preset="lite",
        skills=skills,
        seed=1000,
        steps=500_000,
        run=tmp_path / "run",
    )
    figures = comsd.evaluate(run).metrics
    assert {n: figures[n] for n, b in CLAIMS[skills].items() if figures[n] < b} == {}


def test_without_the_diversity_reward_skills_are_harder_to_tell_apart(tmp_path: Path) -> None:
    figures = {}
    for diversity in (True, False):
        run = comsd.pretrain(
            "comsd",
            env="maze-tree",
            preset="lite",
            skills=10,
            seed=1001,
            steps=375_000,
            run=tmp_path / str(diversity),
            method={"diversity": diversity},
        )
        figures[diversity] = comsd.evaluate(run).metrics
    for name in ("identification", "end_information"):
        assert figures[True][name] > figures[False][name] + 0.05
