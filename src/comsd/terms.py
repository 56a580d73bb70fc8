"""Estimators shared by several methods: contrast, particle entropy, running moments, weights."""

from __future__ import annotations

from typing import Literal

import torch
from scipy.spatial import KDTree
from torch import Tensor, nn

from comsd.errors import InputError
from comsd.nets import with_gradient

TREE_MAX_DIM = 16  # beyond it a k-d tree degenerates to a slow linear scan


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, in float64, saved with the module."""

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("count", "mean", "variance"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Merge a batch (Chan et al. 1979); the variance is the population's."""
        new = values.double()
        n, total = new.numel(), self.count + new.numel()
        delta = new.mean() - self.mean
        share = n / total
        self.variance += share * (new.var(correction=0) - self.variance + (1 - share) * delta**2)
        self.mean += share * delta
        self.count += n

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()


@torch.no_grad()
def knn_distances(source: Tensor, target: Tensor, k: int) -> Tensor:
    """Euclidean distances from each source row to its k nearest target rows, (B, k), ascending.

    A k-d tree for few dimensions on the CPU, otherwise one matrix product and a partial sort:
    at most a (B, N) table, never (B, N, d).
    """
    if len(target) < k:
        raise InputError(f"k is too large: {k} neighbours wanted among {len(target)} states")
    if source.device.type == "cpu" and source.shape[1] <= TREE_MAX_DIM:
        distances, _ = KDTree(target.numpy(), leafsize=32).query(source.numpy(), k)
        return torch.from_numpy(distances).to(source.dtype).view(len(source), k)
    centre = target.mean(0)  # small coordinates keep the difference of squares accurate
    source, target = source - centre, target - centre
    squares = target.square().sum(-1) - 2 * source @ target.T  # (B, N), row constant left out
    nearest = target[squares.topk(k, largest=False).indices]  # (B, k, d)
    return (source[:, None] - nearest).norm(dim=-1).sort(-1).values  # free of cancellation


class ParticleEntropy(nn.Module):
    """State entropy from the distances to the k nearest of the batch (Eq. 9 and 10).

    `log`:   mean over neighbours of log(d + floor), the paper's Eq. 10, self excluded;
    `log1p`: log(1 + mean(max(d / scale - 5e-4, 0))), CIC's form, self among the k, `scale` the
             running variance (CIC's code), mean (APS's) or std of all such distances.
    """

    FLOOR = 1e-3
    CLIP = 5e-4

    def __init__(
        self,
        k: int,
        form: Literal["log", "log1p"],
        scale: Literal["variance", "mean", "std"] = "variance",
    ) -> None:
        super().__init__()
        self.k, self.form, self.scale = k, form, scale
        self.moments = RunningMoments()

    def forward(self, source: Tensor, target: Tensor | None = None) -> Tensor:
        """(B,) rewards for the rows of `source` among those of `target` (by default itself)."""
        if self.form == "log":
            if target is None:  # drop the zero distance of every row to itself
                distances = knn_distances(source, source, self.k + 1)[:, 1:]
            else:
                distances = knn_distances(source, target, self.k)
            return (distances + self.FLOOR).log().mean(-1)
        distances = knn_distances(source, source if target is None else target, self.k)
        self.moments.update(distances)
        scale = getattr(self.moments, self.scale).to(distances.dtype)
        return (distances / scale - self.CLIP).clamp_min(0).mean(-1).log1p()


def log_q(query: Tensor, key: Tensor, owner: Tensor, temperature: float) -> Tensor:
    """log q of every key with its own query (Eq. 6), (N,): cosine over temperature.

    query (Q, d): a unit vector per distinct skill; key (N, d): of any length; owner (N, Q):
    one-hot rows that say which query each key belongs to.
    """
    return ((owner @ query) * unit(key)).sum(-1) / temperature


def info_nce(query: Tensor, key: Tensor, owner: Tensor, temperature: float) -> Tensor:
    """Mean contrastive loss (Eq. 7, negated), a scalar; arguments as for `log_q`.

    For key i the positive is its own query and the negatives are the keys of other queries, so
    several keys of one skill are never each other's negatives. With K discrete skills the table
    is (N, K), with N distinct skills (N, N). The temperature must be at least 0.03 in float32.
    """
    with torch.no_grad():
        loss, key_grad, query_grad = info_nce_gradient(query, key, owner, temperature)
    return with_gradient(loss, (key, key_grad), (query, query_grad))


@torch.no_grad()
def info_nce_gradient(
    query: Tensor, key: Tensor, owner: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and its gradients in key and query, in closed form.

    loss_i = log(q_ii + S_i) - log q_ii,  S_i = sum over negatives j of q(key_j, query_i)
    d loss_i / d log q_ij = q_ij / (q_ii + S_i) - [i = j]
    """
    unit_key, key_norm = normalise(key)
    scaled = query / temperature
    q = (unit_key @ scaled.T).exp_()  # (N, Q)
    positives = q * owner
    others = q.sub_(positives)
    positive = positives.sum(1)
    total = torch.addmv(positive, owner, others.sum(0))
    loss = (total / positive).log_().mean()
    share = total.reciprocal_().div_(len(key))  # the mean's part of each row
    grad = others.mul_(share @ owner)
    grad.addcmul_(owner, positive.mul_(share).sub_(1 / len(key))[:, None])
    key_grad = through_norm(grad @ scaled, unit_key, key_norm)
    query_grad = grad.T @ unit_key / temperature if query.requires_grad else query
    return loss, key_grad, query_grad


def normalise(x: Tensor) -> tuple[Tensor, Tensor]:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)
    return x / norm, norm


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length one."""
    return normalise(x)[0]


def through_norm(grad: Tensor, unit: Tensor, norm: Tensor) -> Tensor:
    """Gradient with respect to x, given that with respect to x / |x|."""
    return torch.addcmul(grad, unit, (grad * unit).sum(-1, keepdim=True), value=-1).div_(norm)


def dynamic_weight(
    flag: Tensor, weights: tuple[float, float], flags: tuple[float, float]
) -> Tensor:
    """Eq. 11: the line through (f_low, w_low) and (f_high, w_high), held between the weights."""
    (w_low, w_high), (f_low, f_high) = weights, flags
    slope = (w_high - w_low) / (f_high - f_low)
    return (slope * (flag - f_high) + w_high).clamp(w_low, w_high)
