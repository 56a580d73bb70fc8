"""Thousands of command lines with whatever a person may type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comsd.cli import COMMANDS
from comsd.envs.specs import ENVS, TASKS
from comsd.options import setting_options
from comsd.registry import METHODS
from faults.attack import SEED, ask, check, snapshot, times
from faults.conftest import Count

WORDS = [
    "", " ", "-", "--", "---", "-x", "--=", "=", "--run", "--help", "-h", "x", "0", "-1", "1",
    "2.5", "1e3", "1e400", "nan", "inf", "-inf", "10000000000000000000", str(10**400), "0x10",
    "1_000", "٣", "True", "None", "null", "cpu", "cuda", "cuda:99", "tpu", "lite", "smoke", "ppo",
    "ddpg", "box", "one-hot", "sphere", "none", "walker", "walker_run", "maze-tree", ":", "gym:",
    "gym:CartPole-v1", "../..", "/", ".", "/dev/null", "/dev/zero", "a" * 300, "\n", "\t",
    "\x1b[2J", "\u202e", "é", "\ud800", "%s", "{}", "$(touch x)", "`touch x`", "; rm", "*", "'",
    '"', "\\", "[bold]", "[/x]", "--method-file", "x.py", "--scratch", "--task", "--env",
    "comsd", "--steps", "=HYPERLINK",
]  # fmt: skip
VALUES = [word for word in WORDS if not word.startswith("--")]


def command_lines(rng: np.random.Generator, places: list[str]) -> Iterator[list[str]]:
    """Nonsense, options with odd values, and almost right commands with one change."""
    commands, methods, envs = list(COMMANDS), [*METHODS, "task"], [*ENVS, *TASKS]
    options = {
        (m, e): setting_options(m, e) for m in ("comsd", "diayn") for e in ("walker", "maze-tree")
    }

    def one(items: list[Any]) -> Any:
        return items[int(rng.integers(len(items)))]

    while True:
        kind = int(rng.integers(4))
        if kind == 0:
            yield [
                one([*commands, *WORDS]),
                *(one([*WORDS, *places]) for _ in range(rng.integers(5))),
            ]
        elif kind == 1:  # one or two settings with odd values
            (method, env), known = one(list(options.items()))
            line = [one(["pretrain", "config"]), method, "--env", env, "--preset", "smoke"]
            for option in (one(known), one(known)):
                name = one([option.name, option.off or option.name])
                line += one([[name], [name, one(VALUES)], [f"{name}={one(VALUES)}"]])
            yield [*line, "--run", one(["new", "new/run", *places])]
        elif kind == 2:  # everything named, some of it wrong
            yield [
                one(commands), one([*methods, *places]), "--env", one(envs), "--task", one(envs),
                *one([[], ["--preset", one(["smoke", "lite", "x"])], [one(WORDS)]]),
            ]  # fmt: skip
        else:
            place = one([*places, *WORDS])
            valued = [[name, one(VALUES)] for name in ("--steps", "--at", "--out")]
            more = one([[], ["--json"], *valued, [one(WORDS)]])
            yield [
                one(["evaluate", "analyse", "resume", "report", "finetune", "combine"]),
                place,
                *more,
            ]


@pytest.mark.usefixtures("untrained")
def test_no_command_line_ends_in_a_traceback(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: Count
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    places = [str(runs["ppo"]), str(mine), str(mine / "thesis.tex"), "missing"]
    before = snapshot(mine)
    lines = command_lines(np.random.default_rng(SEED), places)
    for i in range(times(150, 2100)):
        work = tmp_path / f"work-{i}"
        work.mkdir()
        monkeypatch.chdir(work)
        line = next(lines)
        if line[0] in ("reproduce", "sweep") and "--plan" not in line:
            line.append("--plan")
        count("command line", check(ask(*line), line))
        assert snapshot(mine) == before, line
