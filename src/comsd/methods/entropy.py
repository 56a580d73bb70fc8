"""Particle estimates of state entropy: distances to the k nearest neighbours in a batch."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from comsd.errors import InputError
from comsd.nn import RunningMoments

FEW_DIMS = 16  # in more dimensions a k-d tree degenerates to a slow linear scan
TREE_ROWS = 2000  # with fewer rows the table of all distances is faster
BITS = {4: np.int32, 8: np.int64}  # integer type by size of a float
FLOOR = 1e-3  # of distances under a logarithm


@torch.no_grad()
def knn_distances(source: Tensor, target: Tensor, k: int, *, ordered: bool = True) -> Tensor:
    """Euclidean distances from each source row to its k nearest target rows, (B, k), ascending.

    A k-d tree for many rows of few dimensions on the CPU, otherwise one matrix product and a
    partial sort: at most a (B, N) table, never (B, N, d).
    """
    if len(target) < k:
        raise InputError(f"k is too large: {k} neighbours wanted among {len(target)} states")
    few_dims = source.shape[1] <= FEW_DIMS
    if few_dims and source.device.type == "cpu" and len(target) >= TREE_ROWS:
        from scipy.spatial import KDTree  # loads slowly; only large batches of few dimensions

        # A balanced tree recurses without end where denormals are flushed and values repeat.
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
    return smallest(squares, k, ordered).clamp_min_(0).sqrt_().to(dtype)


def smallest(table: Tensor, k: int, ordered: bool) -> Tensor:
    """The k smallest of each row of squared distances; overwrites the table.

    Those that rounding made negative come first, in any order.
    """
    if table.device.type == "cpu":  # several times faster than torch's partial sort
        array = table.numpy()
        # The bits of numbers above zero are in the order of the numbers, and faster to compare.
        array.view(BITS[array.dtype.itemsize]).partition(k - 1, 1)
        return torch.from_numpy(np.sort(array[:, :k], 1) if ordered else array[:, :k].copy())
    return table.topk(k, largest=False).values


@torch.no_grad()
def knn_within(points: Tensor, group: Tensor, k: int) -> Tensor:
    """Distances to the k nearest rows of the same group, itself among them, (B, k), in any order.

    group: a number per row, (B,). Neighbours that a group smaller than k lacks are infinitely far.
    """
    distances = points.new_full((len(points), k), torch.inf)
    for rows in (group == g for g in group.unique()):
        members = points[rows]
        nearest = min(k, len(members))
        distances[rows, :nearest] = knn_distances(members, members, nearest, ordered=False)
    return distances


class ParticleEntropy(nn.Module):
    """State entropy from the distances to the k nearest of the batch (Eq. 9 and 10).

    `log`:   mean over neighbours of log(d + floor), the paper's Eq. 10, self excluded;
    `log1p`: log(1 + mean(max(d / scale - clip, 0))), CIC's form, self among the k, `scale` the
             running variance (CIC's code), mean (APS's) or std of all such distances.
    """

    def __init__(
        self,
        k: int,
        form: Literal["log", "log1p"],
        scale: Literal["variance", "mean", "std"] = "variance",
        clip: float = 5e-4,
        floor: float = FLOOR,
    ) -> None:
        super().__init__()
        self.k, self.form, self.scale, self.clip, self.floor = k, form, scale, clip, floor
        self.moments = RunningMoments()

    @torch.no_grad()
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
            return (distances + self.floor).log().mean(-1)
        if group is None:
            target = source if target is None else target
            distances = knn_distances(source, target, self.k, ordered=False)
        else:
            distances = knn_within(source, group, self.k)
        found = distances != torch.inf
        if self.training:
            self.moments.update(distances[found])
        scale = getattr(self.moments, self.scale).to(distances.dtype).clamp_min(1e-20)
        novelty = (distances / scale - self.clip).clamp_min(0).where(found, 0)
        return (novelty.sum(-1) / found.sum(-1)).log1p()
