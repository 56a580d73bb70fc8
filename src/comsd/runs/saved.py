"""What a run had learned by some step: its checkpoints and its snapshots.

A snapshot is a checkpoint of what is needed to use the skills, without optimisers and replay. It
bears the step that was asked for, and holds the one at which training had passed that.
"""

from __future__ import annotations

import warnings
from typing import Any

from comsd import checkpoint
from comsd.config import LARGEST
from comsd.errors import InputError, RunError, quoted
from comsd.files import Folder

CHECKPOINTS, SNAPSHOTS = "checkpoints", "snapshots"
SKILLS = ["agent", "method"]
SMALL = ["rule", "run"]
USED = [*SKILLS, *SMALL]  # the branches of a checkpoint that are not for training


def places(folder: Folder) -> dict[int, Folder]:
    """Of the checkpoints in a folder, by their steps."""
    return {int(place.name): folder / place.name for place in checkpoint.found(folder)}


class Saved:
    """at: the step of a snapshot or of the newest checkpoint; None: the newest that is whole."""

    def __init__(self, run: Folder, at: int | None = None) -> None:
        self.run, self.at = run, at
        self.checkpoints, self.snapshots = run / CHECKPOINTS, run / SNAPSHOTS
        self._place: Folder | None = None
        if at is not None:
            newest = sorted(places(self.checkpoints).items())[-1:]
            known = dict(newest) | places(self.snapshots)
            if at not in known:
                raise InputError(
                    f"at is {at}; allowed: {', '.join(map(str, sorted(known))) or 'none yet'} "
                    f"(the snapshots and the newest checkpoint of run {run.path})"
                )
            self._place = known[at]
        self.forget()

    def forget(self) -> None:
        """The newest is another now."""
        self._step: int | None = None
        self._small: dict[str, Any] = {}

    @property
    def reached(self) -> int:
        """The step of the newest checkpoint."""
        return max(places(self.checkpoints), default=0)

    @property
    def step(self) -> int:
        """Of training, at which what is read was saved."""
        if self._step is None:
            if self._place is None:
                self._step, state, problems = checkpoint.newest(self.checkpoints, USED)
                for problem in problems.values():
                    warnings.warn(f"{problem}; using the checkpoint before it", stacklevel=5)
            else:
                state = checkpoint.read(self._place, USED)
                self._step = self._step_in(state)
            self._small = {branch: state.get(branch, {}) for branch in SMALL}
        return self._step

    def _step_in(self, state: dict[str, Any]) -> int:
        """Snapshots hold it; checkpoints bear it."""
        run = state.get("run")
        step = run.get("step", self.at) if isinstance(run, dict) else self.at
        if not isinstance(step, int) or not 0 < step < LARGEST:
            raise RunError(f"{self.place.path / checkpoint.MANIFEST} is damaged")
        return step

    @property
    def place(self) -> Folder:
        """Where it is read from."""
        return self._place or self.checkpoints / f"{self.step:012d}"

    def read(self, branch: str) -> Any:
        place = self.place
        if branch in SMALL and self.step:  # kept: a run that is training drops older checkpoints
            return self._small[branch]
        return checkpoint.read(place, [branch]).get(branch, {})

    def has(self, branch: str) -> bool:
        """Of a published run there may be the policy alone."""
        return branch in checkpoint.read_manifest(self.place)["state"]

    def copy_skills(self, to: Folder) -> None:
        """Enough to use them elsewhere."""
        if self._place is not None:
            checkpoint.save(to, self.step, checkpoint.read(self._place, SKILLS))
            return
        try:
            checkpoint.copy(self.checkpoints, to, SKILLS)
        except RunError as error:
            again = f"`comsd resume {quoted(self.run.path)}` goes back to the checkpoint before it"
            raise RunError(f"{error}; {again}") from None
