"""How near the off-policy update is to the machine's limit: FLOPs needed / time / GEMM rate.

    python benchmarks/update.py [rounds]

ComSD on Walker, at the lite shape (256 wide, batch 256) on one thread and at the paper's (1024,
1024) on two. Counted are the products of one update in which nothing is computed twice: encoders
forward and backward, contrast, k-NN, twice the actor and three times the critic forward, and what
their gradients need.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from measure import agent_update, forward_backward, ratios, report

from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.methods.comsd import ComSD, ComSDConfig
from comsd.skills import Box
from comsd.types import Batch, ObsInfo

OBS, ACTIONS, SKILL = 24, 6, 64


def flops(method: ComSD, agent: DDPG, rows: int) -> int:
    f1, f2 = method.contrast.f1, method.contrast.f2
    assert f2 is not None
    table = 2 * rows * rows * SKILL
    representation = (
        forward_backward(f1.state, 2 * rows, input_gradient=False)
        + forward_backward(f1.pair, rows, input_gradient=True)
        + forward_backward(f2, rows, input_gradient=False)
        + 3 * table  # contrast, forward and both gradients
        + table  # k-NN
    )
    return representation + agent_update(agent, rows)


def main(rounds: int) -> None:
    torch.set_flush_denormal(True)
    for name, hidden, rows, threads in (("lite", 256, 256, 1), ("paper", 1024, 1024, 2)):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        obs, space = ObsInfo(OBS, torch.zeros(OBS), torch.ones(OBS)), Box(SKILL)
        method = ComSD(ComSDConfig(hidden=hidden), space, obs)
        agent = DDPG(DDPGConfig(hidden=hidden), space, obs, ACTIONS)
        optimizer, noise = method.optimizer(), torch.Generator().manual_seed(0)
        skill = space.sample(rows, np.random.default_rng(0))
        s, near, s_next = torch.randn(3, rows, OBS)
        action = 2 * torch.rand(rows, ACTIONS) - 1
        batch = Batch(s, action, s_next, near, skill, torch.zeros(rows), torch.full((rows,), 0.97))

        def update(
            method: ComSD = method,
            agent: DDPG = agent,
            batch: Batch = batch,
            optimizer: object = optimizer,
            noise: torch.Generator = noise,
        ) -> None:
            lesson = method.learn(batch, optimizer)  # pyright: ignore[reportArgumentType]
            agent.update(batch, lesson.reward, noise)

        for _ in range(3 if name == "paper" else 30):
            update()
        needed = flops(method, agent, rows)
        plural = "thread" if threads == 1 else "threads"
        print(f"update, {name} shape, {needed / 1e9:.2f} GFLOP, {threads} {plural}")
        report(ratios(update, needed, rounds, per_round=1 if name == "paper" else 20))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
