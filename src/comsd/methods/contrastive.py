"""Contrastive learning between transitions and skills: introduced by CIC, rewarded by ComSD.

    q(tau, z) = exp(cos(f1(tau), f2(z)) / T)                        Eq. 6 of ComSD
    L_nce     = log q(tau_i, z_i) - log mean_j q(tau_j, z_i)        Eq. 7, maximised
    L_nb      = the same with (s, s') in place of (tau, z)          Sec. V-M, for images

tau is the pair (s, s'), s' a window of n steps or a single one later (`tau`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.config import setting
from comsd.errors import InputError
from comsd.methods.base import MethodConfig
from comsd.nn import MLP, Normalizer
from comsd.skills import SkillSpace
from comsd.types import Batch, Metrics, ObsSpec

CODE = "CIC's code"


@dataclass(frozen=True)
class ContrastiveConfig(MethodConfig):
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
    tau: Literal["window", "adjacent"] = setting(
        "window",
        "s' of tau: after the n steps of a window, or after one, as the paper writes it",
        f"{CODE}, which the paper follows",
    )
    neighbour_weight: float = setting(
        0.0, "weight of the contrast of neighbouring states, L_nb", "paper, Sec. V-M: images", low=0
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


def info_nce(
    query: Tensor,
    key: Tensor,
    temperature: float,
    assignment: Tensor | None = None,
    left_out: float | None = None,
) -> Tensor:
    """Mean contrastive loss (Eq. 7, negated), a scalar, for unit vectors.

    query (Q, d): one per distinct skill; key (N, d): one per transition; assignment (N, Q):
    one-hot rows that say which query each key belongs to, None if each has its own. For key i the
    positive is its own query and the negatives are the keys of other queries, so several keys of
    one skill are never each other's negatives. With K discrete skills the table is (N, K), with N
    distinct skills (N, N). left_out: a constant that CIC's code takes off the denominator.
    """
    if assignment is None:
        logits = query @ key.T / temperature  # (N, N): a row per skill
        if left_out is None:
            return F.cross_entropy(logits, torch.arange(len(key), device=key.device))
        total = (logits.exp().sum(1) - left_out).clamp_min(1e-6) + 1e-6
        return (total.log() - logits.diagonal()).mean()
    q = (key @ query.T / temperature).exp()  # (N, K); below e^34, since T >= 0.03
    positives = q * assignment
    positive, negatives = positives.sum(1), (q - positives).sum(0)
    return ((positive + assignment @ negatives) / positive).log().mean()


class ContrastiveFeatures(NamedTuple):
    """Both sides of the contrast, embedded."""

    state: Tensor  # (B, d)  embedding of s
    next_state: Tensor  # (B, d)  embedding of s'
    key: Tensor  # (B, d)  f1(tau), of any length
    query: Tensor  # (Q, d)  f2(z), a unit vector per distinct skill
    assignment: Tensor | None  # (B, Q)  which query is whose; None: one each

    @property
    def own_query(self) -> Tensor:
        """The query of every transition's skill, (B, d)."""
        return self.query if self.assignment is None else self.assignment @ self.query


class ContrastiveEncoder(nn.Module):
    """f1 embeds transitions, f2 skills; the loss teaches them which belong together."""

    def __init__(self, obs: ObsSpec, space: SkillSpace, config: ContrastiveConfig) -> None:
        super().__init__()
        c, d = config, space.dim
        self.space, self.temperature, self.tau = space, c.temperature, c.tau
        self.neighbour_weight = c.neighbour_weight
        self.reads = ("obs", "next_obs") if c.tau == "window" else ("obs", "one_step_obs")
        self.constant = math.exp(1 / c.temperature) if c.denominator == "constant" else None
        self.normalizer = Normalizer(obs.mean, obs.std)
        self.state = MLP(obs.dim, c.hidden, c.hidden, d, init=c.init)
        self.pair = MLP(2 * d, c.hidden, c.hidden, d, init=c.init)  # f1 = pair(state, next state)
        learned = c.query == "learned"
        self.f2 = MLP(d, c.hidden, c.hidden, d, init=c.init) if learned else nn.Identity()

    def forward(self, batch: Batch) -> ContrastiveFeatures:
        later = batch.next_obs if self.tau == "window" else batch.one_step_obs
        both = self.state(self.normalizer(torch.cat([batch.obs, later])))
        state, next_state = both.chunk(2)
        key = self.pair(torch.cat([state, next_state], -1))
        skills, assignment = self.space.unique(batch.skill)
        query = F.normalize(self.f2(skills), dim=-1)
        return ContrastiveFeatures(state, next_state, key, query, assignment)

    def loss(self, f: ContrastiveFeatures) -> Tensor:
        key = F.normalize(f.key, dim=-1)
        return info_nce(f.query, key, self.temperature, f.assignment, self.constant)  # Eq. 7

    def neighbour_loss(self, f: ContrastiveFeatures) -> Tensor:
        """Which s belongs to an s' (L_nb, negated)?"""
        state, next_state = F.normalize(f.state, dim=-1), F.normalize(f.next_state, dim=-1)
        return info_nce(next_state, state, self.temperature, left_out=self.constant)

    def losses(self, f: ContrastiveFeatures, group: str) -> tuple[Tensor, Metrics]:
        """What is minimised, and its terms for the log; group: the method's name."""
        nce = self.loss(f)
        terms = {f"{group}/nce": nce.detach()}
        if not self.neighbour_weight:
            return nce, terms
        neighbours = self.neighbour_loss(f)
        terms[f"{group}/nce_neighbours"] = neighbours.detach()
        return nce + self.neighbour_weight * neighbours, terms

    def log_q(self, f: ContrastiveFeatures) -> Tensor:
        """(B,): log q of every transition with its own skill (Eq. 6)."""
        return (f.own_query * F.normalize(f.key, dim=-1)).sum(-1) / self.temperature

    def skill_scores(self, f: ContrastiveFeatures) -> Tensor:
        """(B, B): log q of the skill of row i with the transition of row j (Eq. 6)."""
        return f.own_query @ F.normalize(f.key, dim=-1).T / self.temperature
