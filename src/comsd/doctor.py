"""What this machine can do: what is there, what is missing, and what to install for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from comsd import gl
from comsd.analysis.video import has_ffmpeg
from comsd.agents.base import check_compiler
from comsd.envs import ENVS
from comsd.errors import InputError
from comsd.run import provenance


@dataclass(frozen=True)
class Finding:
    what: str
    works: bool
    found: str
    advice: str = ""  # if it does not work
    essential: bool = False


def versions() -> list[Finding]:
    return [Finding(name, True, version) for name, version in provenance().items()]


def simulation() -> Finding:
    """Does a robot move?"""
    what = "simulation of a robot"
    try:
        env = ENVS["walker"].make(1, 0)
        env.reset()
        moved = np.isfinite(env.step(np.zeros((1, env.action_dim), np.float32)).obs).all()
    except Exception as error:
        return Finding(what, False, one_line(error), "install comsd anew", essential=True)
    return Finding(what, bool(moved), "walker makes a step", essential=True)


def matrices() -> Finding:
    """Does torch multiply and differentiate?"""
    what = "gradients by torch"
    try:
        x = torch.ones(4, 4, requires_grad=True)
        (x @ x).sum().backward()
    except Exception as error:
        return Finding(what, False, one_line(error), "install torch anew", essential=True)
    return Finding(what, x.grad is not None, "a product and its gradient", essential=True)


def cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wanted = os.environ.get("OMP_NUM_THREADS", "not set")
    threads = f"torch would take {torch.get_num_threads()} threads, OMP_NUM_THREADS {wanted}"
    return Finding("cores", True, f"{usable} usable of {os.cpu_count()}; {threads}")


def opengl() -> list[Finding]:
    """All at once: each is a process of its own."""
    with ThreadPoolExecutor() as pool:
        problems = list(pool.map(gl.problem, gl.ADVICE))
    return [
        Finding(f"OpenGL by {name}, for --video", True, "draws")
        if problem is None
        else Finding(f"OpenGL by {name}, for --video", False, problem, advice)
        for (name, advice), problem in zip(gl.ADVICE.items(), problems, strict=True)
    ]


def extras() -> list[Finding]:
    board = find_spec("tensorboard") is not None
    return [
        extra("tensorboard", board, "for --tensorboard"),
        extra("video", has_ffmpeg(), "for mp4; without it videos are GIFs"),
    ]


def extra(name: str, works: bool, use: str) -> Finding:
    found = "installed" if works else "not installed"
    return Finding(f"extra {name}", works, f"{found}; {use}", f"pip install 'comsd[{name}]'")


def compiler() -> Finding:
    what = "C++ compiler, for --agent.compile"
    try:
        check_compiler(torch.device("cpu"))
    except InputError:
        advice = "Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++"
        return Finding(what, False, "not found", advice)
    return Finding(what, True, "found")


def cuda() -> Finding:
    what = "CUDA, for --device cuda"
    if torch.cuda.is_available():
        return Finding(what, True, torch.cuda.get_device_name(0))
    built = torch.version.cuda
    why = "torch is built for the CPU" if built is None else f"no device for CUDA {built}"
    advice = "not needed; an NVIDIA card, its driver and a torch built for CUDA give it"
    return Finding(what, False, why, advice)


def one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


CHECKS: list[Callable[[], Finding | list[Finding]]] = [
    versions,
    cores,
    simulation,
    matrices,
    extras,
    compiler,
    cuda,
    opengl,
]


def examine() -> list[Finding]:
    findings: list[Finding] = []
    for check in CHECKS:
        result = check()
        findings += result if isinstance(result, list) else [result]
    return findings
