"""Networks, normalisers, running statistics and optimisers."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from comsd import checkpoint
from comsd.nn import (
    MLP,
    Normalizer,
    RunningMoments,
    adam,
    load_optimizer,
    optimizer_state,
    optimizer_step,
    soft_update,
)


def linears(net: nn.Module) -> list[nn.Linear]:
    return [m for m in net.modules() if isinstance(m, nn.Linear)]


# --- perceptrons ----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [False, True])
def test_mlp_is_linear_layers_with_relu_between(norm: bool) -> None:
    """With `norm`: LayerNorm and tanh after the first layer."""
    torch.manual_seed(0)
    net = MLP(3, 8, 7, 2, norm=norm, init="uniform")
    first, second, last = linears(net)
    x = torch.randn(5, 3)
    h = first(x)
    h = F.layer_norm(h, (8,)).tanh() if norm else h.relu()
    torch.testing.assert_close(net(x), last(second(h).relu()))


def test_an_mlp_may_have_no_hidden_layer() -> None:
    net, x = MLP(3, 2), torch.randn(5, 3)
    assert torch.equal(net(x), linears(net)[0](x))


def test_weights_start_orthogonal_and_biases_at_zero() -> None:
    for layer, (fan_in, fan_out) in zip(
        linears(MLP(9, 8, 8, 1, norm=True)), pairwise((9, 8, 8, 1)), strict=True
    ):
        assert layer.weight.shape == (fan_out, fan_in)
        torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(fan_out))
        assert not layer.bias.any()


def test_uniform_weights_are_those_of_torch() -> None:
    """Uniform within 1 / sqrt(fan in), biases too."""
    for layer in linears(MLP(100, 100, 50, init="uniform")):
        for p in layer.parameters():
            assert 0.09 < p.abs().max() <= 0.1
            assert p.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.2)


# --- statistics -----------------------------------------------------------------------------------


def test_normalizer() -> None:
    normalizer = Normalizer(np.array([1.0, 2.0]), torch.tensor([2.0, 4.0]))
    assert normalizer(torch.tensor([[3.0, -2.0]])).tolist() == [[1.0, -1.0]]
    other = Normalizer(np.zeros(2), np.ones(2))
    other.load_state_dict(normalizer.state_dict())
    assert other(torch.tensor([[3.0, -2.0]])).tolist() == [[1.0, -1.0]]


def test_running_moments_equal_numpy(rng: np.random.Generator) -> None:
    moments = RunningMoments()
    parts = [rng.normal(5, 3, size) for size in (1, 7, 100, 3)]
    for part in parts:
        moments.update(torch.from_numpy(part))
    everything = np.concatenate(parts)
    assert moments.mean.item() == pytest.approx(everything.mean())
    assert moments.variance.item() == pytest.approx(everything.var())
    assert moments.std.item() == pytest.approx(everything.std())
    assert moments.count.item() == len(everything)


# --- optimisers -----------------------------------------------------------------------------------


def test_a_soft_update_moves_the_target_by_its_rate() -> None:
    target, source = MLP(3, 8, 2), MLP(3, 8, 2)
    before = [p.detach().clone() for p in target.parameters()]
    soft_update(target, source, 0.25)
    for now, old, new in zip(target.parameters(), before, source.parameters(), strict=True):
        torch.testing.assert_close(now.detach(), (0.75 * old + 0.25 * new).detach())


def test_an_optimizer_step_may_be_restricted_to_some_parameters() -> None:
    """The critic inside the actor's loss gets no gradient."""
    first, second = MLP(3, 8, 2), MLP(2, 8, 1)
    second.requires_grad_(True)
    trained = list(first.parameters())
    optimizer_step(adam(trained, 0.1), second(first(torch.randn(4, 3))).sum(), trained)
    assert all(p.grad is not None for p in trained)
    assert all(p.grad is None for p in second.parameters())


def test_an_optimizer_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """Bit for bit, with two learning rates; these come from the config, not from the file."""

    def make() -> tuple[MLP, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = MLP(3, 8, 2)
        groups = [{"params": net.hidden.parameters()}, {"params": net.out.parameters(), "lr": 0.1}]
        return net, adam(groups, 0.01)

    def train(net: MLP, optimizer: torch.optim.Optimizer) -> None:
        for i in range(3):
            optimizer_step(optimizer, (net(torch.ones(4, 3)) - i).square().sum())

    ours, optimizer = make()
    train(ours, optimizer)
    state = {"run": {"net": ours.state_dict(), "optimizer": optimizer_state(optimizer)}}
    checkpoint.save(tmp_path, 1, state)
    twin, other = make()
    loaded = checkpoint.latest(tmp_path)[0]["run"]
    twin.load_state_dict(loaded["net"])
    load_optimizer(other, loaded["optimizer"])
    train(ours, optimizer)
    train(twin, other)
    assert all(map(torch.equal, ours.parameters(), twin.parameters()))


def test_an_optimizer_that_is_not_there_has_an_empty_state() -> None:
    assert optimizer_state(None) == {}
    load_optimizer(None, {})
