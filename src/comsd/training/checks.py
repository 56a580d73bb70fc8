"""What is said before a run starts instead of failing later: sizes, memory, device, compiler."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TypeGuard

import torch
from torch import nn

from comsd.agents.ppo import PPOConfig
from comsd.config import Config, RunSettings
from comsd.encoders import PixelSettings
from comsd.envs.base import Env
from comsd.errors import InputError
from comsd.files import Folder
from comsd.frame_replay import FrameLayout
from comsd.methods.base import MethodConfig
from comsd.replay import Layout
from comsd.skills import SkillSpace
from comsd.training.off_policy import OffPolicySettings, frame_layout, layout
from comsd.training.on_policy import OnPolicySettings
from comsd.types import ObsSpec

BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86: the first two; Arm: the last


def check_off_policy(config: Config, space: SkillSpace, env: Env) -> None:
    """Raise InputError where a run could not start or would never learn."""
    c = config.train
    assert isinstance(c, OffPolicySettings)
    assert isinstance(config.method, MethodConfig)
    kept = c.replay // c.envs // 2  # of an episode, when half the replay is the next one's
    longest = min(env.horizon, kept, c.hold if c.one_skill else env.horizon)
    if c.n_step > longest:
        what = "episode, half the replay of one environment"
        what += " or train.hold" if c.one_skill else ""
        raise InputError(f"train.n_step is {c.n_step}; it must be at most {longest} ({what})")
    config.method.check_rows(c.batch_size, "train.batch_size")
    if config.run.steps <= c.random_steps:
        raise InputError(
            f"steps is {config.run.steps}; it must be more than train.random_steps "
            f"{c.random_steps}, after which learning begins"
        )
    if config.run.steps < c.update_every:
        raise InputError(
            f"train.update_every is {c.update_every}; it must be at most steps {config.run.steps}"
        )
    check_memory(frame_layout(config, space, env) if config.run.pixels else layout(c, space, env))
    if getattr(config.agent, "compile", False):
        check_compiler(config.run.device)


def check_on_policy(config: Config, _: SkillSpace, env: Env) -> None:
    """Raise InputError where a run could not start, or would teach a skill that did not act."""
    if config.run.pixels:
        raise InputError(
            f"agent is {config.run.agent!r}, which learns from states only; with pixels allowed: "
            "ddpg, sac"
        )
    method, agent, train = config.method, config.agent, config.train
    assert isinstance(method, MethodConfig)
    assert isinstance(agent, PPOConfig)
    assert isinstance(train, OnPolicySettings)
    rows = train.envs * env.horizon
    states = f"{rows} states of a cycle, train.envs {train.envs} x {env.horizon} steps"
    method.check_rows(rows, states)
    if agent.minibatches > rows // 2:
        raise InputError(
            f"agent.minibatches is {agent.minibatches}; it must be at most {rows // 2}, two of "
            f"the {rows} states of a cycle each"
        )
    for name, choice in method.on_policy.items():
        if (given := getattr(method, name)) != choice:
            raise InputError(
                f"method.{name} is {given!r}, but PPO can only teach the skill that acted; "
                f"allowed: {choice}"
            )


def check_device(settings: RunSettings) -> None:
    """Raise InputError unless the device is there and has the precision."""
    cores = os.cpu_count() or 1
    if settings.threads > cores:
        raise InputError(
            f"threads is {settings.threads}; this machine has {cores} cores, so it must be at most "
            f"{cores} (--threads chooses)"
        )
    device = torch.device(settings.device)
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(
            f"device is {settings.device!r}, but torch finds none here; allowed: cpu"
        ) from None
    if settings.precision == "bf16" and not has_bf16(device):
        raise InputError(
            f"precision is 'bf16', but this {settings.device} has no instructions for it; "
            "allowed: float32"
        )


def has_bf16(device: torch.device) -> bool:
    """Does it multiply bfloat16 faster than float32?"""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else bool(cpu_bf16_flags())


def cpu_bf16_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return BF16_FLAGS.intersection(line[1].split()) if line else set()


def check_compiler(device: str) -> None:
    """Say before a run what torch.compile would miss at the first update."""
    if device == "cpu":
        compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
        found, needed = shutil.which(compiler) is not None, "a C++ compiler such as g++"
    else:
        found, needed = find_spec("triton") is not None, "triton"
    if not found:
        raise InputError(f"agent.compile is True but needs {needed}, which is not found here")


def free_memory() -> int | None:
    """Bytes that can be had without swapping, where the system says."""
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def check_networks(config: Config, env: Env, agent: nn.Module, method: nn.Module) -> None:
    """Raise InputError where weights, gradients, Adam's averages and a batch would not fit.

    The networks are on the device `meta`: their sizes are known, but no memory is taken.
    """
    free = free_memory()
    if free is None:
        return
    tensors = {"agent": agent.state_dict().values(), "method": method.state_dict().values()}
    weights = {group: 4 * sum(t.nbytes for t in own) for group, own in tensors.items()}
    widths = [m.out_features for net in (agent, method) for m in net.modules() if is_linear(m)]
    pairs = isinstance(config.method, MethodConfig) and bool(config.method.rows_needed())
    name, rows, parts = batch_rows(config, env)

    def needed(rows: int) -> int:
        return 8 * rows * (sum(widths) + 4 * env.obs_spec.dim) + 4 * (rows // parts) ** 2 * pairs

    if sum(weights.values()) > free:
        group = max(weights, key=lambda group: weights[group])
        settings = getattr(config, group)
        hidden = getattr(settings, "hidden", 0)
        most = int(hidden * math.sqrt(free / sum(weights.values())))
        what, value = f"{group}.hidden", hidden
    elif needed(rows) > free:
        most, what, value = rows, name, getattr(config.train, name.removeprefix("train."))
        while needed(most) > free:
            most = int(most * 0.9)
        most = most * value // rows
    else:
        return
    total = (sum(weights.values()) + needed(rows)) / 1e9
    raise InputError(
        f"{what} is {value}: the networks and a batch need {total:.1f} GB of memory and "
        f"{free / 1e9:.1f} GB are free; it must be at most {most}"
    )


def is_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    return isinstance(module, nn.Linear)


def batch_rows(config: Config, env: Env) -> tuple[str, int, int]:
    """The setting that says how many rows are in memory, their number, and their minibatches."""
    if isinstance(config.train, OffPolicySettings):
        return "train.batch_size", config.train.batch_size, 1
    assert isinstance(config.agent, PPOConfig)
    assert isinstance(config.train, OnPolicySettings)
    return "train.envs", config.train.envs * env.horizon, config.agent.minibatches


def check_shift(pixels: PixelSettings, obs: ObsSpec) -> None:
    """Raise InputError where the random shift could move an image out of sight."""
    side = min(obs.shape[1:])
    if pixels.pad >= side:
        raise InputError(
            f"pixels.pad is {pixels.pad}; it must be at most {side - 1}, since images have {side} "
            "rows or columns"
        )


def check_disk(layout: FrameLayout, folder: Path) -> None:
    """Raise InputError where the frames of a replay, which checkpoints keep, would not fit."""
    chunks = Folder(folder, "checkpoints", "chunks")
    used = sum(map(chunks.size, chunks.names()))
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free + used
    if layout.disk > free:
        raise InputError(
            f"train.replay is {layout.capacity}: its frames need {layout.disk / 1e9:.1f} GB of "
            f"disk and {free / 1e9:.1f} GB are free below {folder}; it must be at most "
            f"{int(layout.capacity * free / layout.disk)}"
        )


def check_memory(layout: Layout | FrameLayout) -> None:
    """Raise InputError where a replay would not fit."""
    free = free_memory()
    if free is not None and layout.bytes > free:
        raise InputError(
            f"train.replay is {layout.capacity}: it needs {layout.bytes / 1e9:.1f} GB of memory "
            f"and {free / 1e9:.1f} GB are free; it must be at most "
            f"{int(layout.capacity * free / layout.bytes)}"
        )
