"""What `loss` and `reward` of a method have to return, said in one sentence where they do not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from comsd.errors import RunError
from comsd.types import Metrics


def pair(what: str, returned: Any) -> tuple[Tensor, Metrics]:
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return returned
    raise RunError(f"the {what} returns no pair of a tensor and a dict of metrics")


def checked_loss(method: str, returned: Any) -> tuple[Tensor, Metrics]:
    what = f"loss of {method}"
    loss, metrics = pair(what, returned)
    if loss.dim():
        raise RunError(f"the {what} has shape {tuple(loss.shape)}, not ()")
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise RunError(f"the {what} has no gradient: nothing it trains is in it")
    return loss, metrics


def checked_reward(method: str, returned: Any, like: Tensor) -> tuple[Tensor, Metrics]:
    """like: a column of the batch, (B,)."""
    what = f"reward of {method}"
    reward, metrics = pair(what, returned)
    if reward.shape != like.shape:
        raise RunError(f"the {what} has shape {tuple(reward.shape)}, not (B,)")
    if reward.dtype != like.dtype:
        raise RunError(f"the {what} is of {reward.dtype}, not {like.dtype}")
    return reward, metrics
