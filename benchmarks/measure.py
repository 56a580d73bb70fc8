"""What the benchmarks share: the machine's rate, FLOPs of networks, ratios in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from comsd.agents.critics import PerSkill
from comsd.agents.ddpg import DDPG
from comsd.nets import MLP

SIZE = 1024


def forward(net: MLP, rows: int) -> int:
    """FLOPs of the products; the heads of a network do not see each other's units."""
    first, *rest = [out * fan_in for out, fan_in in net.shapes]
    if isinstance(net, PerSkill):  # a row goes through one pair of its heads
        rest = [weights // net.count for weights in rest]
    else:
        rest[-1] //= net.heads
    return 2 * rows * (first + sum(rest))


def forward_backward(net: MLP, rows: int, *, input_gradient: bool) -> int:
    """Weights and activations each cost another forward; the input's gradient may not be needed."""
    return 3 * forward(net, rows) - (0 if input_gradient else first_layer(net, rows))


def first_layer(net: MLP, rows: int) -> int:
    out, fan_in = net.shapes[0]
    return 2 * rows * out * fan_in


def agent_update(agent: DDPG, rows: int) -> int:
    """FLOPs of a step of critic and actor: target, value, and value of the actor's action.

    Both heads are counted where the actor's gradient comes back through the critic, as is usual;
    `Critic.to_action` does without the greater one, which saves 3 % of the work of an update.
    """
    critic, actor = forward(agent.critic, rows), forward(agent.actor, rows)
    actions, width = agent.actor.shapes[-1][0], agent.critic.shapes[0][0]
    through_critic = 2 * critic - first_layer(agent.critic, rows) + 2 * rows * width * actions
    critic_step = forward_backward(agent.critic, rows, input_gradient=False)
    actor_step = forward_backward(agent.actor, rows, input_gradient=False) + through_critic
    return actor + critic + critic_step + actor_step


def gemm_rate(products: int = 4) -> float:
    """FLOPs per second of 1024 x 1024 x 1024 products, now."""
    a, b = torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE)
    began = time.perf_counter()
    for _ in range(products):
        torch.mm(a, b)
    return products * 2 * SIZE**3 / (time.perf_counter() - began)


class Round(NamedTuple):
    ratio: float  # of the machine's rate
    milliseconds: float
    rate: float  # GF/s of the product


def ratios(
    work: Callable[[], object], flops: int, rounds: int, *, per_round: int = 1
) -> list[Round]:
    """Work and products in turn; each round is set against the products on both sides of it."""
    result = []
    for _ in range(rounds):
        before = gemm_rate()
        began = time.perf_counter()
        for _ in range(per_round):
            work()
        seconds = (time.perf_counter() - began) / per_round
        rate = (before + gemm_rate()) / 2
        result.append(Round(flops / seconds / rate, 1e3 * seconds, rate / 1e9))
    return result


def report(rounds: list[Round]) -> None:
    low, middle, high = np.quantile([r.ratio for r in rounds], [0.1, 0.5, 0.9])
    times, rates = [r.milliseconds for r in rounds], [r.rate for r in rounds]
    gemm = f"GEMM {np.median(rates):.0f} GF/s ({torch.backends.cpu.get_cpu_capability()})"
    print(f"  {np.median(times):.1f} ms (best {min(times):.1f}), {gemm}")
    print(f"  ratio to the GEMM rate: {middle:.3f} (10 % to 90 %: {low:.3f} to {high:.3f})")


def best_of(work: Callable[[], object], repeats: int) -> float:
    """Shortest time of several, in seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)
