"""What this machine can do: what is there, what is missing, and what to install for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from comsd.analysis import video
from comsd.envs import rendering
from comsd.errors import InputError
from comsd.registry import ENVS
from comsd.runs.provenance import provenance
from comsd.training.checks import check_compiler, has_bf16


@dataclass(frozen=True)
class Finding:
    name: str
    works: bool
    found: str
    advice: str = ""  # if it does not work
    essential: bool = False


def versions() -> list[Finding]:
    return [Finding(name, True, version) for name, version in provenance().items()]


def step_of_walker() -> bool:
    env = ENVS["walker"].make(1, 0)
    env.reset()
    return bool(np.isfinite(env.step(np.zeros((1, env.action_dim), np.float32)).obs).all())


def gradient() -> bool:
    x = torch.ones(4, 4, requires_grad=True)
    (x @ x).sum().backward()
    return x.grad is not None


def essentials() -> list[Finding]:
    return [
        attempt("simulation of a robot", step_of_walker, "walker makes a step", "comsd"),
        attempt("gradients by torch", gradient, "a product and its gradient", "torch"),
    ]


def attempt(name: str, works: Callable[[], bool], found: str, package: str) -> Finding:
    try:
        return Finding(name, works(), found, essential=True)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Finding(name, False, lines[-1], f"install {package} anew", essential=True)


def cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wanted = os.environ.get("OMP_NUM_THREADS", "not set")
    threads = f"torch would take {torch.get_num_threads()} threads, OMP_NUM_THREADS {wanted}"
    return Finding("cores", True, f"{usable} usable of {os.cpu_count()}; {threads}")


def opengl() -> list[Finding]:
    """Each backend is tried in a process of its own; the headless ones are timed one by one."""
    with ThreadPoolExecutor() as pool:
        problems = list(pool.map(rendering.problem, rendering.ADVICE))
    findings = []
    for (name, advice), problem in zip(rendering.ADVICE.items(), problems, strict=True):
        headless = name in rendering.HEADLESS
        uses = "--pixels and --video" if headless else "--video"
        found = problem or (rendering.measured_times(name) if headless else "draws")
        findings.append(Finding(f"OpenGL by {name}, for {uses}", problem is None, found, advice))
    return findings


def extras() -> list[Finding]:
    uses = {"tensorboard": "for --tensorboard", "video": "for mp4; without it videos are GIFs"}
    there = {"tensorboard": find_spec("tensorboard") is not None, "video": video.has_ffmpeg()}
    found = {name: f"{'' if there[name] else 'not '}installed; {use}" for name, use in uses.items()}
    return [Finding(f"extra {n}", there[n], found[n], f"pip install 'comsd[{n}]'") for n in uses]


def compiler() -> Finding:
    name = "C++ compiler, for --agent.compile"
    try:
        check_compiler("cpu")
    except InputError:
        advice = "Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++"
        return Finding(name, False, "not found", advice)
    return Finding(name, True, "found")


def cuda() -> Finding:
    name = "CUDA, for --device cuda"
    if torch.cuda.is_available():
        return Finding(name, True, torch.cuda.get_device_name(0))
    built = torch.version.cuda
    why = "torch is built for the CPU" if built is None else f"no device for CUDA {built}"
    advice = "not needed; an NVIDIA card, its driver and a torch built for CUDA give it"
    return Finding(name, False, why, advice)


def bf16() -> Finding:
    name, works = "bf16, for --precision bf16", has_bf16(torch.device("cpu"))
    found = "products on the CPU in bfloat16" if works else "the CPU has no instructions for it"
    return Finding(name, works, found, "not needed; AVX-512 BF16, AMX or Arm's BF16 give it")


CHECKS = [versions, cores, essentials, extras, compiler, bf16, cuda, opengl]


def examine() -> list[Finding]:
    results = [check() for check in CHECKS]
    return [f for result in results for f in (result if isinstance(result, list) else [result])]
