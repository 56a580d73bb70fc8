"""Jobs and executors whose processes end as told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comsd.jobs.executor import Ended, Status
from comsd.jobs.job import Job


@dataclass(frozen=True, slots=True)
class Scripted(Job):
    """Finished when its file exists."""

    def command(self, root: Path) -> list[str]:
        return [self.place]

    def finished(self, root: Path) -> bool:
        return (root / self.place).exists()

    def in_use(self, root: Path) -> bool:
        return False

    def reached(self, root: Path) -> int:
        return 0


def scripted(*needs: tuple[str, str | None]) -> list[Scripted]:
    who = ("pretrain", "walker", "comsd", "comsd", 1, "smoke")
    return [Scripted(place, *who, need) for place, need in needs]


class Script:
    """Exit codes by place, 0 if there are none left; None: the node is lost."""

    slots = 2

    def __init__(self, codes: dict[str, Sequence[int | None]]) -> None:
        self.codes = {place: list(given) for place, given in codes.items()}
        self.started: list[str] = []
        self.ended: list[Ended] = []
        self.stopped = 0

    def start(self, job: Job, root: Path) -> None:
        self.started.append(job.place)
        codes = self.codes.get(job.place, [])
        code = codes.pop(0) if codes else 0
        if code == 0:
            (root / job.place).touch()
        job.log(root).write_text(f"said by {job.place}\n")
        self.ended.append(Ended(job.place, code, "lost its node" if code is None else ""))

    def poll(self) -> list[Ended]:
        ended, self.ended = self.ended, []
        return ended

    def status(self) -> dict[str, Status]:
        return {}

    def stop(self) -> None:
        self.stopped += 1
