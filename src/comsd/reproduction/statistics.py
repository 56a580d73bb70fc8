"""Seeds are the only unit of replication: mean, spread and interval over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
ENOUGH = 3  # seeds for an interval
Paper = tuple[float | None, float | None]  # mean and standard deviation


def number(value: float | None) -> str:
    """Three digits, as a table shows them."""
    return "" if value is None else f"{value:.3g}"


class Cell(NamedTuple):
    """One arm in one row of a table, over its seeds, beside the paper's numbers."""

    row: str
    arm: str
    n: int
    mean: float
    sd: float | None  # of the sample, n - 1; None for one seed
    low: float | None  # 95 % bootstrap interval of the mean; None for fewer than three seeds
    high: float | None
    paper_mean: float | None
    paper_sd: float | None

    @property
    def ours(self) -> str:
        text = f"{self.mean:.4g}"
        if self.sd is not None:
            text += f" ± {self.sd:.3g}"
        if self.low is not None:
            text += f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{text} (n={self.n})"

    @property
    def paper(self) -> str:
        text = "" if self.paper_mean is None else f"paper {self.paper_mean:g}"
        return text if self.paper_sd is None else f"{text} ± {self.paper_sd:g}"


def summarise(row: str, arm: str, values: Sequence[float], paper: Paper = (None, None)) -> Cell:
    x = np.asarray(values, dtype=np.float64)
    sd = float(x.std(ddof=1)) if len(x) > 1 else None
    low, high = map(float, interval(x[:, None])[:, 0]) if len(x) >= ENOUGH else (None, None)
    return Cell(row, arm, len(x), float(x.mean()), sd, low, high, *paper)


def interval(values: np.ndarray) -> np.ndarray:
    """(2, columns): the 95 % bootstrap interval of the mean of each column over the rows."""
    rows = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    return np.percentile(values[rows].mean(1), [2.5, 97.5], axis=0)
