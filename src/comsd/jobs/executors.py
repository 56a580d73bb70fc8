"""Where the jobs of a plan run, by name."""

from __future__ import annotations

from comsd.config import choose
from comsd.errors import InputError
from comsd.jobs.executor import Executor, Resources
from comsd.jobs.local import LocalExecutor
from comsd.jobs.slurm_executor import SlurmExecutor

WHERE: dict[str, str] = {
    "local": "processes of this machine",
    "ray": "tasks of a Ray cluster",
    "slurm": "jobs of a Slurm cluster",
}
CARRY = "auto"


def make_executor(
    on: str = "local",
    *,
    jobs: int = 0,
    cpus: int = 0,
    gpus: float = 0.0,
    address: str | None = None,
    carry: str = CARRY,
    slurm: str = "",
) -> Executor:
    """jobs: at a time, 0 as many as fit; cpus, gpus: of each job.

    ray: address of an existing cluster, without one a local cluster; carry: how run directories
    reach the driver where nodes do not see its directory, `objects` or a URL.
    slurm: more options of `sbatch`.
    """
    choose("on", on, WHERE)
    resources = Resources(cpus, gpus, jobs)
    if on != "ray" and (address is not None or carry != CARRY):
        raise InputError(f"address and carry are for --on ray, not for {on}")
    if on != "slurm" and slurm:
        raise InputError(f"slurm is for --on slurm, not for {on}")
    if on == "ray":
        from comsd.jobs.ray_executor import RayExecutor  # an extra

        return RayExecutor(resources, address, carry)
    return SlurmExecutor(resources, slurm) if on == "slurm" else LocalExecutor(resources)
