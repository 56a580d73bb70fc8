"""How near the off-policy update is to the machine's limit: FLOPs needed / time / GEMM rate.

    python benchmarks/update.py [rounds]

ComSD on Walker, at the lite shape (256 wide, batch 256) and at the paper's (1024, 1024), in float32
and, where the processor has such products, in bfloat16; the rate is that of float32 products
throughout. Counted are the products of one update in which nothing is computed twice: encoders
forward and backward, contrast, k-NN, twice the actor and three times the critic forward, and what
their gradients need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch
from measure import agent_update, forward_backward, ratios, report

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.methods.comsd import ComSD, ComSDConfig
from comsd.nn import MLP, use_bf16
from comsd.skills import Box
from comsd.training.checks import has_bf16
from comsd.types import Batch, ObsSpec

OBS, ACTIONS, SKILL = 24, 6, 64
STATES = ObsSpec((OBS,), "float32", np.zeros(OBS, np.float32), np.ones(OBS, np.float32))


def flops(method: ComSD, agent: DDPG, rows: int) -> int:
    encoder, table = method.encoder, 2 * rows * rows * SKILL
    assert isinstance(encoder.f2, MLP)
    representation = (
        forward_backward(encoder.state, 2 * rows, input_gradient=False)
        + forward_backward(encoder.pair, rows, input_gradient=True)
        + forward_backward(encoder.f2, rows, input_gradient=False)
        + 3 * table  # contrast, forward and both gradients
        + table  # k-NN
    )
    return representation + agent_update(agent, rows)


def make_update(hidden: int, rows: int, bf16: bool) -> tuple[Callable[[], None], int]:
    """One update on a batch that stays, and its FLOPs."""
    torch.manual_seed(0)
    space = Box(SKILL)
    method = ComSD(ComSDConfig(hidden=hidden), space, STATES)
    agent = DDPG(DDPGConfig(hidden=hidden), space, STATES, ACTIONS)
    if bf16:
        use_bf16(method)
        use_bf16(agent)
    optimizer, noise = method.optimizer(), torch.Generator().manual_seed(0)
    s, one_step, s_next = torch.randn(3, rows, OBS)
    action, reward = 2 * torch.rand(rows, ACTIONS) - 1, torch.zeros(rows)
    skill = space.sample(rows, np.random.default_rng(0))
    batch = Batch(s, action, s_next, one_step, skill, reward, torch.full((rows,), 0.97))

    def update() -> None:
        output = method.update(batch, optimizer)
        agent.update(batch, output.reward, noise)

    return update, flops(method, agent, rows)


def main(rounds: int) -> None:
    torch.set_flush_denormal(True)
    for name, hidden, rows, threads, bf16 in (
        ("lite", 256, 256, 1, False),
        ("lite", 256, 256, 1, True),
        ("paper", 1024, 1024, 1, False),
        ("paper", 1024, 1024, 1, True),
        ("paper", 1024, 1024, 2, False),
        ("paper", 1024, 1024, 2, True),
    ):
        if bf16 and not has_bf16(torch.device("cpu")):
            continue
        torch.set_num_threads(threads)
        update, needed = make_update(hidden, rows, bf16)
        for _ in range(3 if name == "paper" else 30):
            update()
        plural = "thread" if threads == 1 else "threads"
        precision = "bf16" if bf16 else "float32"
        print(f"update, {name} shape, {precision}, {needed / 1e9:.2f} GFLOP, {threads} {plural}")
        report(ratios(update, needed, rounds, per_round=1 if name == "paper" else 20))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
