"""Every method's off-policy update against the machine's limit: FLOPs / time / GEMM rate.

    python benchmarks/methods.py [rounds] [method ...]

On Walker (24 observations, 6 actions), with the skills the method has there: at the lite shape (256
wide, batch 256) on one thread and at the paper's (1024, 1024) on two.

The floor is what an update needs if no pass is made twice, in GFLOP: products worked out from the
shapes of the layers, 2 m n k each, and nothing else. A layer costs as much again for its weights'
gradient and for its input's, which the first layer of a network does without. `count` is what torch
counts in one update, as a multiple of the floor. What the ratio lacks is Adam, the target's
average, elementwise work and products of few rows: CeSD's Adam moves the heads of all skills for
the work of one pair, and each pair sees a sixteenth of the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from measure import Round, agent_update, forward, forward_backward, ratios
from torch.utils.flop_counter import FlopCounterMode

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.methods.base import Method
from comsd.nets import MLP
from comsd.registry import METHODS
from comsd.skills import SPACES, Box, OneHot, SkillSpace
from comsd.types import Batch, ObsInfo

OBS, ACTIONS = 24, 6


# --- the floors ----------------------------------------------------------------------------------


def trained(net: MLP, rows: int, *, input_gradient: bool = False) -> int:
    return forward_backward(net, rows, input_gradient=input_gradient)


def table(rows: int, columns: int, dims: int) -> int:
    """Products of every row with every column."""
    return 2 * rows * columns * dims


def contrast(method: Any, rows: int) -> int:
    """CIC's encoders, each distinct skill encoded once; its table and both gradients of that."""
    f1, f2, dims = method.contrast.f1, method.contrast.f2, method.space.dim
    skills = dims if isinstance(method.space, OneHot) else rows
    encoders = trained(f1.state, 2 * rows) + trained(f1.pair, rows, input_gradient=True)
    return encoders + trained(f2, skills) + 3 * table(rows, skills, dims)


def along(method: Any, rows: int) -> int:
    """phi of s and of the state after it, with gradient, and of s', without."""
    return trained(method.phi, 2 * rows) + forward(method.phi, rows)


def cic(method: Any, rows: int) -> int:
    return contrast(method, rows) + table(rows, rows, method.space.dim)  # and neighbours


def cesd(method: Any, rows: int) -> int:
    skills = method.space.dim
    neighbours = table(rows, rows // skills, skills)  # within partitions
    return contrast(method, rows) + neighbours + 3 * table(rows, skills, skills)  # and prototypes


def smm(method: Any, rows: int) -> int:
    vae = trained(method.encoder, rows) + trained(method.decoder, rows, input_gradient=True)
    return vae + trained(method.discriminator, rows)


def becl(method: Any, rows: int) -> int:
    nets = trained(method.f, rows) + trained(method.head, rows, input_gradient=True)
    return nets + 3 * table(rows, rows, method.space.dim)


REPRESENTATION: dict[str, Callable[[Any, int], int]] = {  # FLOPs of one step of it
    "comsd": cic,
    "cic": cic,
    "diayn": lambda m, rows: trained(m.classifier, rows),
    "smm": smm,
    "aps": lambda m, rows: trained(m.phi, rows) + table(rows, rows, m.space.dim),
    "becl": becl,
    "cesd": cesd,
    "dads": lambda m, rows: trained(m.mu, rows) + m.config.alternatives * forward(m.mu, rows),
    "lsd": along,
    "csd": lambda m, rows: along(m, rows) + trained(m.density, rows),
    "metra": along,
}


# --- the updates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    name: str
    hidden: int
    rows: int
    threads: int
    per_round: int


SHAPES = (Shape("lite", 256, 256, 1, 10), Shape("paper", 1024, 1024, 2, 1))


def skills_of(method: type[Method]) -> SkillSpace:
    """As tuned for robots; otherwise 64 numbers, or 16 skills for a method that counts them."""
    tuned = method.config_class.tuned.get("robots", {})
    kind = tuned["run.space"].value if "run.space" in tuned else None
    space = SPACES[kind] if kind else (Box if Box in method.spaces else method.spaces[0])
    default = 64 if space is Box else 16
    return space(tuned["run.skills"].value if "run.skills" in tuned else default)


def update_of(name: str, shape: Shape) -> tuple[Callable[[], object], int]:
    """One update of representation and agent on a batch that stays, and its floor."""
    torch.manual_seed(0)
    kind, rows = METHODS[name], shape.rows
    space, obs = skills_of(kind), ObsInfo(OBS, torch.zeros(OBS), torch.ones(OBS))
    tuned = {k: s.value for k, s in kind.config_class.tuned.get("robots", {}).items()}
    own: dict[str, Any] = {k: value for k, value in tuned.items() if "." not in k}
    own["hidden"] = shape.hidden
    method = kind(kind.config_class(**own), space, obs)
    config = DDPGConfig(hidden=shape.hidden)
    agent = DDPG(config, space, obs, ACTIONS, kind.critic)
    steps = tuned.get("agent.representation_steps", 1)
    optimizer, noise = method.optimizer(), torch.Generator().manual_seed(0)
    s, near, s_next = torch.randn(3, rows, OBS)
    action = 2 * torch.rand(rows, ACTIONS) - 1
    skill = space.sample(rows, np.random.default_rng(0))
    batch = Batch(s, action, s_next, near, skill, torch.zeros(rows), torch.full((rows,), 0.97))

    def update() -> None:
        for _ in range(steps - 1):
            assert optimizer is not None
            method.descend(batch, optimizer)
        lesson = method.learn(batch, optimizer)
        agent.update(batch, lesson.reward, noise, lesson.credit)

    return update, steps * REPRESENTATION[name](method, rows) + agent_update(agent, rows)


def count(update: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        update()
    return counter.get_total_flops()


def line(name: str, needed: int, counted: int, rounds: list[Round]) -> str:
    low, middle, high = np.quantile([r.ratio for r in rounds], [0.1, 0.5, 0.9])
    times, rate = [r.milliseconds for r in rounds], np.median([r.rate for r in rounds])
    text = f"{name:8} {np.median(times):8.1f} {min(times):8.1f} {needed / 1e9:8.2f}"
    text += f" {counted / needed:6.2f} {rate:6.0f}"
    return text + f"   {middle:.3f} ({low:.3f} to {high:.3f})"


def main(rounds: int, names: list[str]) -> None:
    torch.set_flush_denormal(True)
    for shape in SHAPES:
        torch.set_num_threads(shape.threads)
        threads = "1 thread" if shape.threads == 1 else f"{shape.threads} threads"
        how = f"{threads}, {torch.backends.cpu.get_cpu_capability()}"
        print(f"\nupdate, {shape.name} shape ({shape.hidden} wide, {shape.rows} rows), {how}")
        head = f"{'method':8} {'ms':>8} {'best':>8} {'floor':>8} {'count':>6} {'GF/s':>6}   "
        print(head + "floor to the GEMM rate (10 % to 90 %)")
        for name in names:
            update, needed = update_of(name, shape)
            for _ in range(3):
                update()
            measured = ratios(update, needed, rounds, per_round=shape.per_round)
            print(line(name, needed, count(update), measured), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15, sys.argv[2:] or list(METHODS))
