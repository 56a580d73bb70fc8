"""Our losses, rewards and gradients against numbers that the official codes gave.

`tests/data/parity` holds the inputs, weights and outputs; its README says where each comes from.
Both sides in float64 unless stated, so that what agrees is the formula, not its first digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.methods.aps import APS
from comsd.methods.base import Method
from comsd.methods.becl import BeCL
from comsd.methods.cesd import CeSD, sinkhorn
from comsd.methods.cic import CIC
from comsd.methods.csd import CSD
from comsd.methods.dads import DADS
from comsd.methods.diayn import DIAYN
from comsd.methods.lsd import LSD
from comsd.methods.metra import METRA
from comsd.methods.smm import SMM
from comsd.registry import METHODS
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.types import Batch
from conftest import plain_obs

DATA = Path(__file__).parent / "data" / "parity"

Arrays = dict[str, Tensor]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def load(name: str) -> Arrays:
    """What was recorded; numbers in torch's default precision."""
    arrays = load_file(DATA / f"{name}.safetensors")
    dtype = torch.get_default_dtype()
    return {key: x.to(dtype) if x.is_floating_point() else x for key, x in arrays.items()}


def make(name: str, space: SkillSpace, dim: int, **values: Any) -> Method:
    """A method that sees observations as they are."""
    torch.manual_seed(0)
    kind = METHODS[name]
    return kind(kind.config_class(**values), space, plain_obs(dim))


def batch_of(arrays: Arrays, *, next_obs: str = "next_obs", skill: str = "skill") -> Batch:
    after = arrays[next_obs]
    nothing = torch.zeros(len(after))
    action = torch.zeros(len(after), 2)
    return Batch(arrays.get("obs", after), action, after, after, arrays[skill], nothing, nothing)


def rows(batch: Batch, index: Tensor) -> Batch:
    return Batch(*(column[index] for column in batch))


def layers(arrays: Arrays, name: str) -> list[Tensor]:
    """Weights and biases of an official network, in the order of an MLP's parameters."""
    depth = sum(key.startswith(f"{name}.") and key.endswith(".weight") for key in arrays)
    return [arrays[f"{name}.{i}.{part}"] for i in range(depth) for part in ("weight", "bias")]


@torch.no_grad()
def fill(net: nn.Module, weights: list[Tensor]) -> None:
    for parameter, value in zip(net.parameters(), weights, strict=True):
        parameter.copy_(value)


def same(ours: object, theirs: object) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-9)


def loss_and_grads(
    method: Method, batch: Batch, *nets: nn.Module
) -> tuple[Tensor, list[list[Tensor]]]:
    """The loss, and its gradients by network and parameter."""
    loss, _ = method.loss(batch, method.embed(batch))
    grads = [
        list(torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)) for net in nets
    ]
    return loss.detach(), grads


# --- CIC -----------------------------------------------------------------------------------------


def cic(arrays: Arrays) -> CIC:
    """Continuous skills, a learned query and the constant in the denominator."""
    method = make("cic", Box(4), 5, hidden=6, denominator="constant")
    assert isinstance(method, CIC)
    fill(method.encoder.state, layers(arrays, "state"))
    fill(method.encoder.pair, layers(arrays, "pair"))
    fill(method.encoder.f2, layers(arrays, "skill_net"))
    return method


def test_cic_contrastive_loss() -> None:
    arrays = load("cic")
    method = cic(arrays)
    f = method.encoder
    nets = {"state": f.state, "pair": f.pair, "skill_net": f.f2}
    loss, grads = loss_and_grads(method, batch_of(arrays), *nets.values())
    same(loss, arrays["loss"].mean())
    for name, grad in zip(nets, grads, strict=True):
        same(grad, layers(arrays, f"grad.{name}"))


def test_cic_bound_of_the_denominator() -> None:
    """Four rows, two of which fall below it: they have a loss but no gradient from there."""
    arrays = load("cic")
    method = cic(arrays)
    few = rows(batch_of(arrays), arrays["few"])
    loss, (grad,) = loss_and_grads(method, few, method.encoder.state)
    same(loss, arrays["few_loss"].mean())
    same(grad, layers(arrays, "few_grad.state"))


@pytest.mark.parametrize("when", ["", "later_"])
def test_cic_reward_given_the_variance(when: str) -> None:
    arrays = load("cic")
    method = cic(arrays).eval()
    method.entropy.moments.variance.copy_(arrays[f"{when}variance"][0])
    batch = batch_of(arrays, next_obs="later" if when else "next_obs")
    same(method.intrinsic_reward(batch).reward, arrays[f"{when}reward"])


def test_cic_variance_runs_on() -> None:
    """Two batches of 24 x 16 distances; there a sample's variance, n / (n - 1) of ours."""
    arrays, rtol = load("cic"), 1 / 383 + 1e-5
    method = cic(arrays)
    for when, states in (("", "next_obs"), ("later_", "later")):
        reward = method.intrinsic_reward(batch_of(arrays, next_obs=states)).reward
        variance = method.entropy.moments.variance
        torch.testing.assert_close(variance, arrays[f"{when}variance"][0], rtol=rtol, atol=0)
        torch.testing.assert_close(reward, arrays[f"{when}reward"], rtol=rtol, atol=0)


# --- CeSD ----------------------------------------------------------------------------------------


def cesd(arrays: Arrays) -> CeSD:
    method = make("cesd", OneHot(3), 4, hidden=6)
    assert isinstance(method, CeSD)
    fill(method.encoder.state, layers(arrays, "state"))
    with torch.no_grad():
        method.prototypes.copy_(arrays["centres"])
    return method


def test_cesd_sinkhorn() -> None:
    arrays = load("cesd")
    balanced = sinkhorn(arrays["scores"] / 0.1, rounds=6)
    same(balanced, arrays["balanced"])


def test_cesd_prototype_loss() -> None:
    """There the prototypes are set to length one outside the graph, so the gradient along them
    stays in; ours passes through the division by their length.
    """
    arrays = load("cesd")
    method, batch = cesd(arrays), batch_of(arrays)
    centres = method.prototypes
    loss, metrics = method.loss(batch, method.embed(batch))
    same(metrics["cesd/proto"], arrays["proto_loss"])
    (grad,) = torch.autograd.grad(loss, [centres])
    direction, theirs = F.normalize(arrays["centres"], dim=-1), arrays["grad.centres"]
    across = theirs - (theirs * direction).sum(-1, keepdim=True) * direction
    length = arrays["centres"].norm(dim=-1, keepdim=True)
    same(grad * length, across)


def test_cesd_reward_within_partitions() -> None:
    """In float32. The variance runs from partition to partition there, so each has its own."""
    torch.set_default_dtype(torch.float32)
    arrays = load("cesd")
    method, batch = cesd(arrays).eval(), batch_of(arrays)
    for partition, variance in enumerate(arrays["variance"]):
        method.entropy.moments.variance.copy_(variance)
        reward, _, value_skill = method.intrinsic_reward(batch)
        assert value_skill is not None
        assert torch.equal(value_skill.argmax(-1), arrays["partition"])
        here = arrays["partition"] == partition
        torch.testing.assert_close(reward[here], arrays["reward"][here], atol=3e-5, rtol=3e-5)


# --- APS -----------------------------------------------------------------------------------------


def aps(arrays: Arrays) -> APS:
    method = make("aps", Sphere(4), 5, hidden=6)
    assert isinstance(method, APS)
    fill(method.phi, layers(arrays, "phi"))
    return method


def test_aps_loss() -> None:
    arrays = load("aps")
    method = aps(arrays)
    loss, (grad,) = loss_and_grads(method, batch_of(arrays), method.phi)
    same(loss, arrays["loss"])
    same(grad, layers(arrays, "grad.phi"))


def test_aps_mean_runs_on() -> None:
    """It starts from 0 with a weight of 1e-4 there, beside 24 x 12 distances."""
    arrays, rtol = load("aps"), 1e-6
    method = aps(arrays)
    for when, states in (("", "next_obs"), ("later_", "later")):
        metrics = method.intrinsic_reward(batch_of(arrays, next_obs=states)).metrics
        torch.testing.assert_close(metrics["aps/mean"], arrays[f"{when}mean"][0], rtol=rtol, atol=0)
        torch.testing.assert_close(metrics["aps/r_ent"], arrays[f"{when}r_ent"], rtol=rtol, atol=0)


@pytest.mark.parametrize("when", ["", "later_"])
def test_aps_reward_given_the_mean(when: str) -> None:
    arrays = load("aps")
    method = aps(arrays).eval()
    method.entropy.moments.mean.copy_(arrays[f"{when}mean"][0])
    reward = method.intrinsic_reward(
        batch_of(arrays, next_obs="later" if when else "next_obs")
    ).reward
    both = arrays[f"{when}r_ent"] + arrays[f"{when}r_sf"]
    same(reward, both)


# --- DIAYN ---------------------------------------------------------------------------------------


def test_diayn() -> None:
    arrays = load("diayn")
    method, batch = make("diayn", OneHot(4), 5, hidden=6), batch_of(arrays)
    assert isinstance(method, DIAYN)
    fill(method.classifier, layers(arrays, "classifier"))
    loss, (grad,) = loss_and_grads(method, batch, method.classifier)
    same(loss, arrays["loss"])
    same(grad, layers(arrays, "grad.classifier"))
    reward, metrics, _ = method.intrinsic_reward(batch)
    same(reward, arrays["reward"])
    assert metrics["diayn/accuracy"].mean().item() == pytest.approx(arrays["accuracy"].item())


# --- SMM -----------------------------------------------------------------------------------------


def smm_encoder(arrays: Arrays, prefix: str = "") -> list[Tensor]:
    """Mean and log variance are one layer here and two there."""
    heads = [arrays[f"{prefix}{name}.0.weight"] for name in ("mean", "log_variance")]
    biases = [arrays[f"{prefix}{name}.0.bias"] for name in ("mean", "log_variance")]
    return [*layers(arrays, f"{prefix}encoder"), torch.cat(heads), torch.cat(biases)]


def test_smm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward has the sign of the released code, which is the default."""
    arrays = load("smm")
    values = {"hidden": 6, "vae_hidden": 7, "code": 2}
    method, batch = make("smm", OneHot(3), 5, **values), batch_of(arrays)
    assert isinstance(method, SMM)
    fill(method.encoder, smm_encoder(arrays))
    fill(method.decoder, layers(arrays, "decoder"))
    fill(method.discriminator, layers(arrays, "discriminator"))
    monkeypatch.setattr(torch, "randn_like", lambda _: arrays["noise"])
    nets = (method.encoder, method.decoder, method.discriminator)
    loss, grads = loss_and_grads(method, batch, *nets)
    same(loss, arrays["vae_loss"] + arrays["cross_entropy"].mean())
    wanted = [smm_encoder(arrays, "grad."), layers(arrays, "grad.decoder")]
    wanted.append(layers(arrays, "grad.discriminator"))
    same(grads, wanted)
    reward, metrics, _ = method.intrinsic_reward(batch)
    same(reward, arrays["reward"])
    same(metrics["smm/density"], arrays["density"])
    same(metrics["smm/skill"], arrays["cross_entropy"])


# --- BeCL ----------------------------------------------------------------------------------------


def becl(arrays: Arrays, denominator: str) -> BeCL:
    method = make("becl", OneHot(4), 5, hidden=6, denominator=denominator)
    assert isinstance(method, BeCL)
    fill(method.f, layers(arrays, "f"))
    fill(method.head, layers(arrays, "head"))
    return method


@pytest.mark.parametrize("denominator", ["all", "others"])
def test_becl_two_rows_of_each_skill(denominator: str) -> None:
    """Then the positive is no choice and both denominators are the same.

    There 1e-6 is added to the ratio and to what it is divided by.
    """
    arrays = load("becl")
    method, batch = becl(arrays, denominator), rows(batch_of(arrays), arrays["pairs"])
    ratio = arrays["pairs_reward"]
    loss, grads = loss_and_grads(method, batch, method.f, method.head)
    torch.testing.assert_close(method.intrinsic_reward(batch).reward, ratio, atol=2e-6, rtol=0)
    off = 2e-6 / ratio.min().item()
    torch.testing.assert_close(loss, arrays["pairs_loss"].mean(), atol=off, rtol=0)
    wanted = [layers(arrays, "grad.f"), layers(arrays, "grad.head")]
    torch.testing.assert_close(grads, wanted, atol=off, rtol=off)


def test_becl_three_rows_of_each_skill() -> None:
    """The first and the last row of a skill have the same positive here and there."""
    arrays = load("becl")
    batch = batch_of(arrays)
    label = batch.skill.argmax(-1).tolist()
    before = [label[:i].count(k) for i, k in enumerate(label)]
    shared = torch.tensor(before) != 1
    assert int(shared.sum()) == 8
    reward = becl(arrays, "all").intrinsic_reward(batch).reward
    torch.testing.assert_close(reward[shared], arrays["reward"][shared], atol=2e-6, rtol=0)


# --- METRA ---------------------------------------------------------------------------------------


def metra(arrays: Arrays, space: SkillSpace) -> METRA:
    """The constraint there is on the mean of the squares, here on their sum: with phi shorter by
    the root of the number of dimensions the two are the same, and the reward is as much shorter.
    """
    method = make("metra", space, 5, hidden=6)
    assert isinstance(method, METRA)
    fill(method.phi, layers(arrays, "phi"))
    with torch.no_grad():
        method.dual.log.copy_(arrays["log_lam"])
        for part in method.phi.out.parameters():
            part /= math.sqrt(space.dim)
    return method


@pytest.mark.parametrize(("kind", "space"), [("unit", Sphere(4)), ("one_hot", OneHot(4))])
def test_metra_reward(kind: str, space: SkillSpace) -> None:
    arrays = load("metra")
    reward = metra(arrays, space).intrinsic_reward(batch_of(arrays, skill=f"{kind}_skill")).reward
    same(2 * reward, arrays[f"{kind}_reward"])


def test_metra_losses() -> None:
    """Skills as much longer as phi is shorter: then rewards, and so losses, are the same."""
    arrays = load("metra")
    method, batch = metra(arrays, Sphere(4)), batch_of(arrays, skill="unit_skill")
    batch = batch._replace(skill=2 * batch.skill)
    loss, (to_phi, (to_lam,)) = loss_and_grads(method, batch, method.phi, method.dual)
    same(loss, arrays["loss_phi"] + arrays["loss_lam"])
    same(to_lam, arrays["grad.log_lam"])
    *hidden, weight, bias = to_phi
    same([*hidden, weight / 2, bias / 2], layers(arrays, "grad.phi"))  # half as large here


# --- CSD -----------------------------------------------------------------------------------------


def side_by_side(arrays: Arrays, one: str, other: str) -> list[Tensor]:
    """Two official networks as one with both outputs: zeros where they would mix."""
    parts: list[Tensor] = []
    for i in range(3):
        weights = arrays[f"{one}.{i}.weight"], arrays[f"{other}.{i}.weight"]
        parts.append(torch.cat(weights) if i == 0 else torch.block_diag(*weights))
        parts.append(torch.cat([arrays[f"{one}.{i}.bias"], arrays[f"{other}.{i}.bias"]]))
    return parts


def csd(arrays: Arrays, space: SkillSpace) -> CSD:
    """The density is one network here and two there, for mean and spread."""
    method = make("csd", space, 5, hidden=8, units_from=0, scale=1.0)
    assert isinstance(method, CSD)
    fill(method.phi, layers(arrays, "phi"))
    fill(method.density, side_by_side(arrays, "mean", "log_std"))
    with torch.no_grad():
        method.dual.log.copy_(arrays["log_lam"])
    return method


@pytest.mark.parametrize(("kind", "space"), [("unit", Sphere(3)), ("one_hot", OneHot(3))])
def test_csd(kind: str, space: SkillSpace) -> None:
    arrays = load("csd")
    method, batch = csd(arrays, space), batch_of(arrays, skill=f"{kind}_skill")
    nets = method.phi, method.dual, method.density
    loss, (to_phi, (to_lam,), to_density) = loss_and_grads(method, batch, *nets)
    wanted = arrays[f"{kind}_loss_phi"] + arrays["loss_lam"] + arrays["loss_density"]
    same(loss, wanted)
    same(to_phi, layers(arrays, f"{kind}_grad.phi"))
    same(to_lam, arrays["grad.log_lam"])
    apart = side_by_side(
        {name: torch.ones_like(x) for name, x in arrays.items()}, "mean", "log_std"
    )
    theirs = side_by_side(arrays, "grad.mean", "grad.log_std")
    same([own * mask for own, mask in zip(to_density, apart, strict=True)], theirs)
    same(method.intrinsic_reward(batch).reward, arrays[f"{kind}_reward"])


# --- LSD -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "space"), [("unit", Sphere(3)), ("one_hot", OneHot(3))])
def test_lsd(kind: str, space: SkillSpace) -> None:
    """After power iterations to the end, here and there."""
    arrays = load("lsd")
    method = make("lsd", space, 6, hidden=6, units_from=0)
    assert isinstance(method, LSD)
    fill(method.phi, layers(arrays, "phi"))
    batch = batch_of(arrays, skill=f"{kind}_skill")
    for _ in range(50):
        method.loss(batch, method.embed(batch))
    loss, (grad,) = loss_and_grads(method, batch, method.phi)
    same(loss, arrays[f"{kind}_loss"])
    same(grad, layers(arrays, f"{kind}_grad.phi"))
    same(method.intrinsic_reward(batch).reward, arrays[f"{kind}_reward"])


# --- DADS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "space"), [("box", Box(3)), ("one_hot", OneHot(3))])
def test_dads(kind: str, space: SkillSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss there has the constant of the normal density, which cancels in the reward."""
    arrays = load("dads")
    method = make("dads", space, 5, hidden=6, alternatives=7)
    assert isinstance(method, DADS)
    fill(method.mu, layers(arrays, "mu"))
    if kind == "box":
        drawn = arrays["alternatives"][:, None]
        monkeypatch.setattr(space, "alternatives", lambda skill, n: drawn.expand(n, *skill.shape))
    batch = batch_of(arrays, skill=f"{kind}_skill")
    loss, (grad,) = loss_and_grads(method, batch, method.mu)
    constant = 5 / 2 * math.log(2 * math.pi)
    same(loss + constant, arrays[f"{kind}_loss"])
    same(grad, layers(arrays, f"{kind}_grad.mu"))
    same(method.intrinsic_reward(batch).reward, arrays[f"{kind}_reward"])
