"""torch.compile for the losses of an off-policy update: the same equations, fused by the compiler.

The eager update has its gradients written out and its memory laid out by hand; here the plain
form of each loss is traced as one graph and differentiated by autograd.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from comsd.agents.ddpg import DDPG
from comsd.errors import InputError
from comsd.methods.base import Method
from comsd.nets import Adam
from comsd.types import Batch, Lesson, Metrics


def check_compiler(device: torch.device) -> None:
    """A clear sentence now instead of a long failure at the first update."""
    if device.type == "cuda":
        found, what = importlib.util.find_spec("triton") is not None, "triton"
    else:
        from torch._inductor import exc
        from torch._inductor.cpp_builder import get_cpp_compiler

        what = "a C++ compiler such as g++"
        try:
            found = bool(get_cpp_compiler())
        except exc.InvalidCxxCompiler:
            found = False
    if not found:
        raise InputError(f"agent.compile is True but needs {what}, which is not found here")


def whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled as one graph for one shape."""
    return torch.compile(function, fullgraph=True, dynamic=False)


def compiled_learn(
    method: Method,
) -> Callable[[Batch, Adam | None], Lesson]:
    """`Method.learn` with embedding, reward and loss compiled."""

    def assess(batch: Batch) -> tuple[Tensor, Metrics, Lesson | None]:
        features = method.embed(batch)
        loss, metrics = method.loss(batch, features)
        return loss, metrics, None if method.config.reward_after else method.lesson(batch, features)

    assess, lesson = whole(assess), whole(method.lesson)

    def learn(batch: Batch, optimizer: Adam | None) -> Lesson:
        if optimizer is None:
            return lesson(batch)
        loss, metrics, learnt = assess(batch)
        optimizer.descend(loss)
        reward, parts, credit = lesson(batch) if learnt is None else learnt
        return Lesson(reward, metrics | parts, credit)

    return learn


def compile_agent(agent: DDPG) -> None:
    """Replace the two steps of an agent by steps down its compiled losses, if its critic allows."""
    if not agent.critic.compilable:
        return
    critic_loss, actor_loss = whole(agent.critic_loss), whole(agent.actor_loss)

    @torch.enable_grad()
    def critic_step(x_action: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        loss, q = critic_loss(x_action, y)
        agent.critic_optimizer.descend(loss)
        return q, q - y[:, None]

    @torch.enable_grad()
    def actor_step(x: Tensor, noise: Tensor) -> None:
        agent.actor_optimizer.descend(actor_loss(x, noise))

    agent.critic_step, agent.actor_step = critic_step, actor_step
