"""What several methods share: contrast, particle entropy, running moments, weights, distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from comsd.errors import InputError
from comsd.nets import with_gradient, without_gradient
from comsd.types import Batch, Metrics

FEW_DIMS = 16  # beyond it a k-d tree degenerates to a slow linear scan
TREE_ROWS = 2000  # with fewer the table of all distances is faster
BITS = {4: np.int32, 8: np.int64}  # integers as long as a float


def in_numpy(x: Tensor) -> bool:
    """May the numbers be taken out of torch?"""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def number_mean_variance(
    values: Tensor, counted: Tensor | None
) -> tuple[Tensor | int, Tensor, Tensor]:
    """Of all values, or of those counted; three scalars."""
    if counted is None:
        mean = values.mean()  # torch.var_mean takes several times as long
        return values.numel(), mean, (values - mean).square_().mean()
    number = counted.sum()
    mean = values.where(counted, 0).sum() / number
    return number, mean, (values - mean).square().where(counted, 0).sum() / number


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, in float64, saved with the module."""

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("count", "mean", "variance"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @without_gradient
    def update(self, values: Tensor, counted: Tensor | None = None) -> None:
        """Merge a batch (Chan et al. 1979), or what of it is counted; the population's variance."""
        new = number_mean_variance(values, counted)
        past = self.count, self.mean, self.variance
        if in_numpy(values):  # numbers are many times faster than tensors of one number
            new, past = [float(x) for x in new], [float(x) for x in past]
        (number, new_mean, new_variance), (count, mean, variance) = new, past
        share = number / (count + number)
        delta = new_mean - mean
        self.variance += share * (new_variance - variance + (1 - share) * delta**2)
        self.mean += share * delta
        self.count += number

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()


@without_gradient
def knn_distances(source: Tensor, target: Tensor, k: int, *, ordered: bool = True) -> Tensor:
    """Euclidean distances from each source row to its k nearest target rows, (B, k), ascending.

    A k-d tree for many rows of few dimensions on the CPU, otherwise one matrix product and a
    partial sort: at most a (B, N) table, never (B, N, d).
    """
    if len(target) < k:
        raise InputError(f"k is too large: {k} neighbours wanted among {len(target)} states")
    few_dims = in_numpy(source) and source.shape[1] <= FEW_DIMS
    if few_dims and len(target) >= TREE_ROWS:
        # A balanced tree recurses without end where denormals are flushed and values repeat.
        from scipy.spatial import KDTree  # takes half a second to load

        tree = KDTree(target.numpy(), leafsize=24, balanced_tree=False)
        distances, _ = tree.query(source.numpy(), k)
        return torch.from_numpy(distances).to(source.dtype).view(len(source), k)
    # Small coordinates keep the difference of squares accurate; in few dimensions neighbours are
    # so near that it takes double precision.
    same, dtype, centre = source is target, source.dtype, target.mean(0)
    target = (target - centre).double() if few_dims else target - centre
    source = target if same else (source - centre).to(target.dtype)
    norms = target.square().sum(-1)
    own = norms if same else source.square().sum(-1)
    squares = torch.mm(-2 * source, target.T).add_(norms).add_(own[:, None])  # (B, N)
    if same:
        squares.diagonal().zero_()
    return least(squares, k, ordered).clamp_min_(0).sqrt_().to(dtype)


def least(table: Tensor, k: int, ordered: bool) -> Tensor:
    """The k least of each row of squares; takes the table apart.

    Those that rounding made negative come first, but which of them is open.
    """
    if in_numpy(table):  # several times faster than torch's partial sort
        array = table.numpy()
        # The bits of numbers above zero are in the order of the numbers, and faster to compare.
        array.view(BITS[array.dtype.itemsize]).partition(k - 1, 1)
        return torch.from_numpy(np.sort(array[:, :k], 1) if ordered else array[:, :k].copy())
    return table.topk(k, largest=False).values


@without_gradient
def knn_within(points: Tensor, group: Tensor, k: int) -> Tensor:
    """Distances to the k nearest rows of the same group, itself among them, (B, k), in any order.

    group: a number per row, (B,). Neighbours that a group smaller than k lacks are infinitely far.
    """
    if not in_numpy(points):  # shapes may not depend on how many rows a group has
        apart = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        return least(apart.masked_fill(group[:, None] != group, torch.inf), k, False)
    order, sizes = group.argsort(stable=True), group.bincount().tolist()
    members = (points - points.mean(0)).double()[order]  # one group after the other
    norms = members.square().sum(-1)
    nearest = members.new_full((len(points), k), torch.inf)
    whole = members, norms, nearest
    for rows, own, found in zip(*(part.split(sizes) for part in whole), strict=True):
        if len(rows):
            squares = torch.addmm(own, rows, rows.T, alpha=-2).add_(own[:, None])
            squares.diagonal().zero_()
            found[:, : len(rows)] = least(squares, min(k, len(rows)), False)
    distances = nearest.clamp_min_(0).sqrt_().to(points.dtype)
    return torch.empty_like(distances).index_copy_(0, order, distances)


def retrieval(scores: Tensor, skill: Tensor) -> Tensor:
    """Share of rows whose skill fits a transition of that same skill best; scores (B, B)."""
    found = skill[scores.argmax(1)]
    return (found == skill).all(-1).float().mean()


def chance(skill: Tensor) -> Tensor:
    """The same share by guessing: how often two rows drawn at random have the same skill."""
    counts = skill.unique(dim=0, return_counts=True)[1]
    return (counts / len(skill)).square().sum()


def by_tercile(group: str, flag: Tensor, terms: Mapping[str, Tensor]) -> Metrics:
    """Means of each term where the flag is low, middle and high; of all rows if none is."""
    third = (flag * 3).long().clamp(0, 2)
    rows = {label: third == i for i, label in enumerate(("low", "mid", "high"))}
    return {
        f"{group}/{name}_{label}": (values[at] if bool(at.any()) else values).mean()
        for name, values in terms.items()
        for label, at in rows.items()
    }


class ParticleEntropy(nn.Module):
    """State entropy from the distances to the k nearest of the batch (Eq. 9 and 10).

    `log`:   mean over neighbours of log(d + floor), the paper's Eq. 10, self excluded;
    `log1p`: log(1 + mean(max(d / scale - clip, 0))), CIC's form, self among the k, `scale` the
             running variance (CIC's code), mean (APS's) or std of all such distances.
    """

    FLOOR = 1e-3

    def __init__(
        self,
        k: int,
        form: Literal["log", "log1p"],
        scale: Literal["variance", "mean", "std"] = "variance",
        clip: float = 5e-4,
    ) -> None:
        super().__init__()
        self.k, self.form, self.scale, self.clip = k, form, scale, clip
        self.moments = RunningMoments()

    @without_gradient
    def forward(
        self, source: Tensor, target: Tensor | None = None, *, group: Tensor | None = None
    ) -> Tensor:
        """(B,) rewards for the rows of `source` among those of `target` (by default itself).

        group: as for `knn_within`, in the form `log1p` and without a target; neighbours that a
        group lacks enter neither the mean over neighbours nor the scale.
        """
        if self.form == "log":
            if target is None:  # drop the zero distance of every row to itself
                distances = knn_distances(source, source, self.k + 1)[:, 1:]
            else:
                distances = knn_distances(source, target, self.k)
            return (distances + self.FLOOR).log().mean(-1)
        if group is None:
            target, there = source if target is None else target, None
            distances = knn_distances(source, target, self.k, ordered=False)
        else:
            distances = knn_within(source, group, self.k)
            there = distances != torch.inf
        if self.training:
            self.moments.update(distances, there)
        scale = getattr(self.moments, self.scale).to(distances.dtype).clamp_min(1e-20)
        novelty = (distances / scale).sub_(self.clip).clamp_min_(0)
        if there is None:
            return novelty.mean(-1).log1p()
        return novelty.where(there, 0).sum(-1).div(there.sum(-1)).log1p()


def own_query(query: Tensor | None, owner: Tensor | None) -> Tensor:
    """The query of every key, (N, d); arguments as for `log_q`."""
    if query is None:
        assert owner is not None, "the axes need an owner"
        return owner
    return query if owner is None else owner @ query


def log_q(query: Tensor | None, key: Tensor, owner: Tensor | None, temperature: float) -> Tensor:
    """log q of every key with its own query (Eq. 6), (N,): cosine over temperature.

    query (Q, d): a unit vector per distinct skill, or None for the axes, so that Q = d and each
    owner is its own query; key (N, d): of any length; owner (N, Q): one-hot rows that say which
    query each key belongs to, or None if each has its own.
    """
    return (own_query(query, owner) * unit(key)).sum(-1) / temperature


def info_nce(
    query: Tensor | None,
    key: Tensor,
    owner: Tensor | None,
    temperature: float,
    left_out: float | None = None,
) -> Tensor:
    """Mean contrastive loss (Eq. 7, negated), a scalar; arguments as for `log_q`.

    For key i the positive is its own query and the negatives are the keys of other queries, so
    several keys of one skill are never each other's negatives. With K discrete skills the table
    is (N, K), with N distinct skills (N, N). The temperature must be at least 0.03 in float32.
    """
    with torch.no_grad():
        nce = info_nce_gradient(query, key, owner, temperature, left_out)
    pairs = (key, nce.to_key), (query, nce.to_query)
    return with_gradient(nce.loss, *((x, g) for x, g in pairs if x is not None and g is not None))


class NCE(NamedTuple):
    loss: Tensor
    to_key: Tensor  # gradient, (N, d)
    to_query: Tensor | None  # gradient, (Q, d), if there is a query
    own: Tensor  # (N,)  q of every key with its own query


def info_nce_gradient(
    query: Tensor | None,
    key: Tensor,
    owner: Tensor | None,
    temperature: float,
    left_out: float | None = None,
) -> NCE:
    """The loss and its gradients in closed form; to be called without gradient.

    loss_i = log(q_ii + S_i) - log q_ii,  S_i = sum over negatives j of q(key_j, query_i)
    d loss_i / d log q_ij = q_ij / (q_ii + S_i) - [i = j]

    left_out: a constant that CIC's code takes off q_ii + S_i; has no effect with an `owner`.
    """
    unit_key, key_norm = normalise(key)
    part = 1 / (len(key) * temperature)  # of each row in the mean, and through log q = cos / T
    if owner is None:
        assert query is not None, "the axes need an owner"
        q = torch.mm(query / temperature, unit_key.T).exp_()  # (N, N): a row per skill
        total = q.sum(1)
        if left_out is None:
            share = part / total
        else:  # where nothing is left the loss is flat
            rest = total - left_out
            total = rest.clamp_min(1e-6) + 1e-6
            share = part / total * (rest > 1e-6)
        own = q.diagonal().clone()
        loss = (total / own).log_().mean()
        grad = q.mul_(share[:, None])
        grad.diagonal().sub_(part)
        to_key = through_norm(grad.T @ query, unit_key, key_norm)
        return NCE(loss, to_key, grad @ unit_key, own)
    cosine = unit_key if query is None else unit_key @ query.T  # (N, Q)
    q = torch.div(cosine, temperature).exp_()
    positives = q * owner
    others = q.sub_(positives)
    positive = positives.sum(1)
    total = torch.addmv(positive, owner, others.sum(0))
    loss = (total / positive).log_().mean()
    share = total.reciprocal_().mul_(part)
    grad = others.mul_(share @ owner)
    grad.addcmul_(owner, share.mul_(positive).sub_(part)[:, None])
    if query is None:
        return NCE(loss, through_norm(grad, unit_key, key_norm), None, positive)
    to_key = through_norm(grad @ query, unit_key, key_norm)
    return NCE(loss, to_key, grad.T @ unit_key, positive)


@torch.no_grad()
def sinkhorn(logits: Tensor, rounds: int) -> Tensor:
    """(B, K), rows that sum to one: exp(logits) scaled such that all columns weigh the same."""
    table = (logits - logits.amax()).exp()
    row, column = torch.ones_like(table[:, 0]), torch.ones_like(table[0])
    for _ in range(rounds):
        column = 1 / (row @ table)
        row = 1 / (table @ column)
    return row[:, None] * table * column


def partners(label: Tensor) -> Tensor:
    """For every row the next row with its label, cyclically; a row alone gets itself."""
    order = label.argsort(stable=True)
    grouped = label[order]
    is_last = torch.ones_like(grouped, dtype=torch.bool)
    is_last[:-1] = grouped[:-1] != grouped[1:]
    first = torch.searchsorted(grouped, grouped)  # start of each row's group
    position = torch.arange(len(label), device=label.device)
    following = torch.where(is_last, first, position + 1)
    return torch.empty_like(order).scatter_(0, order, order[following])


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
    return (flag - f_high).mul_(slope).add_(w_high).clamp_(w_low, w_high)


# --- moving along the skill: METRA, LSD, CSD ------------------------------------------------------


class Moves(NamedTuple):
    """How far a transition leads in the space of phi, (B, d) each."""

    step: Tensor  # phi(one step later) - phi(s), with gradient: what the representation learns from
    whole: Tensor  # phi(s') - phi(s) over the n steps: what the agent is rewarded for


def moves(phi: Callable[[Tensor], Tensor], batch: Batch) -> Moves:
    """One pass for adjacent states, and another, without gradient, for s' if it lies further."""
    before, after = phi(torch.cat([batch.obs, batch.near])).chunk(2)
    step = after - before
    if batch.next_obs is batch.near:
        return Moves(step, step)
    with torch.no_grad():
        return Moves(step, phi(batch.next_obs) - before)


def progress(move: Tensor, direction: Tensor) -> Tensor:
    """(phi(s') - phi(s)) . z, (B,): how far a transition leads along the skill's direction.

    It telescopes: over n steps, as over an episode, it is the sum of the single steps'.
    """
    return (move * direction).sum(-1)


def cosines(direction: Tensor, move: Tensor) -> Tensor:
    """(B, B): how well the direction of row i fits the move of row j."""
    return unit(direction) @ unit(move).T


class Dual(nn.Module):
    """The multiplier lam of a constraint gap >= 0, by its logarithm so that it stays positive.

    lam falls while the constraint holds and rises while it is broken. `slack` cuts off how much
    of the gap counts: what holds by far neither moves the representation nor sinks lam fast.
    """

    def __init__(self, start: float, slack: float) -> None:
        super().__init__()
        self.slack = slack
        self.log = nn.Parameter(torch.tensor(math.log(start)))

    @property
    def value(self) -> Tensor:
        return self.log.detach().exp()

    def forward(self, gap: Tensor) -> Tensor:
        """A scalar to add to a loss, gap (B,): one gradient for the gap, another for lam.

        d / d gap = -lam,   d / d log lam = gap,   of the mean of min(slack, gap)
        """
        counted = gap.clamp_max(self.slack).mean()
        return self.log * counted.detach() - self.value * counted
