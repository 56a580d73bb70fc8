"""Jobs as tasks of a Ray cluster.

Ray places tasks by their resources and notices nodes that die; what is continued, and where, is
the scheduler's: a job that lost its node is no attempt and starts again from its last checkpoint.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from comsd.errors import InputError
from comsd.files import Folder
from comsd.jobs.carry import Store
from comsd.jobs.executor import Ended, Resources, Status, needed_files
from comsd.jobs.job import Job
from comsd.jobs.ray_cluster import connect
from comsd.jobs.ray_worker import Board, Order, run_job

WAIT = 0.5  # seconds for the next job to end
LOOK_AGAIN = 5.0  # seconds between looks at what the cluster has
STOPPING = 120.0  # seconds for all jobs to save themselves
OUT_OF_MEMORY = 137  # exit code of a process that the system killed


class RayExecutor:
    def __init__(self, resources: Resources, address: str | None, carry: str) -> None:
        """carry: how run directories reach the driver, if nodes do not see its disk."""
        if carry not in ("auto", "objects") and "://" not in carry:
            raise InputError(f"carry is {carry!r}; allowed: auto, objects, or a URL such as s3://")
        self.store = open_store(carry) if "://" in carry else None
        self.carry, self.resources = carry, resources
        self.ray = connect(address)
        self.cpus = max(1, resources.cpus)
        options = {"num_cpus": self.cpus, "num_gpus": resources.gpus, "max_retries": 0}
        self.task = self.ray.remote(**options)(run_job)
        self.token = secrets.token_hex(8)
        self.board: Any = None
        self.running: dict[Any, Job] = {}  # by reference
        self.root = Path()
        self.looked = 0.0
        self.slots = 1
        self.count_slots()

    def count_slots(self) -> None:
        """As many as the nodes that are there now have room for."""
        self.looked = time.monotonic()
        there = self.ray.cluster_resources()
        fitting = int(there.get("CPU", 0)) // self.cpus
        if self.resources.gpus:
            fitting = min(fitting, int(there.get("GPU", 0) / self.resources.gpus + 1e-9))
        self.slots = self.resources.jobs or max(1, fitting)

    def prepare(self, root: Path) -> None:
        """The board beside this process; a file by which nodes know the directory."""
        self.root = root.resolve()
        Folder(self.root).replace("shared", self.token.encode())
        here = self.ray.get_runtime_context().get_node_id()
        strategies = import_module("ray.util.scheduling_strategies")
        beside = strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        actor = self.ray.remote(num_cpus=0, max_concurrency=16, scheduling_strategy=beside)(Board)
        self.board = actor.remote(str(self.root))

    def start(self, job: Job, root: Path) -> None:
        if self.board is None:
            self.prepare(root)
        place = Path("{root}")
        files = needed_files(job.start_command(place))
        order = Order(
            job,
            str(self.root),
            self.token,
            self.carry,
            self.arguments(job.start_command(place)),
            self.arguments(job.resume_command(place)),
            {str(path): (file.kind, path.read_bytes()) for path, file in files.items()},
        )
        self.running[self.task.remote(order, self.board)] = job

    def arguments(self, argv: list[str]) -> list[str]:
        return self.resources.arguments(argv, self.cpus, user_files=False)

    def poll(self) -> list[Ended]:
        if time.monotonic() - self.looked > LOOK_AGAIN:
            self.count_slots()
        if not self.running:
            time.sleep(WAIT)
            return []
        waited = list(self.running)
        ready, _ = self.ray.wait(waited, timeout=WAIT)
        if ready:  # others may have ended as well
            ready, _ = self.ray.wait(waited, num_returns=len(waited), timeout=0)
        return [self.ended(reference) for reference in ready]

    def ended(self, reference: Any) -> Ended:
        job = self.running.pop(reference)
        errors = self.ray.exceptions
        code, note = None, "lost its node"
        try:
            code, note = self.ray.get(reference), ""
        except errors.OutOfMemoryError:
            code, note = OUT_OF_MEMORY, "was stopped: its node is out of memory"
        except errors.RayTaskError as error:
            if not isinstance(error.cause, errors.RayError):
                code, note = 1, f"failed on its node: {error.cause}"
        except errors.RayError:
            pass
        self.board.forget.remote(job.place)
        try:
            self.pull(job)
        except Exception as error:  # of whatever store: the job looks for its run there again
            code, note = None, f"could not be fetched from its store: {error}"
        return Ended(job.place, code, note)

    def pull(self, job: Job) -> None:
        if self.store is not None:
            self.store.pull(job.place, self.root / job.place)

    def status(self) -> dict[str, Status]:
        if self.board is None:
            return {}
        known = self.ray.get(self.board.statuses.remote())
        waiting = Status("waiting")
        return {job.place: known.get(job.place, waiting) for job in self.running.values()}

    def stop(self) -> None:
        """Jobs that wait for a node are cancelled, the others save themselves."""
        if self.running:
            self.ray.get(self.board.stop.remote())
            began = set(self.ray.get(self.board.statuses.remote()))
            for reference, job in list(self.running.items()):
                if job.place not in began:
                    self.ray.cancel(reference)
            waited = list(self.running)
            self.ray.wait(waited, num_returns=len(waited), timeout=STOPPING)
            for job in self.running.values():
                with suppress(Exception):  # it is in the store, and fetched by the next call
                    self.pull(job)
            self.running.clear()
        self.ray.shutdown()


def open_store(url: str) -> Store:
    try:
        return Store(url)
    except (ValueError, ImportError, OSError) as error:
        raise InputError(f"carry is {url!r}, which cannot be used: {error}") from None
