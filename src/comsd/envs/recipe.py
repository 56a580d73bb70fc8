"""Observations as data: which numbers of mjData, in which order, and what is done to them.

Robots observe by their recipe, and the page of `comsd explore` follows the same one in the browser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comsd.envs.simulation import Doubles, Readings

Reader = Callable[[Readings], Doubles]

TRANSFORMS: dict[str, Callable[[Doubles], Doubles]] = {"log1p": np.log1p, "arcsinh": np.arcsinh}


@dataclass(frozen=True)
class Part:
    """Some numbers of a field of mjData, counted flat, row by row."""

    field: str  # such as qpos, xmat, sensordata
    index: slice | NDArray[np.integer] | None = None  # by default all
    transform: str | None = None  # of TRANSFORMS

    def reader(self) -> Reader:
        """Reads the numbers of all simulations, (N, .); a function made once is quicker."""
        field, transform = self.field, TRANSFORMS.get(self.transform or "")
        index = slice(None) if self.index is None else self.index

        def read(x: Readings) -> Doubles:
            rows = x[field]
            flat = rows if rows.ndim == 2 else rows.reshape(len(rows), -1)
            return flat[:, index] if isinstance(index, slice) else flat.take(index, 1)

        if transform is not None:
            return lambda x: transform(read(x))
        return read

    def to_json(self, data: Any) -> dict[str, Any]:
        """The indices spelled out; `data` is an mjData, for the size of the field."""
        numbers = np.arange(getattr(data, self.field).size)
        numbers = numbers if self.index is None else numbers[self.index]
        return {"field": self.field, "index": numbers.tolist(), "transform": self.transform}


Recipe = Sequence[Part]
