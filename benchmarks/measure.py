"""What the benchmarks share: the machine's rate, FLOPs of networks, ratios in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from comsd.agents.critics import PerSkillCritic
from comsd.agents.ddpg import DDPG

SIZE = 1024


def weights(net: nn.Module) -> list[int]:
    """Sizes of the weights of all linear layers, in the order of the layers."""
    return [layer.weight.numel() for layer in net.modules() if isinstance(layer, nn.Linear)]


def forward(net: nn.Module, rows: int) -> int:
    """FLOPs of the products; a row of a per-skill critic goes through one pair of its heads."""
    first, *rest = weights(net)
    heads = len(net.q1) if isinstance(net, PerSkillCritic) else 1
    return 2 * rows * (first + sum(rest) // heads)


def forward_backward(net: nn.Module, rows: int, *, input_gradient: bool) -> int:
    """Weights and activations each cost another forward; the input's gradient may not be needed."""
    return 3 * forward(net, rows) - (0 if input_gradient else 2 * rows * weights(net)[0])


def agent_update(agent: DDPG, rows: int) -> int:
    """FLOPs of a step of critic and actor: target, value, and value of the actor's action."""
    critic, actor = forward(agent.critic, rows), forward(agent.actor, rows)
    first = next(m for m in agent.critic.modules() if isinstance(m, nn.Linear))
    assert isinstance(agent.actor.out, nn.Linear)
    actions = agent.actor.out.out_features
    to_action = 2 * rows * first.out_features * (actions - first.in_features)
    through_critic = 2 * critic + to_action
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
