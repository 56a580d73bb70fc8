"""The one-node MLP and the lean Adam against what torch does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.nets import (
    MLP,
    Adam,
    PairEncoder,
    Standardise,
    run_back_through,
    run_through,
    with_gradient,
    without_gradient,
)
from comsd.types import ObsInfo


def plain(net: MLP, x: Tensor, flat: Tensor) -> Tensor:
    """The same network by ordinary autograd, head by head."""
    layers, norm = net.views(flat)
    for i, (weight, bias) in enumerate(layers[:-1]):
        x = F.linear(x, weight, bias)
        x = F.layer_norm(x, x.shape[1:], norm[0], norm[1]).tanh() if norm and i == 0 else x.relu()
    weight, bias = layers[-1]
    own, out = weight.shape[1] // net.heads, weight.shape[0] // net.heads
    heads = []
    for h in range(net.heads):
        w = weight[h * out : (h + 1) * out, h * own : (h + 1) * own]
        heads.append(F.linear(x[:, h * own : (h + 1) * own], w, bias[h * out : (h + 1) * out]))
    return torch.cat(heads, -1)


SHAPES = [
    ((3, 8, 7, 2), {}),
    ((3, 8, 8, 2), {}),
    ((3, 8, 2), {}),
    ((3, 2), {}),
    ((3, 8, 8, 2), {"norm": True}),
    ((3, 8, 7, 1), {"norm": True, "heads": 2}),
    ((3, 8, 6, 1), {"heads": 2, "init": "uniform"}),
]


@pytest.fixture(params=SHAPES, ids=str)
def net(request: pytest.FixtureRequest) -> MLP:
    torch.manual_seed(0)
    sizes, options = request.param
    return MLP(*sizes, **options).double()


@pytest.mark.parametrize("heads", [1, 2])
def test_every_layer_of_every_head_starts_orthogonal(heads: int) -> None:
    net = MLP(9, 8, 8, 1, heads=heads, norm=True)
    (first, _), (hidden, _), (last, bias) = net.layers
    torch.testing.assert_close(first @ first.T, torch.eye(8))
    for block in hidden.split(8):
        torch.testing.assert_close(block @ block.T, torch.eye(8))
    assert torch.count_nonzero(last) == 8 * heads
    torch.testing.assert_close(last.norm(dim=1), torch.ones(heads))
    assert not bias.any()


def test_forward_and_all_gradients_equal_autograd(net: MLP) -> None:
    x = torch.randn(5, 3, dtype=torch.double, requires_grad=True)
    weight = torch.randn(5, 2, dtype=torch.double)
    y = net(x)
    grads = torch.autograd.grad((y * weight).sum(), [x, net.flat])
    flat = net.flat.detach().clone().requires_grad_()
    expected = plain(net, x, flat)
    wanted = torch.autograd.grad((expected * weight).sum(), [x, flat])
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grads, wanted)


def test_a_quick_look_is_the_same_output(net: MLP) -> None:
    x = torch.randn(5, 3, dtype=torch.double)
    torch.testing.assert_close(net.quick(x), net(x).detach())
    assert not net.quick(x).requires_grad


@pytest.mark.parametrize("rows", [1, 7, 8, 32, 33])
def test_a_large_weight_is_read_once_for_a_few_rows_with_the_same_output(rows: int) -> None:
    net = MLP(4, 1024, 1024, 3, norm=True)
    x = torch.randn(rows, 4)
    torch.testing.assert_close(net.quick(x), net(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_frozen_net_still_passes_gradient_to_its_input(net: MLP) -> None:
    x = torch.randn(5, 3, dtype=torch.double, requires_grad=True)
    net.requires_grad_(False)
    (grad,) = torch.autograd.grad(net(x).sum(), [x])
    torch.testing.assert_close(grad, torch.autograd.grad(plain(net, x, net.flat).sum(), [x])[0])


def test_two_uses_in_one_graph_do_not_share_memory(net: MLP) -> None:
    """Scratch memory is borrowed per pass: a second pass, or one without gradient between
    forward and backward, must not overwrite the activations of the first."""
    a, b = torch.randn(2, 6, 3, dtype=torch.double)
    first = net(a)
    with torch.no_grad():
        net(b)
    second = net(b)
    (grad,) = torch.autograd.grad((first * second).sum(), [net.flat])
    flat = net.flat.detach().clone().requires_grad_()
    (wanted,) = torch.autograd.grad((plain(net, a, flat) * plain(net, b, flat)).sum(), [flat])
    torch.testing.assert_close(grad, wanted)


def test_gradients_of_earlier_steps_stay(net: MLP) -> None:
    x = torch.randn(6, 3, dtype=torch.double)
    (first,) = torch.autograd.grad(net(x).sum(), [net.flat])
    kept = first.clone()
    torch.autograd.grad(net(2 * x).square().sum(), [net.flat])
    assert torch.equal(first, kept)


def test_backward_accumulates(net: MLP) -> None:
    x = torch.randn(6, 3, dtype=torch.double)
    net(x).sum().backward()
    once = net.flat.grad.clone()  # pyright: ignore[reportOptionalMemberAccess]
    net(x).sum().backward()
    torch.testing.assert_close(net.flat.grad, 2 * once)


def test_a_copy_is_a_network_of_its_own(net: MLP) -> None:
    """A target network made by deepcopy must follow its own parameter."""
    x = torch.randn(4, 3, dtype=torch.double)
    twin = copy.deepcopy(torch.nn.ModuleList([net]))[0]
    torch.testing.assert_close(twin(x), net(x))
    with torch.no_grad():
        twin.get_parameter("flat").zero_()
    assert twin(x).abs().sum() == 0
    assert net(x).abs().sum() > 0


def test_assigned_weights_are_used(net: MLP) -> None:
    x = torch.randn(4, 3, dtype=torch.double)
    net.load_state_dict({"flat": torch.zeros_like(net.flat)}, assign=True)
    assert net(x).abs().sum() == 0


def test_a_second_backward_is_refused(net: MLP) -> None:
    loss = net(torch.randn(6, 3, dtype=torch.double)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once per forward"):
        loss.backward()


def test_views_follow_the_parameter(net: MLP) -> None:
    """Optimiser steps, loading and .to() all change the parameter that the layers look into."""
    x = torch.randn(4, 3, dtype=torch.double)
    with torch.no_grad():
        net.flat.mul_(2)
    torch.testing.assert_close(net(x), plain(net, x, net.flat))
    net.load_state_dict({"flat": torch.randn_like(net.flat)})
    torch.testing.assert_close(net(x), plain(net, x, net.flat))
    net.float()
    torch.testing.assert_close(net(x.float()), plain(net, x.float(), net.flat))


@pytest.mark.parametrize("through_states", [False, True])
def test_pair_encoder_equals_its_two_networks(through_states: bool) -> None:
    torch.manual_seed(0)
    encoder = PairEncoder(ObsInfo(3, torch.ones(3), 2 * torch.ones(3)), 8, 4).double()
    obs, next_obs = torch.randn(2, 6, 3, dtype=torch.double)
    states = encoder.states(obs, next_obs)
    after, pair = states[:, 4:], encoder.pair(states)
    before, wanted_after = encoder.state((obs - 1) / 2), encoder.state((next_obs - 1) / 2)
    wanted = encoder.pair(torch.cat([before, wanted_after], -1))
    torch.testing.assert_close((after, pair), (wanted_after, wanted))
    ours, theirs = pair.square().sum(), wanted.square().sum()
    if through_states:
        ours, theirs = ours + after.sin().sum(), theirs + wanted_after.sin().sum()
    nets = [encoder.state.flat, encoder.pair.flat]
    torch.testing.assert_close(torch.autograd.grad(ours, nets), torch.autograd.grad(theirs, nets))


def test_adam_equals_torch() -> None:
    torch.manual_seed(0)
    mine = torch.nn.Parameter(torch.randn(10))
    theirs = torch.nn.Parameter(mine.detach().clone())
    target = torch.randn(10)
    ours, reference = Adam([mine], 0.1, 1e-5), torch.optim.Adam([theirs], 0.1, eps=1e-5)
    for _ in range(20):
        ours.descend((mine - target).square().sum())
        reference.zero_grad()
        (theirs - target).square().sum().backward()
        reference.step()
    torch.testing.assert_close(mine, theirs)


def test_adam_with_a_rate_per_parameter_equals_several_optimisers() -> None:
    torch.manual_seed(0)
    start, rates = torch.randn(3, 10), [0.1, 0.01, 0.1]
    together, apart = ([torch.nn.Parameter(row.clone()) for row in start] for _ in range(2))
    one = Adam(together, rates)
    several = [Adam([p], rate) for p, rate in zip(apart, rates, strict=True)]
    for _ in range(5):
        one.descend(sum((p.pow(4).sum() for p in together), torch.zeros(())))
        for optimizer, p in zip(several, apart, strict=True):
            optimizer.descend(p.pow(4).sum())
    assert all(map(torch.equal, together, apart))
    with pytest.raises(AssertionError, match="as many learning rates as parameters"):
        Adam(together, [0.1, 0.2])


def test_with_gradient_scales_and_skips() -> None:
    x, fixed = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = with_gradient(torch.tensor(5.0), (x, torch.tensor([1.0, 2.0, 3.0])), (fixed, fixed))
    assert loss.item() == 5
    (2 * loss).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4, 6]
    assert not with_gradient(torch.tensor(5.0), (fixed, fixed)).requires_grad


def test_standardise() -> None:
    standardise = Standardise(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]))
    assert standardise(torch.tensor([[3.0, -2.0]])).tolist() == [[1.0, -1.0]]
    other = Standardise(torch.zeros(2), torch.ones(2))
    other.load_state_dict(standardise.state_dict())
    assert other(torch.tensor([[3.0, -2.0]])).tolist() == [[1.0, -1.0]]


def test_networks_in_a_row_have_the_gradients_of_autograd() -> None:
    nets = [MLP(3, 8, 8, 4).double(), MLP(4, 8, 2).double()]
    x, weight = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    wanted = torch.autograd.grad((nets[1](nets[0](x)) * weight).sum(), [net.flat for net in nets])
    with torch.no_grad():
        y, passes = run_through(nets, x)
        found = run_back_through(nets, passes, weight)
    torch.testing.assert_close(y, nets[1](nets[0](x)).detach())
    torch.testing.assert_close(found, list(wanted))


def test_many_rows_give_what_they_give_in_pieces() -> None:
    net = MLP(3, 256, 256, 2)
    x = torch.randn(2000, 3)
    with torch.no_grad():
        apart = torch.cat([net(piece) for piece in x.split(100)])
        torch.testing.assert_close(net(x), apart, rtol=1e-4, atol=1e-5)


def test_without_gradient_nothing_is_recorded_and_afterwards_all_is_as_before() -> None:
    @without_gradient
    def twice(x: Tensor, *, fail: bool = False) -> Tensor:
        assert not torch.is_grad_enabled()
        if fail:
            raise ValueError
        return without_gradient(lambda y: y * 2)(x)

    x = torch.ones(3, requires_grad=True)
    assert not twice(x).requires_grad
    with pytest.raises(ValueError):  # noqa: PT011
        twice(x, fail=True)
    assert torch.is_grad_enabled()
    (grad,) = torch.autograd.grad((x * twice(x)).sum(), [x])
    assert grad.tolist() == [2, 2, 2]
