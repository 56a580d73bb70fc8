"""Networks. An MLP is one flat parameter and one autograd node.

Small networks (128 wide, 250 rows) spend more time in Python, allocation and the optimiser's
bookkeeping than in matrix products. One node per MLP with its own backward, scratch memory that
is handed back after use, and one parameter for Adam to visit remove most of that, and large
networks lose nothing. `tests/test_nets.py` holds it to ordinary autograd.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from comsd.types import ObsInfo

relu_backward = torch.ops.aten.threshold_backward.grad_input  # the in-place form


class Scratch:
    """Memory of one forward and backward pass through an MLP."""

    def __init__(self, net: MLP, rows: int) -> None:
        like = net.flat.detach()
        widths = [width for width, _ in net.shapes[:-1]]
        self.x = like  # the input of the pass
        self.hidden = [like.new_empty(rows, width) for width in widths]
        # A layer's gradient may overwrite the activations above it, which are spent by then.
        self.grad = [
            above if above.shape[1] == width else like.new_empty(rows, width)
            for above, width in zip(self.hidden[1:], widths[:-1], strict=True)
        ]
        self.grad += [torch.empty_like(hidden) for hidden in self.hidden[-1:]]
        self.flat_grad = torch.empty_like(like)
        self.layer_grads = net.views(self.flat_grad)


class _MLPNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, _flat: Tensor, net: MLP) -> Tensor:
        y, ctx.scratch = net.run(x)
        ctx.net = net
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None]:
        if ctx.scratch is None:  # the activations have been overwritten
            raise RuntimeError("backward through an MLP runs once per forward pass")
        scratch, ctx.scratch = ctx.scratch, None
        below = ctx.net.run_back(grads[0], scratch)
        grad_x = below @ ctx.net.layers[0][0] if ctx.needs_input_grad[0] else None
        ctx.net.give_back(scratch)
        return grad_x, scratch.flat_grad.clone(), None


def layer_grad(grad: Tensor, below: Tensor, out: tuple[Tensor, Tensor]) -> None:
    torch.mm(grad.t(), below, out=out[0])
    torch.sum(grad, 0, out=out[1])


class MLP(nn.Module):
    """Linear layers with ReLU between; `mlp(x)` for x of shape (rows, sizes[0])."""

    flat: nn.Parameter

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        self.sizes = [n for out, fan_in in self.shapes for n in (out * fan_in, out)]
        linears = [nn.Linear(fan_in, fan_out) for fan_out, fan_in in self.shapes]
        parts = [p.detach().flatten() for layer in linears for p in (layer.weight, layer.bias)]
        self.flat = nn.Parameter(torch.cat(parts))
        self.take_views()
        self.register_load_state_dict_post_hook(lambda net, _: net.take_views())

    def views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(weight, bias) of each layer, as views into a flat vector."""
        parts = flat.split(self.sizes)
        return [(parts[2 * i].view(shape), parts[2 * i + 1]) for i, shape in enumerate(self.shapes)]

    def _apply(self, fn: Any, recurse: bool = True) -> MLP:
        super()._apply(fn, recurse)  # .to(device) may move the parameter: take new views
        self.take_views()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> MLP:
        twin = MLP(self.shapes[0][1], *(out for out, _ in self.shapes))
        twin.flat = copy.deepcopy(self.flat, memo)
        twin.take_views()
        memo[id(self)] = twin
        return twin

    def take_views(self) -> None:
        self.layers = self.views(self.flat.detach())
        self.transposed = [(weight.t(), bias) for weight, bias in self.layers]
        self.free: dict[int, list[Scratch]] = {}  # by number of rows

    def borrow(self, rows: int) -> Scratch:
        pool = self.free.get(rows)
        return pool.pop() if pool else Scratch(self, rows)

    def give_back(self, scratch: Scratch) -> None:
        self.free.setdefault(len(scratch.x), []).append(scratch)

    def run(self, x: Tensor) -> tuple[Tensor, Scratch]:
        """The output, and what `run_back` needs; give that back afterwards."""
        scratch = self.borrow(len(x))
        scratch.x = x
        for hidden, (weight, bias) in zip(scratch.hidden, self.transposed, strict=False):
            x = torch.addmm(bias, x, weight, out=hidden).relu_()
        weight, bias = self.transposed[-1]
        return torch.addmm(bias, x, weight), scratch

    def run_back(self, grad: Tensor, scratch: Scratch) -> Tensor:
        """Fills `scratch.flat_grad`; returns the gradient at the first layer's output."""
        for i in range(len(self.layers) - 1, 0, -1):
            below, into = scratch.hidden[i - 1], scratch.grad[i - 1]
            layer_grad(grad, below, scratch.layer_grads[i])
            torch.mm(grad, self.layers[i][0], out=into)
            grad = relu_backward(into, below, 0, grad_input=into)
        layer_grad(grad, scratch.x, scratch.layer_grads[0])
        return grad

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and (self.flat.requires_grad or x.requires_grad):
            return _MLPNode.apply(x, self.flat, self)  # pyright: ignore[reportReturnType]
        with torch.no_grad():
            y, scratch = self.run(x)
        self.give_back(scratch)
        return y


class _PairNode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, _state: Tensor, _pair: Tensor, encoder: PairEncoder
    ) -> tuple[Tensor, Tensor]:
        ctx.encoder = encoder
        ctx.set_materialize_grads(False)
        states, embedded, *ctx.passes = encoder.run(x)
        return states, embedded

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.passes:
            raise RuntimeError("backward through a PairEncoder runs once per forward pass")
        (state_pass, pair_pass), ctx.passes = ctx.passes, []
        ctx.encoder.run_back(*grads, state_pass, pair_pass)
        ctx.encoder.give_back(state_pass, pair_pass)
        pair_grad = None if grads[1] is None else pair_pass.flat_grad.clone()
        return None, state_pass.flat_grad.clone(), pair_grad, None


class PairEncoder(nn.Module):
    """Embeds s and s' by one network and the pair of embeddings by another, as one node.

    The trajectory encoder of CIC and what builds on it.
    """

    def __init__(self, obs: ObsInfo, hidden: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.inputs = Standardise(obs.mean, obs.std)
        self.state = MLP(obs.dim, hidden, hidden, dim)
        self.pair = MLP(2 * dim, hidden, hidden, dim)

    def forward(self, obs: Tensor, next_obs: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of s' and of (s, s'), each (B, dim). Observations get no gradient."""
        both = self.interleave(obs, next_obs)
        if torch.is_grad_enabled():
            weights = self.state.flat, self.pair.flat
            states, pair = _PairNode.apply(both, *weights, self)  # pyright: ignore
        else:
            states, pair, *passes = self.run(both)
            self.give_back(*passes)
        return states[:, self.dim :], pair

    def interleave(self, obs: Tensor, next_obs: Tensor) -> Tensor:
        """s, s', s, s', ... so that the embeddings of a pair lie side by side."""
        return self.inputs(torch.stack([obs, next_obs], 1)).flatten(0, 1)

    def run(self, both: Tensor) -> tuple[Tensor, Tensor, Scratch, Scratch]:
        states, state_pass = self.state.run(both)
        states = states.view(len(both) // 2, -1)  # (B, 2 dim)
        pair, pair_pass = self.pair.run(states)
        return states, pair, state_pass, pair_pass

    def run_back(
        self, from_states: Tensor | None, from_pair: Tensor | None, state: Scratch, pair: Scratch
    ) -> None:
        """Fills the weights' gradients of both passes."""
        if from_pair is not None:
            grad = self.pair.run_back(from_pair, pair) @ self.pair.layers[0][0]
            from_states = grad if from_states is None else grad.add_(from_states)
        assert from_states is not None
        self.state.run_back(from_states.view(len(state.x), -1), state)

    def give_back(self, state_pass: Scratch, pair_pass: Scratch) -> None:
        self.state.give_back(state_pass)
        self.pair.give_back(pair_pass)

    @torch.no_grad()
    def descend(
        self,
        obs: Tensor,
        next_obs: Tensor,
        gradient: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
        optimizer: Adam,
    ) -> Tensor:
        """One step down a loss of the pair's embedding, given with its gradient: no autograd."""
        _, embedded, state_pass, pair_pass = self.run(self.interleave(obs, next_obs))
        loss, grad, _ = gradient(embedded)
        self.run_back(None, grad, state_pass, pair_pass)
        optimizer.step([state_pass.flat_grad, pair_pass.flat_grad])
        self.give_back(state_pass, pair_pass)
        return loss


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, *pairs: Tensor) -> Tensor:
        ctx.save_for_backward(*pairs[1::2])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (grads[0] * g for g in ctx.saved_tensors)
        return (None, *(part for g in scaled for part in (g, None)))


def with_gradient(value: Tensor, *pairs: tuple[Tensor, Tensor]) -> Tensor:
    """`value` (a scalar), differentiable: for each (input, d value / d input) given."""
    flat = [t for x, g in pairs if x.requires_grad for t in (x, g)]
    return _KnownGradient.apply(value, *flat) if flat else value  # pyright: ignore[reportReturnType]


class Standardise(nn.Module):
    """x -> (x - mean) / std with fixed statistics, kept with the network they belong to."""

    mean: Tensor
    std: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.register_buffer("scale", None, persistent=False)
        self.register_buffer("shift", None, persistent=False)
        self.prepare()
        self.register_load_state_dict_post_hook(lambda module, _: module.prepare())

    def prepare(self) -> None:
        """One multiplication and one addition instead of three steps."""
        self.scale, self.shift = 1 / self.std, -self.mean / self.std

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, x, self.scale)


class Adam:
    """Adam over a few flat parameters: torch's fused kernel without the optimiser around it."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, eps: float = 1e-8) -> None:
        self.params: list[Tensor] = list(params)
        self.lr, self.eps = lr, eps
        self.mean = [torch.zeros_like(p) for p in self.params]
        self.square = [torch.zeros_like(p) for p in self.params]
        self.count = torch.zeros((), device=self.params[0].device)

    def descend(self, loss: Tensor) -> None:
        """One step down a scalar loss."""
        self.step(list(torch.autograd.grad(loss, self.params)))

    @torch.no_grad()
    def step(self, grads: list[Tensor]) -> None:
        """One step along given gradients."""
        self.count += 1
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
            self.params,
            grads,
            self.mean,
            self.square,
            [],
            [self.count] * len(grads),
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def state_dict(self) -> dict[str, list[Tensor]]:
        return {"mean": self.mean, "square": self.square, "count": [self.count]}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        for name, tensors in self.state_dict().items():
            for mine, saved in zip(tensors, state[name], strict=True):
                mine.copy_(saved)
