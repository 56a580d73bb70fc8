"""How near the maze cycle is to the machine's limit: FLOPs needed / time / GEMM rate.

    python benchmarks/maze_cycle.py [rounds]

A cycle is 2500 environment steps, 40 encoder and 40 PPO minibatches of 250. Only the matrix
products of the networks are counted, so k-NN, the maze, Adam and all bookkeeping are overhead.
The rate of a 1024 x 1024 x 1024 product is measured between the cycles of the same run.
"""

from __future__ import annotations

import sys

import torch
from measure import forward, forward_backward, ratios, report

from comsd.agents.ppo import PPOConfig
from comsd.methods.comsd import ComSD
from comsd.resolve import resolve
from comsd.runs.factory import make_trainer, make_training_env
from comsd.training.on_policy import OnPolicyTrainer
from comsd.training.trainer import prepare

CYCLES = 2  # between two measurements of the rate


def flops(trainer: OnPolicyTrainer) -> int:
    """Of one cycle of ComSD."""
    method, agent = trainer.method, trainer.agent
    assert isinstance(method, ComSD)
    f_state, f_pair = method.encoder.state, method.encoder.pair
    n, steps = trainer.env.num_envs, trainer.env.num_envs * trainer.env.horizon
    updates = agent.config.epochs * agent.config.minibatches
    rows = steps // agent.config.minibatches
    collect = forward(agent.actor, steps)
    encoder = updates * (
        forward_backward(f_state, 2 * rows, input_gradient=False)
        + forward_backward(f_pair, rows, input_gradient=True)
    )
    reward = forward(f_state, 2 * steps) + forward(f_pair, steps)
    prepare_ppo = forward(agent.actor, steps) + forward(agent.value, steps + n)
    ppo = updates * (
        forward_backward(agent.actor, rows, input_gradient=False)
        + forward_backward(agent.value, rows, input_gradient=False)
    )
    return collect + encoder + reward + prepare_ppo + ppo


def main(rounds: int) -> None:
    config = resolve("comsd", "maze-tree")
    prepare(config.run)
    trainer = make_trainer(config, None, make_training_env(config, None))
    assert isinstance(trainer, OnPolicyTrainer)
    assert isinstance(trainer.agent.config, PPOConfig)
    needed = flops(trainer)
    for _ in range(10):
        trainer.train_step()
    measured = ratios(trainer.train_step, needed, rounds, per_round=CYCLES)
    print(f"maze cycle, {needed / 1e9:.2f} GFLOP, {torch.get_num_threads()} thread")
    report(measured)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
