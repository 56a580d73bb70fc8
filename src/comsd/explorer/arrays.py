"""Arrays in a page: one compressed block, which a JSON header refers to."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNED = 8  # bytes: JavaScript views a number only where its size divides the place


class Arrays:
    """Collects arrays; `add` returns what stands for one in the header."""

    def __init__(self) -> None:
        self.block = bytearray()
        self.index: list[tuple[str, list[int], int]] = []

    def add(self, array: NDArray[Any]) -> dict[str, int]:
        array = np.ascontiguousarray(array)
        self.block += bytes(-len(self.block) % ALIGNED)
        kind = array.dtype.newbyteorder("<")
        self.index.append((kind.str[1:], list(array.shape), len(self.block)))
        self.block += array.astype(kind, copy=False).tobytes()
        return {"array": len(self.index) - 1}

    def encoded(self) -> str:
        return base64.b64encode(gzip.compress(self.block, 9, mtime=0)).decode()


def pack_frames(frames: Sequence[NDArray[Any]], arrays: Arrays) -> dict[str, Any]:
    """Recorded poses, by skill (time, numbers), in 16 bits each, finer than a pixel.

    Differences in time, all low bytes before all high ones, compress to less than half. Shorter
    roll-outs stand still after their end.
    """
    longest = max(map(len, frames))
    padded = np.stack([np.pad(f, ((0, longest - len(f)), (0, 0)), "edge") for f in frames])
    low, high = padded.min(1), padded.max(1)  # (skills, numbers)
    step = np.maximum(high - low, 1e-9) / 65535
    levels = np.rint((padded - low[:, None]) / step[:, None]).astype(np.uint16)
    levels = levels.transpose(0, 2, 1)
    changes = np.diff(levels, axis=-1, prepend=np.zeros_like(levels[..., :1]))  # modulo 2^16
    codes = np.stack([changes & 255, changes >> 8]).astype(np.uint8)
    return {
        "codes": arrays.add(codes),
        "low": arrays.add(low.astype(np.float32)),
        "step": arrays.add(step.astype(np.float32)),
        "lengths": [len(f) for f in frames],
    }
