"""Reading a directory of reproduced runs: which are finished, and what each has found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from comsd import checkpoint
from comsd.encoders import PixelSettings
from comsd.errors import RunError
from comsd.files import Folder
from comsd.jobs.job import UNREADABLE, read_analysis
from comsd.reproduction.exhibits import EXHIBITS
from comsd.runs.run import Run

STAGES = ("pretrain", "finetune", "combine", "scratch")
OWN = ("run.seed", "run.threads", "run.device", "run.tensorboard", "adapt.source")  # of one run
PLAIN = re.compile(r"\w[\w.+ -]*")  # names of directories that a report shows


@dataclass(frozen=True)
class FinishedRun:
    """A run of the directory by its place <stage>/<env>/<arm>-<seed>."""

    stage: str
    env: str
    arm: str
    seed: int
    run: Run

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Its evaluations."""
        return self.run.evaluations.rows()

    @property
    def images(self) -> PixelSettings | None:
        """What it observes, if not states."""
        pixels = self.run.config.pixels
        return pixels if isinstance(pixels, PixelSettings) else None

    @property
    def drawable(self) -> bool:
        """Does it have its policy? Runs that were kept for their figures do not (keep.py)."""
        return checkpoint.has_branch(self.run.checkpoints, "agent")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """By dotted name, and of the run it starts from, too, what all seeds of an arm share."""
        return shared_settings(self.run)

    @cached_property
    def analysis(self) -> dict[str, Any] | None:
        return read_analysis(self.run.path, usual=True)


def shared_settings(run: Run) -> dict[str, Any]:
    groups = run.config.to_json().items()
    named = {f"{group}.{name}": value for group, own in groups for name, value in own.items()}
    own = {name: value for name, value in named.items() if name not in OWN}
    before = shared_settings(run.source) if run.source else {}
    return own | {f"pre-training's {name}": value for name, value in before.items()}


def find_runs(root: Path) -> tuple[list[FinishedRun], list[str]]:
    """The finished runs of one preset; the others, with the reason why they do not count."""
    finished: list[FinishedRun] = []
    excluded: list[str] = []
    for stage in STAGES:
        for config in sorted((root / stage).glob("*/*/config.json")):
            path = config.parent
            arm, _, seed = path.name.rpartition("-")
            if not arm or not seed.isdecimal():
                continue
            try:
                if not all(map(PLAIN.fullmatch, (path.name, path.parent.name))):
                    raise RunError("its name is none that comsd gives")
                run = Run(Folder(root, *path.relative_to(root).parts))
                s = run.config.run
                if (s.stage, s.seed, s.preset) != (stage, int(seed), root.name):
                    raise RunError("its config says otherwise")
                if not run.finished:
                    raise RunError("unfinished")
                found = FinishedRun(stage, path.parent.name, arm, int(seed), run)
                _ = found.rows, found.settings  # or they are damaged
                finished.append(found)
            except UNREADABLE as error:
                excluded.append(f"{path.relative_to(root)} ({error})")
    return sorted(finished, key=lambda r: (r.stage, r.env, r.arm, r.seed)), excluded


def of_one_quality(runs: list[FinishedRun]) -> tuple[list[FinishedRun], list[str]]:
    """Images of two qualities are two tasks: those of the commonest count, beside runs on states.

    The others, with the reason why not.
    """
    found = Counter(r.images.render for r in runs if r.images)
    shown = max(found, key=lambda render: found[render], default=None)
    counted = [r for r in runs if r.images is None or r.images.render == shown]
    others = [
        f"{r.stage}/{r.env}/{r.arm}-{r.seed} (pixels.render is {r.images.render}, that of most "
        f"runs {shown})"
        for r in runs
        if r.images and r.images.render != shown
    ]
    return counted, others


def commit_of(run: Run) -> str:
    return str(run.versions.get("commit", "unknown"))


def record_exhibits(folder: Folder, names: Iterable[str]) -> None:
    """These were reproduced in this directory, too."""
    folder.write_json("exhibits.json", sorted({*requested_exhibits(folder.path), *names}))


def requested_exhibits(root: Path) -> list[str]:
    """The exhibits that were reproduced in this directory; the report shows these."""
    folder = Folder(root)
    if not folder.has("exhibits.json"):
        return []
    exhibits = folder.read_json("exhibits.json")
    if not isinstance(exhibits, list) or any(str(name) not in EXHIBITS for name in exhibits):
        raise RunError(f"{root / 'exhibits.json'} is damaged: delete it to report all exhibits")
    return exhibits
