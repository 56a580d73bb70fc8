"""The seam between a plan and the place where it is carried out."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from comsd.envs.foreign import IMPORTED
from comsd.errors import InputError
from comsd.files import Folder
from comsd.jobs.job import Job
from comsd.options import peek_option
from comsd.registry import LOADED, TASKS, LoadedFile
from comsd.training.logger import read_progress

HOST = socket.gethostname()
TAIL = 4096  # bytes at the end of a log in which its last line of progress is looked for
TRAINS = ("pretrain", "finetune", "combine")  # commands that take --threads and --device


class Ended(NamedTuple):
    """A job's process that is no longer there."""

    place: str
    code: int | None  # exit code; None: its node is gone or it was preempted, no fault of the job
    note: str = ""


class Status(NamedTuple):
    """How far a running job is."""

    host: str
    step: int | None = None
    steps: int | None = None
    rate: float | None = None  # steps per second

    @property
    def seconds_left(self) -> float | None:
        if self.step is None or self.steps is None or not self.rate:
            return None
        return max(self.steps - self.step, 0) / self.rate


class Executor(Protocol):
    @property
    def slots(self) -> int:
        """Jobs at a time; may change while nodes come and go."""
        ...

    def start(self, job: Job, root: Path) -> None: ...

    def poll(self) -> Iterable[Ended]:
        """The jobs that have ended since; waits a moment if there are none."""
        ...

    def status(self) -> Mapping[str, Status]:
        """Of the running jobs, by place."""
        ...

    def stop(self) -> None:
        """Let every job save itself and stop; returns when all have."""
        ...


@dataclass(frozen=True)
class Resources:
    """What each job gets, and how many run at a time."""

    cpus: int = 0  # 0: one, or more if there are fewer jobs than cores
    gpus: float = 0.0  # of one device: at 0.25 four jobs share it
    jobs: int = 0  # 0: as many as fit

    def __post_init__(self) -> None:
        for name in ("cpus", "jobs"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if not 0 <= self.gpus <= 1:
            raise InputError(f"gpus is {self.gpus:g}; it must be between 0 and 1: a run uses one")

    def arguments(
        self, argv: list[str], threads: int | None = None, *, user_files: bool = True
    ) -> list[str]:
        """The arguments of `comsd` with the threads and the device that the job has, and the
        user's packages and files.
        """
        threads = threads or self.cpus
        options: list[str] = []
        if argv[0] in TRAINS and threads > 1:
            options += ["--threads", str(threads)]
        if argv[0] in TRAINS and self.gpus:
            options += ["--device", "cuda"]
        for package in IMPORTED:
            options += ["--env-package", package]
        for path, loaded in needed_files(argv).items() if user_files else ():
            options += [f"--{loaded.kind}-file", str(path)]
        return [*argv, *options]


def needed_files(argv: list[str]) -> dict[Path, LoadedFile]:
    """The files of the user for a command; a task of ours has its own reward."""
    rewarded = peek_option(argv, "--task") in TASKS
    return {p: file for p, file in LOADED.items() if not (rewarded and file.kind == "reward")}


def open_log(log: Path) -> IO[bytes]:
    """ROOT/logs/NAME, unless it is a link."""
    return Folder(log.parent.parent, "logs").open(log.name, "rb", os.O_RDONLY)


def read_status(log: Path, host: str = HOST) -> Status:
    """From the last line of progress in the log of a job."""
    try:
        with open_log(log) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            text = file.read().decode(errors="replace")
    except (OSError, InputError):
        return Status(host)
    progress = read_progress(text)
    return Status(host, *progress) if progress else Status(host)


def last_line(log: Path) -> str:
    """What a job said last: the reason, if it failed."""
    try:
        with open_log(log) as file:
            lines = file.read().decode(errors="replace").strip().splitlines()
    except (OSError, InputError):
        return ""
    return lines[-1] if lines else ""
