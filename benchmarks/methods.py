"""Every method's off-policy update against the machine's limit: FLOPs / time / GEMM rate.

    python benchmarks/methods.py [rounds] [method ...]

On Walker (24 observations, 6 actions), with the skills the method has there: at the lite shape (256
wide, batch 256) on one thread and at the paper's (1024, 1024) on two.

FLOPs are counted, not tabulated: torch counts the matrix products of one update, 2 m n k each, and
nothing else. Where nothing is computed twice that is what the layer shapes ask for. A linear layer
of a x b costs 2 B a b forward and the same again each for its weights' and its input's gradient;
the first layer of a network needs no input gradient. Of these an update has

- actor: forward for a' and for a, backward once;
- critic: forward three times (target, its own step, the actor's), backward once with weights and
  once without. Plain: a trunk and two heads. Successor (APS): the same with wider outputs.
  Per skill (CeSD): a trunk half as wide, and only the two heads of the row's skill;
- the representation: forward and backward once, the tables of its contrast, its neighbours' table.

Not counted: a k-d tree, Adam, the target's average, elementwise work. They are what the ratio
lacks, most for CeSD, whose Adam moves the heads of all skills for the work of two.

FLOOR holds the same worked out by hand for the paper's shape, in GFLOP: each pass made once, and
with the passes that the public codes repeat; the last column sets the count against it. CeSD stays
below its floor since the encoder of skills sees each of the 16 once instead of one per row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from measure import Round, ratios
from torch.utils.flop_counter import FlopCounterMode

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.methods import METHODS, Method
from comsd.skills import SPACES, Box, SkillSpace
from comsd.types import Batch, ObsInfo

OBS, ACTIONS = 24, 6
FLOOR: dict[str, tuple[float, float]] = {
    "comsd": (65.2, 74.8),
    "cic": (65.2, 69.8),
    "aps": (41.9, 44.1),
    "cesd": (48.8, 59.9),
}


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


def update_of(name: str, shape: Shape) -> Callable[[], object]:
    """One update of representation and agent on a batch that stays."""
    torch.manual_seed(0)
    kind, rows = METHODS[name], shape.rows
    space, obs = skills_of(kind), ObsInfo(OBS, torch.zeros(OBS), torch.ones(OBS))
    tuned = {k: s.value for k, s in kind.config_class.tuned.get("robots", {}).items()}
    own: dict[str, Any] = {k: value for k, value in tuned.items() if "." not in k}
    own["hidden"] = shape.hidden
    method = kind(kind.config_class(**own), space, obs)
    config = DDPGConfig(hidden=shape.hidden, batch_size=rows)
    agent = DDPG(config, space, obs, ACTIONS, kind.critic)
    optimizer, noise = method.optimizer(), torch.Generator().manual_seed(0)
    s, near, s_next = torch.randn(3, rows, OBS)
    action = 2 * torch.rand(rows, ACTIONS) - 1
    skill = space.sample(rows, np.random.default_rng(0))
    batch = Batch(s, action, s_next, near, skill, torch.zeros(rows), torch.full((rows,), 0.97))

    def update() -> None:
        lesson = method.learn(batch, optimizer)
        agent.update(batch, lesson.reward, noise, lesson.credit)

    return update


def count(update: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        update()
    return counter.get_total_flops()


def line(name: str, shape: Shape, needed: int, rounds: list[Round]) -> str:
    low, middle, high = np.quantile([r.ratio for r in rounds], [0.1, 0.5, 0.9])
    times, rate = [r.milliseconds for r in rounds], np.median([r.rate for r in rounds])
    text = f"{name:8} {np.median(times):8.1f} {min(times):8.1f} {needed / 1e9:8.2f} {rate:6.0f}"
    text += f"   {middle:.3f} ({low:.3f} to {high:.3f})"
    if shape.name == "paper" and name in FLOOR:
        lean, more = FLOOR[name]
        text += f"   {needed / 1e9 / lean:.2f} of {lean} (to {more})"
    return text


def main(rounds: int, names: list[str]) -> None:
    torch.set_flush_denormal(True)
    for shape in SHAPES:
        torch.set_num_threads(shape.threads)
        threads = "1 thread" if shape.threads == 1 else f"{shape.threads} threads"
        print(f"\nupdate, {shape.name} shape ({shape.hidden} wide, {shape.rows} rows), {threads}")
        head = f"{'method':8} {'ms':>8} {'best':>8} {'GFLOP':>8} {'GF/s':>6}   "
        print(head + "ratio to the GEMM rate (10 % to 90 %)" + "   count" * (shape.name == "paper"))
        for name in names:
            update = update_of(name, shape)
            for _ in range(3):
                update()
            needed = count(update)
            measured = ratios(update, needed, rounds, per_round=shape.per_round)
            print(line(name, shape, needed, measured), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15, sys.argv[2:] or list(METHODS))
