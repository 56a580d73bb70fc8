"""Jobs as processes of this machine."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import torch

from comsd.errors import InputError
from comsd.files import Folder
from comsd.jobs import child
from comsd.jobs.executor import Ended, Resources, Status, read_status
from comsd.jobs.job import Job

POLL_EVERY = 0.2  # seconds


class LocalExecutor:
    """One process per core; if there are fewer processes than cores, each gets several threads.

    None outlives this process, however it ends.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        cores = available_cores()
        if resources.cpus > cores:
            raise InputError(f"cpus is {resources.cpus}; this machine has {cores}")
        fitting = cores // max(1, resources.cpus)
        self.devices: list[float] = []  # how much of each GPU is free
        if resources.gpus:
            self.devices = [1.0] * torch.cuda.device_count()
            if not self.devices:
                raise InputError(f"gpus is {resources.gpus:g}; torch finds none on this machine")
            fitting = min(fitting, int(1 / resources.gpus + 1e-9) * len(self.devices))
        self.slots = resources.jobs or fitting
        self.threads = resources.cpus or max(1, cores // self.slots)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self.device_of: dict[str, int] = {}

    def start(self, job: Job, root: Path) -> None:
        log = self.logs[job.place] = job.log(root)
        argv = self.resources.arguments(job.command(root), self.threads)
        env = os.environ | {"OMP_NUM_THREADS": str(self.threads)}
        if self.devices:
            device = max(range(len(self.devices)), key=lambda i: self.devices[i])
            self.devices[device] -= self.resources.gpus
            self.device_of[job.place] = device
            env["CUDA_VISIBLE_DEVICES"] = str(device)
        with Folder(root, "logs").append(log.name) as file:
            self.running[job.place] = subprocess.Popen(
                child.argv(*argv),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=env,
                start_new_session=True,  # Ctrl-C goes to the driver, which stops each process once
            )

    def poll(self) -> list[Ended]:
        codes = {place: process.poll() for place, process in self.running.items()}
        ended = [Ended(place, code) for place, code in codes.items() if code is not None]
        for place, *_ in ended:
            del self.running[place]
            if place in self.device_of:
                self.devices[self.device_of.pop(place)] += self.resources.gpus
        if not ended:
            time.sleep(POLL_EVERY)
        return ended

    def status(self) -> dict[str, Status]:
        return {place: read_status(self.logs[place]) for place in self.running}

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
