"""Networks. An MLP is one flat parameter and one autograd node.

Small networks (128 wide, 250 rows) spend more time in Python, allocation and the optimiser's
bookkeeping than in matrix products. One node per MLP with its own backward, scratch memory that
is handed back after use, and one parameter for Adam to visit remove most of that, and large
networks lose nothing. `tests/test_nets.py` holds it to ordinary autograd.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

relu_backward = torch.ops.aten.threshold_backward.grad_input  # the in-place form


class Scratch:
    """Memory of one forward and backward pass through an MLP."""

    def __init__(self, net: MLP, rows: int) -> None:
        like = net.flat.detach()
        widths = [width for width, _ in net.shapes[:-1]]
        self.hidden = [like.new_empty(rows, width) for width in widths]
        # A layer's gradient may overwrite the activations above it, which are spent by then.
        self.grad = [
            above if above.shape[1] == width else like.new_empty(rows, width)
            for above, width in zip(self.hidden[1:], widths[:-1], strict=True)
        ]
        self.grad.append(torch.empty_like(self.hidden[-1]))


class _MLPNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, _flat: Tensor, net: MLP) -> Tensor:
        ctx.net, ctx.x, ctx.scratch = net, x, net.borrow(len(x))
        return net.run(x, ctx.scratch)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None]:
        grad, net, scratch = grads[0], ctx.net, ctx.scratch
        if scratch is None:  # the activations have been overwritten
            raise RuntimeError("backward through an MLP runs once per forward pass")
        ctx.scratch = None
        flat_grad = torch.empty_like(net.flat)
        layer_grads = net.views(flat_grad)
        for i in range(len(net.layers) - 1, 0, -1):
            below, into = scratch.hidden[i - 1], scratch.grad[i - 1]
            layer_grad(grad, below, layer_grads[i])
            torch.mm(grad, net.layers[i][0], out=into)
            grad = relu_backward(into, below, 0, grad_input=into)
        layer_grad(grad, ctx.x, layer_grads[0])
        grad_x = grad @ net.layers[0][0] if ctx.needs_input_grad[0] else None
        net.give_back(len(ctx.x), scratch)
        return grad_x, flat_grad, None


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

    def views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(weight, bias) of each layer, as views into a flat vector."""
        parts = flat.split(self.sizes)
        return [(parts[2 * i].view(shape), parts[2 * i + 1]) for i, shape in enumerate(self.shapes)]

    def _apply(self, fn: Any, recurse: bool = True) -> MLP:
        super()._apply(fn, recurse)  # .to(device) may move the parameter: take new views
        self.take_views()
        return self

    def take_views(self) -> None:
        self.layers = self.views(self.flat.detach())
        self.transposed = [(weight.t(), bias) for weight, bias in self.layers]
        self.free: dict[int, list[Scratch]] = {}  # by number of rows

    def borrow(self, rows: int) -> Scratch:
        pool = self.free.get(rows)
        return pool.pop() if pool else Scratch(self, rows)

    def give_back(self, rows: int, scratch: Scratch) -> None:
        self.free.setdefault(rows, []).append(scratch)

    def run(self, x: Tensor, scratch: Scratch) -> Tensor:
        for hidden, (weight, bias) in zip(scratch.hidden, self.transposed, strict=False):
            x = torch.addmm(bias, x, weight, out=hidden).relu_()
        weight, bias = self.transposed[-1]
        return torch.addmm(bias, x, weight)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and self.flat.requires_grad:
            return _MLPNode.apply(x, self.flat, self)  # pyright: ignore[reportReturnType]
        scratch = self.borrow(x.shape[0])
        with torch.no_grad():
            y = self.run(x, scratch)
        self.give_back(x.shape[0], scratch)
        return y


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

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Adam:
    """Adam over a few flat parameters: the functional form, without the optimiser's bookkeeping."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, eps: float = 1e-8) -> None:
        self.params: list[Tensor] = list(params)
        self.lr, self.eps = lr, eps
        self.mean = [torch.zeros_like(p) for p in self.params]
        self.square = [torch.zeros_like(p) for p in self.params]
        self.count = [torch.zeros((), device=p.device) for p in self.params]

    def descend(self, loss: Tensor) -> None:
        """One gradient step."""
        grads = torch.autograd.grad(loss, self.params)
        with torch.no_grad():
            adam(
                self.params,
                list(grads),
                self.mean,
                self.square,
                max_exp_avg_sqs=[],
                state_steps=self.count,
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.lr,
                weight_decay=0.0,
                eps=self.eps,
                maximize=False,
            )

    def state_dict(self) -> dict[str, list[Tensor]]:
        return {"mean": self.mean, "square": self.square, "count": self.count}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        for name, tensors in self.state_dict().items():
            for mine, saved in zip(tensors, state[name], strict=True):
                mine.copy_(saved)
