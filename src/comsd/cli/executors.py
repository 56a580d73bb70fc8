"""Options that say where the jobs of a plan run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from comsd.jobs.cost import DEVICES, REACHED, Work, device_seconds, product_rate
from comsd.jobs.executor import Executor, Resources
from comsd.jobs.executors import make_executor
from comsd.jobs.local import available_cores
from comsd.options import Option

GPU_HOURS = 24  # core hours from which on GPUs are of interest
OPTIONS = [
    Option("--on", Literal["local", "ray", "slurm"], "where the runs are carried out", "local"),
    Option("--jobs", int, "runs at a time; 0: as many as fit", 0),
    Option("--cpus", int, "cores of each run; 0: one, or more if cores are left", 0),
    Option("--gpus", float, "share of a GPU of each run: 0.25 lets four use one", 0.0),
    Option("--address", str, "ray: HOST:PORT of a cluster [one of this machine's cores]"),
    Option("--carry", str, "ray without a shared disk: objects, or an fsspec URL", "auto"),
    Option("--slurm", str, "slurm: options of sbatch, '--partition=gpu --time=24:00:00'", ""),
]


def executor_of(values: Mapping[str, Any]) -> Executor:
    return make_executor(**{o.name.removeprefix("--"): values[o.name] for o in OPTIONS})


def planned_slots(values: Mapping[str, Any]) -> int:
    """Runs at a time that a plan is shown for, without asking a cluster."""
    resources = Resources(values["--cpus"], values["--gpus"], values["--jobs"])
    return resources.jobs or max(1, available_cores() // max(1, resources.cpus))


def show_costs(work: Work, disk: int, memory: int, slots: int) -> None:
    """Hours on this machine's cores and on GPUs, disk and memory."""
    total = work.seconds(product_rate()) / 3600
    hours = [f"{h:.2g}" if h < 10 else f"{h:,.0f}" for h in (total, total / slots)]
    print(f"left: about {hours[0]} core hours, {hours[1]} hours with {slots} processes ", end="")
    print(f"(an estimate from counted work); {disk / 1e9:,.1f} GB of disk, ", end="")
    print(f"{memory / 1e9:.2g} GB of memory per process")
    if total >= GPU_HOURS:
        devices = {name: device_seconds(work, name) / 3600 for name in DEVICES}
        listed = ", ".join(f"{name} {hours:,.0f}" for name, hours in devices.items())
        print(f"hours of one GPU: {listed} (at {100 * REACHED:.0f} % of the stated float32 rates)")
