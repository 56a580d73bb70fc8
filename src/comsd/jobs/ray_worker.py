"""What runs on the nodes of a Ray cluster: jobs as processes, and the board they report to."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from comsd.files import Folder
from comsd.jobs import child
from comsd.jobs.carry import Increment, Sender, Store, policy, receive, whole
from comsd.jobs.executor import Status, read_status
from comsd.jobs.job import Job

BEAT = 1.0  # seconds between reports of a job
POLL_SECONDS = 0.1  # seconds between looks at its process
NODE_DIR = "COMSD_NODE_DIR"  # where a node keeps runs if it does not see the directory of the plan


@dataclass(frozen=True)
class Order:
    """A job with all a node needs to carry it out."""

    job: Job
    root: str  # the directory of the plan, as the driver sees it
    token: str  # in its file `shared` if a node sees the same directory
    carry: str  # auto, objects, or the URL of a store
    start: list[str]  # arguments of `comsd` with {root} in place of the directory
    resume: list[str]
    user_files: dict[str, tuple[str, bytes]]  # by path on the driver's machine: kind, content


class Board:
    """An actor beside the driver: takes reports, receives run directories, hands them out."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self.reports: dict[str, Status] = {}
        self.stopping = False

    def beat(self, place: str, status: Status) -> bool:
        """Take a report; should the job stop?"""
        self.reports[place] = status
        return self.stopping

    def statuses(self) -> dict[str, Status]:
        return self.reports

    def forget(self, place: str) -> None:
        """A job that has ended, on whichever node, and may wait for another."""
        self.reports.pop(place, None)

    def stop(self) -> None:
        self.stopping = True

    def deliver(self, place: str, increment: Increment) -> None:
        receive(self.root / place, increment)

    def deliver_log(self, name: str, content: bytes) -> None:
        with Folder(self.root, "logs").append(name) as file:
            file.write(content)

    def hand_out(self, place: str) -> Increment:
        return whole(self.root / place)

    def hand_out_policy(self, place: str) -> Increment:
        return policy(self.root / place)


class Carrier:
    """Keeps the run directory of a job on this node, and the plan's, the same."""

    def __init__(self, order: Order, board: Any, get: Any) -> None:
        self.order, self.board, self.get = order, board, get
        self.store = Store(order.carry) if "://" in order.carry else None
        self.root = Path(tempfile.mkdtemp(prefix="comsd-", dir=os.environ.get(NODE_DIR)))
        self.place = order.job.place
        self.sender = Sender(self.root / self.place)
        self.carried = ""
        self.logged = 0

    def fetch(self) -> None:
        """What the job goes on from."""
        (self.root / "logs").mkdir()
        job = self.order.job
        if job.needs is not None:
            receive(self.root / job.needs, self.get(self.board.hand_out_policy.remote(job.needs)))
        if job.stage != "analyse":
            if self.store is not None:
                self.store.pull(job.place, self.root / job.place)
            if not (self.root / job.place).exists():
                receive(self.root / job.place, self.get(self.board.hand_out.remote(job.place)))
        self.sender.increment()  # what is there need not be sent back
        self.carried = self.sender.newest()

    def send(self, *, end: bool = False) -> None:
        """If there is a new checkpoint; at the end, whatever is new."""
        newest = self.sender.newest()
        if not end and newest == self.carried:
            return
        self.carried = newest
        increment = self.sender.increment()
        if increment.files and self.store is not None:
            self.store.push(self.place, increment)
        elif increment.files:
            self.get(self.board.deliver.remote(self.place, increment))
        log = self.order.job.log(self.root)
        with log.open("rb") as file:
            file.seek(self.logged)
            content = file.read()
        self.logged += len(content)
        self.get(self.board.deliver_log.remote(log.name, content))

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def sees(order: Order) -> bool:
    """Is the directory of the plan on this node?"""
    try:
        return (Path(order.root) / "shared").read_text() == order.token
    except OSError:
        return False


@contextmanager
def file_options(order: Order) -> Iterator[list[str]]:
    """The files of the user's methods and environments on this node."""
    options: list[str] = []
    with tempfile.TemporaryDirectory(prefix="comsd-files-") as folder:
        for i, (path, (kind, content)) in enumerate(order.user_files.items()):
            file = Path(path)
            if not file.exists():
                file = Path(folder) / str(i) / file.name
                file.parent.mkdir()
                file.write_bytes(content)
            options += [f"--{kind}-file", str(file)]
        yield options


def run_job(order: Order, board: Any) -> int:
    """A Ray task: the exit code of the job, which saves itself when the board or this one ends."""
    get = import_module("ray").get
    carrier = None
    if order.carry != "auto" or not sees(order):
        carrier = Carrier(order, board, get)
    root = carrier.root if carrier else Path(order.root)
    try:
        if carrier is not None:
            carrier.fetch()
        with file_options(order) as options:
            code = supervise(order, root, options, board, carrier, get)
        if carrier is not None:
            carrier.send(end=True)
        return code
    finally:
        if carrier is not None:
            carrier.remove()


def supervise(
    order: Order, root: Path, options: list[str], board: Any, carrier: Carrier | None, get: Any
) -> int:
    job, host = order.job, socket.gethostname()
    begun = (root / job.place / "config.json").exists()
    argv = [word.replace("{root}", str(root)) for word in (order.resume if begun else order.start)]
    log = job.log(root)
    with Folder(root, "logs").append(log.name) as file:
        process = subprocess.Popen(
            child.argv(*argv, *options),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    asked, beaten = False, 0.0
    try:
        while (code := process.poll()) is None:
            time.sleep(POLL_SECONDS)
            if time.monotonic() - beaten < BEAT:
                continue
            beaten = time.monotonic()
            if get(board.beat.remote(job.place, read_status(log, host))) and not asked:
                asked = True
                process.terminate()
            if carrier is not None:
                carrier.send()
        return code
    finally:  # the board is gone with its driver, or the task is cancelled
        if process.poll() is None:
            if not asked:
                process.terminate()
            process.wait()
