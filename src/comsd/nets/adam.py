"""Adam without the optimiser around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from comsd.nets.autograd import without_gradient


class Adam:
    """Adam over a few flat parameters: torch's fused kernel without the optimiser around it.

    lr: one rate for all parameters, or a rate for each. Adam treats every number by itself, so one
    optimiser with several rates takes the same steps as several optimisers.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float | Sequence[float], eps: float = 1e-8
    ) -> None:
        self.params: list[Tensor] = list(params)
        rates = [lr] * len(self.params) if isinstance(lr, float | int) else list(lr)
        assert len(rates) == len(self.params), "as many learning rates as parameters"
        self.eps = eps
        self.mean = [torch.zeros_like(p) for p in self.params]
        self.square = [torch.zeros_like(p) for p in self.params]
        self.count = torch.zeros((), device=self.params[0].device)
        self.groups = []  # (rate, which parameters have it, what the kernel takes of them)
        for rate in dict.fromkeys(rates):
            members = [i for i, own in enumerate(rates) if own == rate]
            state = [[of[i] for i in members] for of in (self.params, self.mean, self.square)]
            self.groups.append((rate, members, *state, [self.count] * len(members)))

    def descend(self, loss: Tensor) -> None:
        """One step down a scalar loss."""
        self.step(list(torch.autograd.grad(loss, self.params)))

    @without_gradient
    def step(self, grads: list[Tensor]) -> None:
        """One step along given gradients."""
        self.count += 1
        for rate, members, params, mean, square, counts in self.groups:
            self.move(params, [grads[i] for i in members], mean, square, counts, rate)

    @without_gradient
    def step_in_pieces(self, grads: Iterable[tuple[slice, Tensor]]) -> None:
        """One step of a single parameter, each piece as soon as its gradient is there."""
        self.count += 1
        ((rate, _, (param,), (mean,), (square,), counts),) = self.groups
        for where, grad in grads:
            self.move([param[where]], [grad], [mean[where]], [square[where]], counts, rate)

    def move(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        mean: list[Tensor],
        square: list[Tensor],
        counts: list[Tensor],
        lr: float,
    ) -> None:
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
            params,
            grads,
            mean,
            square,
            [],
            counts,
            lr=lr,
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
