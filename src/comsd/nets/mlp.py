"""Multi-layer perceptrons: one flat parameter and one autograd node each.

Small networks (128 wide, 250 rows) spend more time in Python, allocation and the optimiser's
bookkeeping than in matrix products. One node per MLP with its own backward, scratch memory that
is handed back after use, and one parameter for Adam to visit remove most of that, and large
networks lose nothing. `tests/test_nets.py` holds it to ordinary autograd.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.nets.autograd import without_gradient

relu_backward = torch.ops.aten.threshold_backward.grad_input  # the in-place forms
tanh_backward = torch.ops.aten.tanh_backward.grad_input
layer_norm = torch.native_layer_norm
layer_norm_backward = torch.ops.aten.native_layer_norm_backward

Init = Literal["orthogonal", "uniform"]

# Sizes at which a product is faster with its operands swapped, or with its rows in pieces.
NARROW = 8  # outputs fewer than this are computed transposed, which takes half the time
THIN = 4, 96  # inputs so few have their weights' gradient computed transposed: of small, of large
CACHE, MANY = 2**17, 512  # activations that stay in the cache; rows that a product needs
FEW, LARGE = (9, 16), 2**20  # rows and weights whose product is computed transposed


class Scratch:
    """Memory of one forward and backward pass through an MLP, and the gradient it leaves.

    The activations go from network to network: memory that was just used is still in the cache.
    """

    free: ClassVar[dict[tuple[Any, ...], list[Scratch]]] = {}  # by shape

    x: Tensor  # the input of the pass
    norm: tuple[Tensor, ...]  # of the first layer: input, mean, 1 / std, output
    route: Any  # which rows went where, for a network that sends them different ways
    flat_grad: Tensor
    layer_grads: list[tuple[Tensor, Tensor]]
    norm_grads: list[Tensor]

    def __init__(self, like: Tensor, rows: int, widths: Sequence[int], pool: list[Scratch]) -> None:
        self.pool = pool  # where it waits to be used again
        self.hidden = [like.new_empty(rows, width) for width in widths]
        # A layer's gradient may overwrite the activations above it, which are spent by then.
        self.grad = [
            above if above.shape[1] == width else like.new_empty(rows, width)
            for above, width in zip(self.hidden[1:], widths[:-1], strict=True)
        ]
        self.grad += [torch.empty_like(hidden) for hidden in self.hidden[-1:]]


class _MLPNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, _flat: Tensor, net: MLP) -> Tensor:
        y, ctx.scratch = net.run(x)
        ctx.net = net
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        if ctx.scratch is None:  # the activations have been overwritten
            raise RuntimeError("backward through an MLP runs once per forward pass")
        scratch, ctx.scratch = ctx.scratch, None
        wants_x, wants_weights = ctx.needs_input_grad[:2]
        below = ctx.net.run_back(grads[0], scratch, weights=wants_weights)
        grad_x = below @ ctx.net.layers[0][0] if wants_x else None
        ctx.net.give_back(scratch)
        return grad_x, scratch.flat_grad.clone() if wants_weights else None, None


def add_relu(x: Tensor, bias: Tensor) -> Tensor:
    """max(x + bias, 0) in place, in one pass over the memory where torch can."""
    if x.is_cpu:
        return torch._add_relu_(x, bias)  # pyright: ignore[reportPrivateImportUsage]
    return x.add_(bias).relu_()


def layer_grad(grad: Tensor, below: Tensor, out: tuple[Tensor, Tensor]) -> None:
    """Of weight and bias, given the gradient at a layer's output."""
    few = THIN[grad.numel() >= LARGE]
    if below.shape[1] <= few:
        out[0].copy_(torch.mm(below.t(), grad).t())
    else:
        torch.mm(grad.t(), below, out=out[0])
    torch.sum(grad, 0, out=out[1])


def initial(fan_out: int, fan_in: int, init: Init) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear layer."""
    layer = nn.Linear(fan_in, fan_out)
    if init == "orthogonal":
        nn.init.orthogonal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return layer.weight.detach(), layer.bias.detach()


class MLP(nn.Module):
    """Linear layers with ReLU between; `mlp(x)` for x of shape (rows, sizes[0]).

    norm:  the first layer is followed by LayerNorm and tanh instead of ReLU
    heads: that many networks of the given sizes which share their first layer; (rows, heads * out)
    """

    flat: nn.Parameter
    mask: Tensor | None  # of the last layer's weights: what belongs to each head
    copied: ClassVar[tuple[str, ...]] = ("norm", "heads", "shapes", "sizes")

    def __init__(
        self, *sizes: int, init: Init = "orthogonal", norm: bool = False, heads: int = 1
    ) -> None:
        super().__init__()
        assert heads == 1 or len(sizes) == 4, "heads have one hidden layer of their own"
        self.norm, self.heads = norm, heads
        fan_in, shared, *rest = sizes
        widths = [shared, *(heads * width for width in rest)]
        self.shapes = list(zip(widths, [fan_in, *widths[:-1]], strict=True))
        self.sizes = [n for out, below in self.shapes for n in (out * below, out)]
        self.sizes += [shared, shared] if norm else []
        parts = list(initial(shared, fan_in, init))
        for i, (below, width) in enumerate(pairwise(sizes[1:])):
            weights, biases = zip(*(initial(width, below, init) for _ in range(heads)), strict=True)
            own = torch.cat(weights) if i == 0 else torch.block_diag(*weights)
            parts += [own, torch.cat(biases)]
        parts += [torch.ones(shared), torch.zeros(shared)] if norm else []
        self.flat = nn.Parameter(torch.cat([part.flatten() for part in parts]))
        mask = None if heads == 1 else block_mask(self.shapes[-1], heads, self.flat)
        self.register_buffer("mask", mask, persistent=False)
        self.take_views()
        self.register_load_state_dict_post_hook(lambda net, _: net.take_views())

    def views(self, flat: Tensor) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
        """(weight, bias) of each layer, and of the norm if there is one: views into a vector."""
        parts = flat.split(self.sizes)
        layers = [(parts[2 * i].view(s), parts[2 * i + 1]) for i, s in enumerate(self.shapes)]
        return layers, list(parts[2 * len(layers) :])

    def _apply(self, fn: Any, recurse: bool = True) -> MLP:
        super()._apply(fn, recurse)  # .to(device) may move the parameter: take new views
        self.take_views()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> MLP:
        twin = type(self).__new__(type(self))
        nn.Module.__init__(twin)
        for name in self.copied:
            setattr(twin, name, getattr(self, name))
        twin.flat = copy.deepcopy(self.flat, memo)
        twin.register_buffer("mask", self.mask, persistent=False)
        twin.take_views()
        twin.register_load_state_dict_post_hook(lambda net, _: net.take_views())
        memo[id(self)] = twin
        return twin

    def running(self) -> Tensor:
        """The vector whose layers run."""
        return self.flat.detach()

    def take_views(self) -> None:
        self.layers, self.norm_views = self.views(self.running())
        if self.mask is not None:
            self.layers[-1][0].mul_(self.mask)  # no head sees another's units
        self.transposed = [(weight.t(), bias) for weight, bias in self.layers]
        weight, bias = self.layers[-1]
        self.narrow = (bias[:, None], weight) if len(bias) < NARROW else None
        widths = tuple(width for width, _ in self.shapes[:-1])
        self.memory = (widths, self.flat.dtype, self.flat.device)
        self.pools: dict[int, list[Scratch]] = {}  # of `Scratch.free`, by rows
        self.grads: list[tuple[Tensor, list[tuple[Tensor, Tensor]], list[Tensor]]] = []

    @torch.no_grad()
    def copy_trunk(self, other: MLP) -> None:
        """The first layer and its norm, which all heads share."""
        for mine, theirs in zip(self.layers[0], other.layers[0], strict=True):
            mine.copy_(theirs)
        for mine, theirs in zip(self.norm_views, other.norm_views, strict=True):
            mine.copy_(theirs)

    def borrow(self, rows: int) -> Scratch:
        pool = self.pools.get(rows)
        if pool is None:
            pool = self.pools[rows] = Scratch.free.setdefault((rows, self.memory), [])
        scratch = pool.pop() if pool else Scratch(self.flat.detach(), rows, self.memory[0], pool)
        if not self.grads:
            flat = torch.empty_like(self.flat.detach())
            self.grads.append((flat, *self.views(flat)))
        scratch.flat_grad, scratch.layer_grads, scratch.norm_grads = self.grads.pop()
        return scratch

    def give_back(self, scratch: Scratch) -> None:
        scratch.norm = ()  # the next to need memory finds it still in the cache
        scratch.pool.append(scratch)
        self.grads.append((scratch.flat_grad, scratch.layer_grads, scratch.norm_grads))

    def run(self, x: Tensor) -> tuple[Tensor, Scratch]:
        """The output, and what `run_back` needs; give that back afterwards."""
        y, scratch = self.run_by_columns(x)
        return y.contiguous(), scratch

    def run_by_columns(self, x: Tensor) -> tuple[Tensor, Scratch]:
        """As `run`; a narrow output as it is computed, each column in one piece of memory."""
        scratch = self.borrow(x.shape[0])
        scratch.x = x
        for i, hidden in enumerate(scratch.hidden):
            weight, bias = self.transposed[i]
            if i == 0 and self.norm:
                x = self.run_norm(x, scratch)
            else:
                x = add_relu(torch.mm(x, weight, out=hidden), bias)
        if self.narrow is not None:
            bias, weight = self.narrow
            return torch.addmm(bias, weight, x.t()).t(), scratch
        weight, bias = self.transposed[-1]
        return torch.mm(x, weight).add_(bias), scratch  # addmm would write the bias out first

    def run_norm(self, x: Tensor, scratch: Scratch) -> Tensor:
        """The first layer, LayerNorm and tanh."""
        weight, bias = self.transposed[0]
        hidden, (scale, shift) = scratch.hidden[0], self.norm_views
        torch.mm(x, weight, out=hidden).add_(bias)
        x, mean, rstd = layer_norm(hidden, (len(bias),), scale, shift, 1e-5)
        scratch.norm = hidden, mean, rstd, x.tanh_()
        return x

    def run_back(self, grad: Tensor, scratch: Scratch, weights: bool = True) -> Tensor:
        """Fills `scratch.flat_grad`; returns the gradient at the first layer's output."""
        for i in range(len(self.layers) - 1, -1, -1):
            normed = self.norm and i == 1
            below = scratch.x if i == 0 else scratch.norm[-1] if normed else scratch.hidden[i - 1]
            if weights:
                layer_grad(grad, below, scratch.layer_grads[i])
                if i == len(self.layers) - 1 and self.mask is not None:
                    scratch.layer_grads[i][0].mul_(self.mask)
            if i == 0:
                break
            into = torch.mm(grad, self.layers[i][0], out=scratch.grad[i - 1])
            if normed:
                grad = self.back_through_norm(into, scratch, weights)
            else:
                grad = relu_backward(into, below, 0, grad_input=into)
        return grad

    def back_through_norm(self, grad: Tensor, scratch: Scratch, weights: bool) -> Tensor:
        x, mean, rstd, y = scratch.norm
        tanh_backward(grad, y, grad_input=grad)
        wanted = [True, weights, weights]
        into, *parts = layer_norm_backward(
            grad, x, (x.shape[1],), mean, rstd, *self.norm_views, wanted
        )
        for mine, part in zip(scratch.norm_grads, parts, strict=True):
            if weights:
                mine.copy_(part)
        return into

    def plain(self, x: Tensor, flat: Tensor) -> Tensor:
        """The same network in ordinary operations, for torch.compile to take apart."""
        layers, norm = self.views(flat)
        if self.mask is not None:
            weight, bias = layers[-1]
            layers[-1] = weight * self.mask, bias
        return through(x, layers, norm)

    def quick(self, x: Tensor) -> Tensor:
        """The output for a few rows, where ordinary operations cost less than prepared memory.

        Without gradient: the layers are views beside the parameter. Not for forms of networks that
        say what `run` does themselves.
        """
        return through(x, self.layers, self.norm_views)

    def forward(self, x: Tensor, *, frozen: bool = False) -> Tensor:
        """frozen: no gradient for the weights, only for x."""
        flat = self.flat.detach() if frozen else self.flat
        if torch.compiler.is_compiling():
            return self.plain(x, flat)
        if torch.is_grad_enabled() and (flat.requires_grad or x.requires_grad):
            return _MLPNode.apply(x, flat, self)  # pyright: ignore[reportReturnType]
        return self.apart(x)

    @without_gradient
    def apart(self, x: Tensor) -> Tensor:
        """The output alone; of many rows in pieces whose activations stay in the cache.

        Not of wide networks: their products need the rows.
        """
        rows = CACHE // max(self.memory[0], default=1)
        in_pieces = len(x) > 2 * rows and rows >= MANY and x.device.type == "cpu"
        pieces = x.split(rows) if in_pieces else (x,)
        outputs = []
        for piece in pieces:
            y, scratch = self.run(piece)
            self.give_back(scratch)
            outputs.append(y)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b. A weight too large for the cache is read once for a few rows, not once per row:
    ten rows through 1024 x 1024 take half the time with the operands swapped (AVX-512 of Intel; as
    long with that of AMD), if they are as many as the processor takes at once."""
    few, most = FEW
    if few <= len(x) <= most and weight.numel() >= LARGE and x.device.type == "cpu":
        rows = F.pad(x, (0, 0, 0, most - len(x)))
        return torch.addmm(bias[:, None], weight, rows.t()).t()[: len(x)]
    return F.linear(x, weight, bias)


def through(x: Tensor, layers: list[tuple[Tensor, Tensor]], norm: list[Tensor]) -> Tensor:
    """An MLP in ordinary operations."""
    for i, (weight, bias) in enumerate(layers):
        x = linear(x, weight, bias)
        if i == 0 and norm:
            x = F.layer_norm(x, bias.shape, norm[0], norm[1]).tanh()
        elif i < len(layers) - 1:
            x = x.relu()
    return x


def run_through(nets: Sequence[MLP], x: Tensor) -> tuple[Tensor, list[Scratch]]:
    """The output of networks that run one after the other, without autograd."""
    passes: list[Scratch] = []
    for net in nets:
        x, own = net.run(x)
        passes.append(own)
    return x, passes


def run_back_through(nets: Sequence[MLP], passes: list[Scratch], grad: Tensor) -> list[Tensor]:
    """The gradients of all weights, which last until the next pass, given that at the output."""
    for i in reversed(range(len(nets))):
        grad = nets[i].run_back(grad, passes[i])
        if i > 0:
            grad = grad @ nets[i].layers[0][0]
        nets[i].give_back(passes[i])
    return [own.flat_grad for own in passes]


def block_mask(shape: tuple[int, int], blocks: int, like: Tensor) -> Tensor:
    """Ones where output and input belong to the same block."""
    ones = like.detach().new_ones(shape[0] // blocks, shape[1] // blocks)
    return torch.block_diag(*[ones] * blocks)
