"""The forms of a critic: how twin values (B, 2) come from rows [s, z, a].

plain       Q = f(s, z, a)
successor   Q = z . psi(s, z, a)    psi with a number per coordinate of the skill (APS)
per-skill   Q = f_z(s, a)           a pair of heads per skill, on a trunk that does not see z (CeSD)

A method names the form it needs as `Method.critic`. Every form is an `MLP`: one flat parameter,
`run`, after it `gradients` (what the critic descends) or `to_action` (what the actor climbs),
written out, and in `plain` the same in ordinary operations (tests hold one to the other).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.nets import MLP, Scratch, add_relu, layer_grad, relu_backward
from comsd.skills import OneHot, SkillSpace

PIECE = 2**20  # numbers of a gradient that stay in the cache until Adam has used them


class Critic(MLP):
    """Twin values (B, 2) of rows [s, z, a]."""

    copied = (*MLP.copied, "actions")
    spaces: ClassVar[tuple[type[SkillSpace], ...]] = (SkillSpace,)  # whose skills it can take
    compilable: ClassVar[bool] = True  # has it fixed shapes?
    actions: int  # the last columns of a row

    def gradients(self, grad: Tensor, scratch: Scratch) -> Iterator[tuple[slice, Tensor]]:
        """Where in the flat parameter, and the gradient there, given the one at the values (B, 2).

        Every piece is to be used before the next is asked for, and may be moved by then.
        """
        self.run_back(grad, scratch)
        yield slice(None), scratch.flat_grad

    def to_action(self, q: Tensor, scratch: Scratch) -> Tensor:
        """The gradient of min(Q1, Q2) at the action, (B, A)."""
        first = q[:, :1] <= q[:, 1:]
        lesser = torch.cat([first, ~first], 1).to(q.dtype)
        return self.below_action(self.run_back(lesser, scratch, weights=False))

    def below_action(self, grad: Tensor) -> Tensor:
        """From the first layer's output to the action."""
        return torch.mm(grad, self.layers[0][0][:, -self.actions :])


class Twin(Critic):
    """Two heads on one trunk that sees all; of one number each in the form `plain`."""

    def __init__(self, obs: int, skill: int, actions: int, hidden: int, out: int = 1) -> None:
        super().__init__(obs + skill + actions, hidden, hidden, out, norm=True, heads=2)
        self.actions = actions

    def take_views(self) -> None:
        super().take_views()
        wide, last = (self.layers[i][0].chunk(2) for i in (1, 2))
        self.own = [(wide[h], last[h].chunk(2, 1)[h]) for h in (0, 1)]  # weights of each head

    def to_action(self, q: Tensor, scratch: Scratch) -> Tensor:
        """Half the work: a row goes back through its lesser head alone."""
        if q.device.type != "cpu":  # which would have to tell first how many rows go where
            return super().to_action(q, scratch)
        first, into = q[:, 0] <= q[:, 1], scratch.grad[0]
        heads = zip((first, ~first), scratch.hidden[1].chunk(2, 1), self.own, strict=True)
        for chosen, units, (wide, last) in heads:
            rows = chosen.nonzero().flatten()
            active = units.index_select(0, rows).gt_(0)
            to_units = active.mul_(self.to_heads(last, scratch.x, rows))
            into.index_copy_(0, rows, torch.mm(to_units, wide))
        return self.below_action(self.back_through_norm(into, scratch, weights=False))

    def to_heads(self, last: Tensor, _x: Tensor, _rows: Tensor) -> Tensor:
        """d Q / d units of a head with the last layer given, for some rows of x."""
        return last


class Successor(Twin):
    """Both heads give a vector, which the skill turns into a value."""

    copied = (*Critic.copied, "skill")

    def __init__(self, obs: int, skill: int, actions: int, hidden: int) -> None:
        super().__init__(obs, skill, actions, hidden, out=skill)
        self.skill = slice(obs, obs + skill)  # its columns in a row

    def values(self, psi: Tensor, x: Tensor) -> Tensor:
        return (psi.view(len(x), 2, -1) * x[:, None, self.skill]).sum(-1)

    def run(self, x: Tensor) -> tuple[Tensor, Scratch]:
        psi, scratch = super().run(x)
        return self.values(psi, x), scratch

    def run_back(self, grad: Tensor, scratch: Scratch, weights: bool = True) -> Tensor:
        """As `MLP.run_back`; the skill is given, so no gradient is taken through z in z . psi."""
        to_psi = grad[:, :, None] * scratch.x[:, None, self.skill]
        return super().run_back(to_psi.flatten(1), scratch, weights)

    def to_heads(self, last: Tensor, x: Tensor, rows: Tensor) -> Tensor:
        return x[:, self.skill].index_select(0, rows) @ last

    def plain(self, x: Tensor, flat: Tensor) -> Tensor:
        return self.values(super().plain(x, flat), x)


class PerSkill(Critic):
    """A pair of heads per skill of a one-hot space; each row goes through its own skill's alone.

    Rows are sorted by skill, and the wide layer of every pair works on its piece: the work of two
    heads, whatever their number. The last layer is so narrow that all skills are computed at once
    and the others masked. Pieces have no `run_back`; `gradients` and `to_action` are theirs.
    """

    copied = (*Critic.copied, "skill")
    spaces = (OneHot,)
    compilable = False  # rows go where their skill says; a graph would compute all heads

    def __init__(self, obs: int, skills: int, actions: int, hidden: int) -> None:
        trunk = max(1, hidden // 2)  # as in CeSD's code, 512 below heads of 1024
        super().__init__(obs + actions, trunk, hidden, 1, norm=True, heads=2 * skills)
        self.actions, self.skill = actions, slice(obs, obs + skills)  # columns of a row
        self.leave_out_zeros()

    def leave_out_zeros(self) -> None:
        """Keep of the last layer what belongs to each head, (2 K, hidden): less for Adam to do."""
        assert self.mask is not None
        *below, last, bias, scale, shift = self.flat.detach().split(self.sizes)
        last = last[self.mask.flatten() > 0]
        self.shapes[-1], self.sizes[4] = (self.heads, len(last) // self.heads), len(last)
        self.flat = nn.Parameter(torch.cat([*below, last, bias, scale, shift]))
        self.mask = None
        self.take_views()

    def take_views(self) -> None:
        super().take_views()
        (trunk, _), (wide, _) = self.shapes[:2]
        self.count = self.heads // 2
        self.memory = ((trunk, wide // self.count), *self.memory[1:])  # a row sees one pair

    def by_skill(self, layers: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        """Views (K, ...) of weight and bias of the wide layer, (2, K, ...) of those of the last."""
        (wide, bias), last = layers[1:]
        pairs = (part.view(self.count, 2, -1).transpose(0, 1) for part in last)
        return wide.view(self.count, -1, wide.shape[1]), bias.view(self.count, -1), *pairs

    def by_head(self, units: Tensor) -> Tensor:
        """(B, 2 hidden) as (2, B, hidden)."""
        return units.view(len(units), 2, -1).transpose(0, 1)

    def without_skill(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, : self.skill.start], x[:, self.skill.stop :]], -1)

    def run(self, x: Tensor) -> tuple[Tensor, Scratch]:
        skill = x[:, self.skill].argmax(-1)
        order, sizes = skill.argsort(stable=True), skill.bincount(minlength=self.count).tolist()
        owner = x[order, self.skill]  # (B, K)  one-hot
        scratch = self.borrow(len(x))
        scratch.x, scratch.route = self.without_skill(x)[order], (order, sizes, owner)
        weights, biases, last, last_bias = self.by_skill(self.layers)
        below, units = self.run_norm(scratch.x, scratch), scratch.hidden[1]
        pieces = below.split(sizes), units.split(sizes)
        for piece, out, weight, bias in zip(*pieces, weights, biases, strict=True):
            add_relu(torch.mm(piece, weight.t(), out=out), bias)
        every = torch.bmm(self.by_head(units), last.mT).add_(last_bias.mT)  # (2, B, K)
        q = every.mul_(owner).sum(-1).t()
        return torch.empty_like(q).index_copy_(0, order, q), scratch

    def gradients(self, grad: Tensor, scratch: Scratch) -> Iterator[tuple[slice, Tensor]]:
        order, sizes, owner = scratch.route
        below, units, (to_below, to_units) = scratch.norm[-1], scratch.hidden[1], scratch.grad
        wide, _, last, _ = self.by_skill(self.layers)
        to_wide, to_bias, to_last, to_last_bias = self.by_skill(scratch.layer_grads)
        to_every = grad[order].t()[:, :, None] * owner  # (2, B, K)
        torch.bmm(to_every, last, out=self.by_head(to_units))
        relu_backward(to_units, units, 0, grad_input=to_units)
        torch.mm(owner.t(), to_units, out=to_bias)
        to_last.copy_(torch.bmm(to_every.mT, self.by_head(units)))
        to_last_bias.copy_(to_every.sum(1)[:, :, None])

        pieces = [part.split(sizes) for part in (to_units, below, to_below)]
        each = list(zip(*pieces, wide, strict=True))
        start, size = sum(self.sizes[:2]), wide[0].numel()
        some = max(1, PIECE // size)  # skills at a time, all in the memory of the first
        for first in range(0, self.count, some):
            group = each[first : first + some]
            for (piece, seen, out, weight), own in zip(group, to_wide, strict=False):
                torch.mm(piece, weight, out=out)
                torch.mm(piece.t(), seen, out=own)  # zero for a skill without rows
            where = slice(start + first * size, start + (first + len(group)) * size)
            yield where, to_wide[: len(group)].view(-1)

        grad = self.back_through_norm(to_below, scratch, weights=True)
        layer_grad(grad, scratch.x, scratch.layer_grads[0])
        for where in (slice(start), slice(start + self.sizes[2], None)):
            yield where, scratch.flat_grad[where]

    def to_action(self, q: Tensor, scratch: Scratch) -> Tensor:
        """Half the work: a row goes back through the lesser head of its skill alone."""
        order, _, owner = scratch.route
        second = (q[:, 1] < q[:, 0])[order].long()
        head = owner.argmax(-1).mul_(2).add_(second)
        rows, sizes = head.argsort(stable=True), head.bincount(minlength=self.heads).tolist()
        units = scratch.hidden[1].view(2 * len(q), -1)  # of a row's two heads in turn
        active = units.index_select(0, 2 * rows + second[rows]).gt_(0)
        (wide, _), (last, _) = self.layers[1:]
        to_below, wide = torch.empty_like(scratch.grad[0]), wide.view(self.heads, -1, wide.shape[1])
        pieces = active.split(sizes), to_below.split(sizes)
        for piece, out, own, weight in zip(*pieces, last, wide, strict=True):
            torch.mm(piece.mul_(own), weight, out=out)
        into = torch.index_select(to_below, 0, rows.argsort(), out=scratch.grad[0])
        grad = self.below_action(self.back_through_norm(into, scratch, weights=False))
        return torch.empty_like(grad).index_copy_(0, order, grad)

    def every(self, x: Tensor, flat: Tensor) -> Tensor:
        """The values of all heads on all rows, (B, K, 2)."""
        ((trunk, trunk_bias), (wide, bias), (last, last_bias)), norm = self.views(flat)
        below = F.linear(self.without_skill(x), trunk, trunk_bias)
        below = F.layer_norm(below, (below.shape[1],), norm[0], norm[1]).tanh()
        units = F.linear(below, wide, bias).relu().view(len(x), self.heads, -1)
        return ((units * last).sum(-1) + last_bias).view(len(x), -1, 2)

    def plain(self, x: Tensor, flat: Tensor) -> Tensor:
        """All heads, the others masked: what `run` computes, at many times the work."""
        return (self.every(x, flat) * x[:, self.skill, None]).sum(1)

    def forward(self, x: Tensor, *, frozen: bool = False) -> Tensor:
        if torch.is_grad_enabled():
            return self.plain(x, self.flat.detach() if frozen else self.flat)
        return super().forward(x, frozen=frozen)


CRITICS: dict[str, type[Critic]] = {  # of (obs, skill, actions, hidden)
    "plain": Twin,
    "successor": Successor,
    "per-skill": PerSkill,
}
