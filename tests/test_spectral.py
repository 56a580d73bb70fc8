"""Spectral normalisation: networks with Lipschitz constant 1."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.methods.spectral import SpectralLinear, SpectralMLP
from comsd.nn import Init, adam, optimizer_step


def layers_of(net: SpectralMLP) -> list[SpectralLinear]:
    return [m for m in net.modules() if isinstance(m, SpectralLinear)]


def normalised_forward(net: SpectralMLP, x: Tensor, weights: list[Tensor]) -> Tensor:
    """Each weight divided by its exact largest singular value."""
    layers = layers_of(net)
    for i, (layer, weight) in enumerate(zip(layers, weights, strict=True)):
        x = F.linear(x, weight / torch.linalg.matrix_norm(weight, 2), layer.bias)
        x = x.relu() if i + 1 < len(layers) else x
    return x


@pytest.mark.parametrize("init", ["uniform", "orthogonal"])
def test_spectral_layers_divide_by_the_largest_singular_value(init: Init) -> None:
    torch.manual_seed(0)
    net, x = SpectralMLP(3, 12, 12, 4, init=init), torch.randn(20, 3)
    wanted = normalised_forward(net, x, [layer.weight for layer in layers_of(net)])
    torch.testing.assert_close(net(x), wanted, atol=1e-4, rtol=1e-4)


def test_the_gradient_passes_through_the_singular_value() -> None:
    torch.manual_seed(0)
    net, x = SpectralMLP(3, 6, 2, init="uniform"), torch.randn(20, 3)
    weights = [layer.weight for layer in layers_of(net)]
    ours = torch.autograd.grad(net(x).square().sum(), weights)
    exact = torch.autograd.grad(normalised_forward(net, x, weights).square().sum(), weights)
    torch.testing.assert_close(ours, exact, atol=1e-3, rtol=1e-3)
    for gradient, weight in zip(ours, weights, strict=True):
        assert (gradient * weight).sum().abs() < 1e-3  # the scale of a weight plays no part


def test_a_spectral_forward_pass_changes_nothing_and_power_iteration_follows_the_weights() -> None:
    torch.manual_seed(0)
    net, x = SpectralMLP(3, 12, 4), torch.randn(20, 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert torch.equal(net(x), net(x))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p))
    for _ in range(100):
        net.power_iteration(net.singular_vectors())
    wanted = normalised_forward(net, x, [layer.weight for layer in layers_of(net)])
    torch.testing.assert_close(net(x), wanted, atol=1e-3, rtol=1e-3)
    twin = copy.deepcopy(net)
    assert torch.equal(twin(x), net(x))


def test_a_wide_spectral_network_keeps_its_slope_while_its_weights_grow() -> None:
    """One iteration per step follows what Adam adds to the first singular direction."""
    torch.manual_seed(0)
    net = SpectralMLP(24, 512, 512, 4)
    optimizer, slopes = adam(net.parameters(), 3e-4), []
    for _ in range(40):
        vectors, slope = net.singular_vectors(), 1.0
        y = net(torch.randn(64, 24), vectors)
        with torch.no_grad():
            for layer, (u, v, _) in zip(layers_of(net), vectors, strict=True):
                used = u @ layer.weight @ v
                slope *= (torch.linalg.matrix_norm(layer.weight, 2) / used).item()
        slopes.append(slope)
        net.power_iteration(vectors)
        optimizer_step(optimizer, -y.mean())
    assert max(slopes) < 1.1
    assert slopes[-1] == pytest.approx(1, abs=0.01)
