"""Links at every place of a run directory: nothing outside of it is read, written or removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from faults.attack import SEED, ask, check, copy, snapshot, times
from faults.conftest import Count

WRITTEN = [  # that a command may create, beside all that is there
    "config.json.tmp",
    "metrics.csv.tmp",
    "lock",
    "skills.png",
    "skills.png.tmp",
    "curve.png",
    "analysis",
    "evaluation.json",
    "tensorboard",
    "source",
    "checkpoints/.tmp-900",
    "checkpoints/.tmp-damaged-000000000800",
    "checkpoints/000000000900",
    "checkpoints/000000000850",
    "checkpoints/chunks",
]


@pytest.fixture
def victim(tmp_path: Path, runs: dict[str, Path]) -> Path:
    """Files of the user, some of which look like those of a run."""
    place = tmp_path / "victim"
    place.mkdir()
    (place / "thesis.tex").write_text("years of work")
    shutil.copytree(runs["ddpg"] / "checkpoints", place / "checkpoints")
    (place / "checkpoints" / ".tmp-1").mkdir()
    (place / "checkpoints" / ".tmp-1" / "data.csv").write_text("1,2,3")
    return place


def test_no_link_is_followed(
    victim: Path, runs: dict[str, Path], tmp_path: Path, count: Count
) -> None:
    inside = [str(p.relative_to(runs["ddpg"])) for p in sorted(runs["ddpg"].rglob("*"))]
    places = sorted({*inside, *WRITTEN})
    targets = [victim / "thesis.tex", victim / "checkpoints", victim / "new", Path("/dev/zero")]
    cases = [(place, target) for place in places for target in targets]
    rng = np.random.default_rng(SEED)
    before = snapshot(victim)
    for i in sorted(rng.permutation(len(cases))[: times(8, 80)]):
        place, target = cases[i]
        run = copy(runs["ddpg"], tmp_path / "run")
        link = run / place
        if link.is_dir():
            shutil.rmtree(link)
        link.unlink(missing_ok=True)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(target)
        asked = f"{place} -> {target}"
        end = ""
        for words in (["evaluate", run], ["resume", run, "--steps", "900"], ["evaluate", run]):
            end = check(ask(*words), f"{words[0]} with {asked}")
            assert snapshot(victim) == before, f"{words[0]} with {asked}"
        count("link", end)


def test_a_directory_with_somebodys_files_is_never_a_new_run(tmp_path: Path, count: Count) -> None:
    """What a creation that was cut short leaves behind is told from what a user has there."""
    for name in ("source", "lock", "config.json.tmp", "checkpoints", "analysis", "metrics.csv"):
        for content in ("thesis.tex", "config.json", "checkpoints/data.csv"):
            place = tmp_path / f"{name}-{content.replace('/', '-')}"
            file = place / name / content
            file.parent.mkdir(parents=True)
            file.write_text("years of work")
            before = snapshot(place)
            words = "pretrain comsd --env maze-tree --preset smoke --skills 3 --run"
            assert check(ask(*words.split(), place)) == "refused"
            assert snapshot(place) == before
            count("directory of the user's as --run", "refused")
