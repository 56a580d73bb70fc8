"""The forms of a critic: how twin values (B, 2) come from rows [s, z, a].

plain       Q = f(s, z, a)
successor   Q = z . psi(s, z, a)    psi with a number per coordinate of the skill (APS)
per-skill   Q = f_z(s, a)           a pair of heads per skill, on a trunk that does not see z (CeSD)

A method names the form it needs as `Method.critic`. Every form is an `MLP`: one flat parameter,
`run` and `run_back` with the gradient written out, and in `plain` the same in ordinary operations
(tests hold one to the other).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from comsd.nets import MLP, Scratch, add_relu, layer_grad, relu_backward


class Successor(MLP):
    """Both heads give a vector, which the skill turns into a value."""

    copied = (*MLP.copied, "skill")

    def __init__(self, obs: int, skill: int, actions: int, hidden: int) -> None:
        super().__init__(obs + skill + actions, hidden, hidden, skill, norm=True, heads=2)
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

    def plain(self, x: Tensor, flat: Tensor) -> Tensor:
        return self.values(super().plain(x, flat), x)


class PerSkill(MLP):
    """A pair of heads per skill of a one-hot space; each row goes through its own skill's alone.

    Rows are sorted by skill, and every pair of heads works on its piece: the work of two heads,
    whatever their number, and the same result as computing all heads and masking the others'.
    """

    copied = (*MLP.copied, "skill")

    def __init__(self, obs: int, skills: int, actions: int, hidden: int) -> None:
        trunk = max(1, hidden // 2)  # as in CeSD's code, 512 below heads of 1024
        super().__init__(obs + actions, trunk, hidden, 1, norm=True, heads=2 * skills)
        self.skill = slice(obs, obs + skills)  # its columns in a row

    def take_views(self) -> None:
        super().take_views()
        (trunk, _), (wide, _) = self.shapes[:2]
        self.count = self.heads // 2
        self.pairs = self.split(self.layers)
        self.memory = ((trunk, wide // self.count), *self.memory[1:])  # a row sees one pair

    def split(self, layers: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, ...]]:
        """Views for every skill: weight and bias of the hidden layer, of the last one."""
        (hidden, bias), (last, last_bias) = layers[1:]
        k = self.count
        blocks = last.view(k, 2, k, -1).diagonal(dim1=0, dim2=2)  # (2, units, k)
        parts = hidden.view(k, -1, hidden.shape[1]), bias.view(k, -1), last_bias.view(k, 2)
        weights, biases, last_biases = (part.unbind() for part in parts)
        return list(zip(weights, biases, blocks.unbind(-1), last_biases, strict=True))

    def without_skill(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, : self.skill.start], x[:, self.skill.stop :]], -1)

    def run(self, x: Tensor) -> tuple[Tensor, Scratch]:
        skill = x[:, self.skill].argmax(-1)
        order = skill.argsort(stable=True)
        counts = skill.bincount(minlength=self.count).tolist()
        scratch = self.borrow(len(x))
        scratch.x = self.without_skill(x)[order]
        scratch.route = order, counts
        trunk, q = self.run_norm(scratch.x, scratch), x.new_empty(len(x), 2)
        pieces = (part.split(counts) for part in (trunk, scratch.hidden[1], q))
        for below, hidden, out, pair in zip(*pieces, self.pairs, strict=True):
            if len(below):
                weight, bias, last, last_bias = pair
                units = add_relu(torch.mm(below, weight.t(), out=hidden), bias)
                torch.addmm(last_bias, units, last.t(), out=out)
        return torch.empty_like(q).index_copy_(0, order, q), scratch

    def run_back(self, grad: Tensor, scratch: Scratch, weights: bool = True) -> Tensor:
        order, counts = scratch.route
        to_trunk, to_hidden = scratch.grad
        whole = grad[order], scratch.norm[-1], scratch.hidden[1], to_trunk, to_hidden
        pieces = (part.split(counts) for part in whole)
        grads: list[tuple[Tensor, ...]] = [()] * self.count
        if weights:
            scratch.layer_grads[2][0].zero_()
            grads = self.split(scratch.layer_grads)
        for top, below, hidden, down, into, pair, own in zip(
            *pieces, self.pairs, grads, strict=True
        ):
            if not len(top):
                for part in own:
                    part.zero_()
                continue
            torch.mm(top, pair[2], out=into)
            relu_backward(into, hidden, 0, grad_input=into)
            torch.mm(into, pair[0], out=down)
            if weights:
                layer_grad(into, below, (own[0], own[1]))
                layer_grad(top, hidden, (own[2], own[3]))
        grad = self.back_through_norm(to_trunk, scratch, weights)
        if weights:
            last = scratch.layer_grads[2][0].view(self.count, 2, self.count, 2, -1)
            last[:, 0, :, 1].zero_()  # neither head of a pair sees the other's units
            last[:, 1, :, 0].zero_()
            layer_grad(grad, scratch.x, scratch.layer_grads[0])
        return torch.empty_like(grad).index_copy_(0, order, grad)

    def plain(self, x: Tensor, flat: Tensor) -> Tensor:
        """All heads on all rows, the others masked: what `run` computes, at many times the work."""
        every = super().plain(self.without_skill(x), flat).view(len(x), -1, 2)
        return (every * x[:, self.skill, None]).sum(1)

    def forward(self, x: Tensor, *, frozen: bool = False) -> Tensor:
        if torch.is_grad_enabled():
            return self.plain(x, self.flat.detach() if frozen else self.flat)
        return super().forward(x, frozen=frozen)


def plain(obs: int, skill: int, actions: int, hidden: int) -> MLP:
    return MLP(obs + skill + actions, hidden, hidden, 1, norm=True, heads=2)


CRITICS: dict[str, Callable[[int, int, int, int], MLP]] = {  # (obs, skill, actions, hidden)
    "plain": plain,
    "successor": Successor,
    "per-skill": PerSkill,
}
