"""How near the maze cycle is to the machine's limit: FLOPs needed / time / GEMM rate.

    python benchmarks/maze_cycle.py [rounds]

A cycle is 2500 environment steps, 40 encoder and 40 PPO minibatches of 250. Only the matrix
products of the networks are counted, so k-NN, the maze, Adam and all bookkeeping are overhead.
The rate of a 1024 x 1024 x 1024 product is measured between the cycles of the same run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from comsd.agents.ppo import PPOConfig
from comsd.config import resolve
from comsd.learners.on_policy import OnPolicyLearner
from comsd.loop import prepare
from comsd.nets import MLP, PairEncoder
from comsd.run import Run

SIZE = 1024
CYCLES = 2  # between two measurements of the rate


def products(sizes: Sequence[tuple[int, int]]) -> int:
    return sum(out * fan_in for out, fan_in in sizes)


def forward(net: MLP, rows: int) -> int:
    return 2 * rows * products(net.shapes)


def forward_backward(net: MLP, rows: int, *, input_gradient: bool) -> int:
    """Weights and activations each cost another forward; the input's gradient may not be needed."""
    out, fan_in = net.shapes[0]
    return 3 * forward(net, rows) - (0 if input_gradient else 2 * rows * out * fan_in)


def flops(learner: OnPolicyLearner) -> int:
    """Of one cycle of ComSD."""
    method, agent = learner.method, learner.agent
    encoder = method.f_pair
    assert isinstance(encoder, PairEncoder)
    f_state, f_pair = encoder.state, encoder.pair
    n, steps = learner.env.num_envs, learner.env.num_envs * learner.env.horizon
    updates = agent.config.epochs * agent.config.minibatches
    rows = steps // agent.config.minibatches
    collect = forward(agent.policy, steps)
    encoder = updates * (
        forward_backward(f_state, 2 * rows, input_gradient=False)
        + forward_backward(f_pair, rows, input_gradient=True)
    )
    reward = forward(f_state, 2 * steps) + forward(f_pair, steps)
    prepare_ppo = forward(agent.policy, steps) + forward(agent.value, steps + n)
    ppo = updates * (
        forward_backward(agent.policy, rows, input_gradient=False)
        + forward_backward(agent.value, rows, input_gradient=False)
    )
    return collect + encoder + reward + prepare_ppo + ppo


def gemm_rate() -> float:
    a, b = torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE)
    began = time.perf_counter()
    for _ in range(4):
        torch.mm(a, b)
    return 4 * 2 * SIZE**3 / (time.perf_counter() - began)


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", *resolve("comsd", "maze-tree"))
        prepare(run)
        learner = run.learner()
        assert isinstance(learner, OnPolicyLearner)
        assert isinstance(learner.agent.config, PPOConfig)
        needed = flops(learner)
        for _ in range(10):
            learner.cycle()
        ratios, times, rates = [], [], []
        for _ in range(rounds):
            before = gemm_rate()
            began = time.perf_counter()
            for _ in range(CYCLES):
                learner.cycle()
            seconds = (time.perf_counter() - began) / CYCLES
            rate = (before + gemm_rate()) / 2
            ratios.append(needed / seconds / rate)
            times.append(1e3 * seconds)
            rates.append(rate / 1e9)
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    print(f"{needed / 1e9:.2f} GFLOP per cycle, {torch.get_num_threads()} thread, {rounds} rounds")
    print(
        f"cycle {np.median(times):.0f} ms (best {min(times):.0f}), GEMM {np.median(rates):.0f} GF/s"
    )
    print(f"ratio to the GEMM rate: {middle:.3f} (10 % to 90 %: {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
