"""A job: one run, or one analysis of a run, that a plan asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comsd import checkpoint
from comsd.errors import InputError, RunError
from comsd.files import Folder
from comsd.runs.run import Run

UNREADABLE = (RunError, InputError, OSError)  # what looking at a run may raise
UNSEALED = {"step", "metrics", "skills", "spin_unit", "files"}  # of analyses without a checksum


@dataclass(frozen=True, slots=True)
class Job:
    """A call of `comsd` whose result lies at `place` under the directory of the plan."""

    place: str  # such as finetune/walker_run/comsd-1
    stage: str  # pretrain, finetune, combine, scratch or analyse
    env: str
    arm: str  # the method or its variant, in directories and tables
    method: str
    seed: int
    preset: str
    needs: str | None = None  # the place of the run it starts from
    options: tuple[str, ...] = ()
    steps: int | None = None  # to which it is trained [the preset's]
    pixels: bool = False  # observes images

    def start_command(self, root: Path) -> list[str]:
        """The arguments of `comsd` that begin it."""
        source = str(root / str(self.needs))
        if self.stage == "analyse":
            return ["analyse", source]
        if self.stage == "pretrain":
            argv = ["pretrain", self.method, "--env", self.env, "--preset", self.preset]
        elif self.stage == "scratch":
            argv = ["finetune", "--scratch", "--task", self.env, "--preset", self.preset]
        else:
            argv = [self.stage, source, "--task", self.env]
        argv += ["--seed", str(self.seed), "--run", str(root / self.place), *self.options]
        return [*argv, "--steps", str(self.steps)] if self.steps else argv

    def resume_command(self, root: Path) -> list[str]:
        """The arguments of `comsd` that continue it, once its run exists."""
        if self.stage == "analyse":
            return self.start_command(root)
        argv = ["resume", str(root / self.place)]
        return [*argv, "--steps", str(self.steps)] if self.steps else argv

    def command(self, root: Path) -> list[str]:
        begun = self.run(root) is not None
        return self.resume_command(root) if begun else self.start_command(root)

    def folder(self, root: Path) -> Folder:
        """Where its result lies: no link below the directory of the plan is followed."""
        return Folder(root, *self.place.split("/"))

    def run(self, root: Path) -> Run | None:
        """Its run, once it has one."""
        begun = (root / self.place / "config.json").exists()
        return Run(self.folder(root)) if begun else None

    def finished(self, root: Path) -> bool:
        if self.stage == "analyse":
            return read_analysis((root / self.place).parent, usual=True) is not None
        run = self.run(root)
        if run is None or self.steps is None or run.config.run.steps == self.steps:
            return run is not None and run.finished
        return run.config.run.steps > self.steps and run.reached >= self.steps

    def reached(self, root: Path) -> int:
        """The step of its newest checkpoint."""
        places = checkpoint.found(self.folder(root) / "checkpoints")
        return max((int(place.name) for place in places), default=0)

    def in_use(self, root: Path) -> bool:
        """Does another process write to it?"""
        run = self.run(root)
        return run is not None and run.in_use

    def log(self, root: Path) -> Path:
        return root / "logs" / f"{self.place.replace('/', '-')}.log"


def read_analysis(path: Path, *, usual: bool = False) -> dict[str, Any] | None:
    """The result of `comsd analyse` for a run: of its last step, from several starts.

    usual: and from as many as the run's settings say, not those of a quick look.
    """
    try:
        analysis = (Folder(path) / "analysis").read_sealed("analysis.json", UNSEALED)
        numbers = {str(k): float(x) for k, x in analysis["metrics"].items()}
        last = analysis["step"] >= Run(path).config.run.steps
        once = analysis["starts"] < 2  # per skill: that is no measurement
        other = usual and not analysis.get("usual", True)
    except (OSError, RunError, LookupError, TypeError, ValueError, AttributeError):
        return None  # there is none, or it is damaged: it can be made again
    return {**analysis, "metrics": numbers} if last and not once and not other else None
