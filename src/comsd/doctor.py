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


def simulation() -> Finding:
    """Does a robot move?"""
    name = "simulation of a robot"
    try:
        env = ENVS["walker"].make(1, 0)
        env.reset()
        moved = np.isfinite(env.step(np.zeros((1, env.action_dim), np.float32)).obs).all()
    except Exception as error:
        return Finding(name, False, one_line(error), "install comsd anew", essential=True)
    return Finding(name, bool(moved), "walker makes a step", essential=True)


def matrices() -> Finding:
    """Does torch multiply and differentiate?"""
    name = "gradients by torch"
    try:
        x = torch.ones(4, 4, requires_grad=True)
        (x @ x).sum().backward()
    except Exception as error:
        return Finding(name, False, one_line(error), "install torch anew", essential=True)
    return Finding(name, x.grad is not None, "a product and its gradient", essential=True)


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
    bf16,
    cuda,
    opengl,
]


def examine() -> list[Finding]:
    findings: list[Finding] = []
    for check in CHECKS:
        result = check()
        findings += result if isinstance(result, list) else [result]
    return findings
