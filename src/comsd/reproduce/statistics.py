"""Seeds are the only unit of replication: mean, spread and interval over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
ENOUGH = 3  # seeds for an interval


@dataclass(frozen=True)
class Summary:
    n: int
    mean: float
    sd: float | None  # of the sample, n - 1; None for one seed
    low: float | None  # 95 % bootstrap interval of the mean; None for fewer than three seeds
    high: float | None

    def __str__(self) -> str:
        text = f"{self.mean:.4g}"
        if self.sd is not None:
            text += f" ± {self.sd:.3g}"
        if self.low is not None:
            text += f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{text} (n={self.n})"


@dataclass(frozen=True)
class Cell:
    """One arm in one row of a table, beside the paper's mean and standard deviation."""

    row: str
    arm: str
    ours: Summary
    paper: tuple[float, float | None] | None = None

    def lines(self) -> list[str]:
        if not self.paper:
            return [str(self.ours)]
        mean, sd = self.paper
        return [str(self.ours), f"paper {mean:g}" + (f" ± {sd:g}" if sd is not None else "")]


def summarise(values: Sequence[float]) -> Summary:
    x = np.asarray(values, dtype=np.float64)
    n, sd, low, high = len(x), None, None, None
    if n > 1:
        sd = float(x.std(ddof=1))
    if n >= ENOUGH:
        low, high = map(float, interval(x[:, None])[:, 0])
    return Summary(n, float(x.mean()), sd, low, high)


def interval(values: np.ndarray) -> np.ndarray:
    """(2, columns): the 95 % bootstrap interval of the mean of each column over the rows."""
    rows = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    return np.percentile(values[rows].mean(1), [2.5, 97.5], axis=0)
