"""Contrast between transitions and skills: what CIC introduced and ComSD rewards.

    q(tau, z) = exp(cos(f1(tau), f2(z)) / T)                        Eq. 6 of ComSD
    L_nce     = log q(tau_i, z_i) - log mean_j q(tau_j, z_i)        Eq. 7, maximised

tau is the pair (s, s').
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor, nn

from comsd.nets import MLP, Adam, Init, PairEncoder
from comsd.skills import SkillSpace
from comsd.terms import info_nce, info_nce_gradient, log_q, unit
from comsd.types import Batch, ObsInfo

Query = Literal["learned", "identity"]


class Contrasted(NamedTuple):
    """Both sides of the contrast, embedded."""

    state: Tensor  # (B, d)  embedding of s'
    key: Tensor  # (B, d)  f1(tau), of any length
    query: Tensor  # (Q, d)  f2(z), a unit vector per distinct skill
    owner: Tensor | None  # (B, Q)  which query is whose; None: one each


class Contrast(nn.Module):
    """f1 embeds transitions, f2 skills; the loss teaches them which belong together."""

    def __init__(
        self,
        obs: ObsInfo,
        space: SkillSpace,
        hidden: int,
        *,
        temperature: float,
        query: Query,
        init: Init,
    ) -> None:
        super().__init__()
        self.space, self.temperature = space, temperature
        self.f1 = PairEncoder(obs, hidden, space.dim, init=init)
        self.f2: MLP | None = None
        if query == "learned":
            self.f2 = MLP(space.dim, hidden, hidden, space.dim, init=init)

    def forward(self, batch: Batch) -> Contrasted:
        skills, owner = self.space.distinct(batch.skill)
        if self.f2 is not None:
            skills = unit(self.f2(skills))
        elif not self.space.unit_length:
            skills = unit(skills)
        return Contrasted(*self.f1(batch.obs, batch.next_obs), skills, owner)

    def loss(self, x: Contrasted) -> Tensor:
        return info_nce(x.query, x.key, x.owner, self.temperature)  # Eq. 7, negated

    def log_q(self, x: Contrasted) -> Tensor:
        """(B,): log q of every transition with its own skill (Eq. 6)."""
        return log_q(x.query, x.key, x.owner, self.temperature)

    def scores(self, x: Contrasted) -> Tensor:
        """(B, B): cosine of the skill of row i with the transition of row j."""
        own = x.query if x.owner is None else x.owner @ x.query
        return own @ unit(x.key).T

    def descend(self, batch: Batch, optimizer: Adam) -> Tensor:
        """One step down the loss; without autograd where the skills themselves are the queries."""
        skills, owner = self.space.distinct(batch.skill)
        if self.f2 is not None or owner is None:
            loss = self.loss(self(batch))
            optimizer.descend(loss)
            return loss.detach()

        def gradient(key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return info_nce_gradient(skills, key, owner, self.temperature)

        return self.f1.descend(batch.obs, batch.next_obs, gradient, optimizer)
