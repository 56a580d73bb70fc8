"""Contrast between transitions and skills: what CIC introduced and ComSD rewards.

    q(tau, z) = exp(cos(f1(tau), f2(z)) / T)                        Eq. 6 of ComSD
    L_nce     = log q(tau_i, z_i) - log mean_j q(tau_j, z_i)        Eq. 7, maximised

tau is the pair (s, s').
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor, nn

from comsd.config import setting
from comsd.errors import InputError
from comsd.methods.base import MethodConfig
from comsd.nets import MLP, Adam, PairEncoder, without_gradient
from comsd.skills import OneHot, SkillSpace
from comsd.terms import (
    info_nce,
    info_nce_gradient,
    log_q,
    normalise,
    own_query,
    through_norm,
    unit,
)
from comsd.types import Batch, ObsInfo

CODE = "CIC's code"


@dataclass(frozen=True)
class ContrastConfig(MethodConfig):
    """What CIC and the methods built on it have in common."""

    temperature: float = setting(
        0.5, "temperature T (Eq. 6)", f"{CODE}; the paper's table", low=0.03
    )
    query: Literal["learned", "identity"] = setting("learned", "f2: a network or z itself", CODE)
    denominator: Literal["all", "constant"] = setting(
        "all",
        "of Eq. 7: all transitions, or less the constant e^(1/T) as in CIC's code (continuous z)",
        "paper, Eq. 7",
    )
    k: int = setting(16, "nearest neighbours", CODE, low=2)

    def check_space(self, kind: str) -> None:
        if self.denominator == "constant" and kind == "one-hot":
            raise InputError(
                "method.denominator is 'constant', which has no effect on one-hot skills; "
                "allowed: all"
            )

    def rows_needed(self) -> dict[str, int]:
        return {"k": self.k}


class Contrasted(NamedTuple):
    """Both sides of the contrast, embedded."""

    states: Tensor  # (B, 2 d)  embeddings of s and s' side by side
    key: Tensor  # (B, d)  f1(tau), of any length
    query: Tensor | None  # (Q, d)  f2(z), a unit vector per distinct skill; None: the axes
    owner: Tensor | None  # (B, Q)  which query is whose; None: one each
    q: Tensor | None = None  # (B,)  of every transition with its own skill, if known already

    @property
    def before(self) -> Tensor:
        """Embedding of s, (B, d)."""
        return self.states[:, : self.states.shape[1] // 2]

    @property
    def after(self) -> Tensor:
        """Embedding of s', (B, d)."""
        return self.states[:, self.states.shape[1] // 2 :]


class Contrast(nn.Module):
    """f1 embeds transitions, f2 skills; the loss teaches them which belong together."""

    def __init__(self, obs: ObsInfo, space: SkillSpace, config: ContrastConfig) -> None:
        super().__init__()
        c = config
        self.space, self.temperature = space, c.temperature
        self.constant = math.exp(1 / c.temperature) if c.denominator == "constant" else None
        self.f1 = PairEncoder(obs, c.hidden, space.dim, init=c.init)
        self.f2: MLP | None = None
        if c.query == "learned":
            self.f2 = MLP(space.dim, c.hidden, c.hidden, space.dim, init=c.init)
        self.skills_are_axes = self.f2 is None and isinstance(space, OneHot)

    def forward(self, batch: Batch) -> Contrasted:
        skills, owner = self.space.distinct(batch.skill)
        raw = skills if self.f2 is None else self.f2(skills)
        states = self.f1.states(batch.obs, batch.next_obs)
        query = None if self.skills_are_axes else unit(raw)
        return Contrasted(states, self.f1.pair(states), query, owner)

    def loss(self, x: Contrasted) -> Tensor:
        # Eq. 7, negated
        return info_nce(x.query, x.key, x.owner, self.temperature, self.constant)

    def log_q(self, x: Contrasted) -> Tensor:
        """(B,): log q of every transition with its own skill (Eq. 6)."""
        if x.q is not None:
            return x.q.log()
        return log_q(x.query, x.key, x.owner, self.temperature)

    def scores(self, x: Contrasted) -> Tensor:
        """(B, B): cosine of the skill of row i with the transition of row j."""
        return own_query(x.query, x.owner) @ unit(x.key).T

    @without_gradient
    def descend(self, batch: Batch, optimizer: Adam) -> tuple[Contrasted, Tensor]:
        """One step down the loss; what was embedded on the way, and the loss before the step."""
        embedded, loss, grads = self.gradients(batch)
        optimizer.step(grads)
        return embedded, loss

    @without_gradient
    def gradients(self, batch: Batch) -> tuple[Contrasted, Tensor, list[Tensor]]:
        """What was embedded, the loss, and its gradients, which last until the next pass.

        They are written out, which takes two thirds of the time of autograd.
        """
        f1, f2 = self.f1, self.f2
        skills, owner = self.space.distinct(batch.skill)
        states, key, *passes = f1.run(f1.interleave(batch.obs, batch.next_obs))
        raw, skill_pass = (skills, None) if f2 is None else f2.run(skills)
        query, norm = (None, None) if self.skills_are_axes else normalise(raw)
        form = self.temperature, self.constant
        nce = info_nce_gradient(query, key, owner, *form)
        grads = [part.flat_grad for part in passes]
        if f2 is not None and skill_pass is not None:  # first, while it is in the cache
            assert query is not None
            assert norm is not None
            assert nce.to_query is not None
            f2.run_back(through_norm(nce.to_query, query, norm), skill_pass)
            grads.append(skill_pass.flat_grad)
            f2.give_back(skill_pass)
        f1.run_back(nce.to_key, *passes)
        f1.give_back(*passes)
        return Contrasted(states, key, query, owner, nce.own), nce.loss, grads
