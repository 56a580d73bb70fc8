"""The runs that are attacked, and the counts of attacks that are printed at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import comsd
from comsd.runs import Run
from comsd.training.trainer import TrainingLoop

SMALL: dict[str, dict[str, Any]] = {  # seconds each, and every kind of file there is
    "ppo": {"env": "maze-tree", "preset": "smoke", "skills": 3},
    "ddpg": {
        "env": "maze-tree",
        "agent": "ddpg",
        "preset": "smoke",
        "skills": 3,
        "steps": 800,
        "checkpoint_every": 200,
        "log_every": 100,
        "evaluate_every": 400,
        "snapshots": "300",
    },
}
ROBOT: dict[str, Any] = {
    "env": "hopper",
    "preset": "smoke",
    "skills": 4,
    "steps": 400,
    "rollouts": 1,
}

Count = Callable[[str, str], None]


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Count:
    """count(attack, outcome): for the table at the end."""

    def add(attack: str, outcome: str) -> None:
        request.node.user_properties.append((attack, outcome))

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How often each attack was made and how it ended."""
    attacks: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for attack, outcome in report.user_properties:
                    attacks.setdefault(attack, Counter())[outcome] += 1
    if attacks:
        terminalreporter.section("attacks")
    for attack, outcomes in attacks.items():
        ends = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common())
        terminalreporter.line(f"{attack}: {outcomes.total()} ({ends})")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs of both backbones in the maze, each evaluated."""
    place = tmp_path_factory.mktemp("runs")
    for name, settings in SMALL.items():
        comsd.evaluate(comsd.pretrain("comsd", run=place / name, **settings))
    return {name: place / name for name in SMALL}


@pytest.fixture(scope="session")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose skills can be adapted."""
    place = tmp_path_factory.mktemp("robot") / "skills"
    comsd.pretrain("comsd", run=place, **ROBOT)
    return place


@pytest.fixture(scope="session")
def tuned(robot: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adaptation, with its own copy of the policy it started from."""
    place = tmp_path_factory.mktemp("tuned") / "run"
    return comsd.finetune(Run(robot), task="hopper_hop", run=place).path


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the first step of training: which settings train is proved elsewhere."""
    monkeypatch.setattr(TrainingLoop, "run", lambda *_, **__: None)
