"""Replay of images: single frames, stacked and shifted when they are sampled.

An observation is the stack of the last frames. Only the newest is stored; an episode starts with
rows that hold copies of its first frame, so that every stack is one contiguous block and none
crosses the start of an episode. The newest rows are in memory. If not all fit there, the older ones
are read by position from the chunks that checkpoints wrote: there is no second copy.

Random shift (DrQ-v2): a stack moves by up to `pad` pixels each way, its border repeated. Published
as a bilinear sampling of a padded image, which for whole pixels is this copy of a block.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from comsd.checkpoint import Chunk
from comsd.errors import RunError
from comsd.replay import Integers, Layout, Replay
from comsd.types import Mask

Frames = NDArray[np.uint8]


class FrameLayout(NamedTuple):
    """The size of a replay of images, before any memory or disk is taken."""

    layout: Layout
    memory: float  # bytes of frames that may be in memory
    open_steps: int  # at most so many of an environment's steps between two checkpoints

    @property
    def frame(self) -> tuple[int, ...]:
        """The shape of one frame."""
        channels, *size = self.layout.obs.shape
        return channels // self.layout.obs.frames, *size

    @property
    def rows(self) -> int:
        return self.layout.arrays["reward"][0][1]

    @property
    def in_memory(self) -> int:
        """Rows of each environment whose frames are in memory: all, or those in no file yet."""
        row_bytes = self.layout.num_envs * math.prod(self.frame)
        if self.rows * row_bytes <= self.memory:
            return self.rows
        episodes = -(-self.open_steps // self.layout.horizon) + 1
        return min(self.rows, self.open_steps + (episodes + 1) * self.layout.obs.frames)

    @property
    def arrays(self) -> dict[str, tuple[tuple[int, ...], str]]:
        mirrored = self.in_memory + self.layout.obs.frames - 1
        frames = (self.layout.num_envs, mirrored, *self.frame), "uint8"
        return self.layout.arrays | {"obs": frames}

    @property
    def bytes(self) -> int:
        """In memory."""
        return sum(math.prod(s) * np.dtype(dtype).itemsize for s, dtype in self.arrays.values())

    @property
    def disk(self) -> int:
        """In files."""
        return self.layout.num_envs * self.rows * math.prod(self.frame)

    @property
    def capacity(self) -> int:
        return self.layout.capacity

    @property
    def num_envs(self) -> int:
        return self.layout.num_envs


class FrameFile:
    """The frames of a chunk, read by position."""

    def __init__(self, chunk: Chunk, frame_bytes: int) -> None:
        assert chunk.folder is not None
        self.file = chunk.folder.open(chunk.file, "rb", os.O_RDONLY)
        self.handle, self.frame_bytes = self.file.fileno(), frame_bytes
        size = int.from_bytes(os.pread(self.handle, 8, 0), "little")  # of safetensors' header
        header: dict[str, Any] = json.loads(os.pread(self.handle, size, 8))
        column = next(v for name, v in header.items() if name.endswith("/obs"))
        self.begin = 8 + size + int(column["data_offsets"][0])
        self.span = np.array(chunk.span)  # (N, 2)  rows of each environment
        sizes = self.span[:, 1] - self.span[:, 0]
        self.offset = sizes.cumsum() - sizes  # frames of earlier environments

    def position(self, env: int, row: int) -> int:
        """Of a frame's first byte."""
        index = int(self.offset[env]) + row - int(self.span[env, 0])
        return self.begin + index * self.frame_bytes

    def read(self, env: int, row: int, out: Frames) -> None:
        if os.preadv(self.handle, [out.data], self.position(env, row)) != out.nbytes:
            raise RunError("a file of frames is shorter than when it was written")

    def close(self) -> None:
        self.file.close()


def shift(source: Frames, target: Frames, down: int, right: int) -> None:
    """target[:, y, x] = source[:, y + down, x + right], indices clipped to the border."""
    height, width = source.shape[1:]
    top, left = max(0, -down), max(0, -right)
    bottom, end = height - max(0, down), width - max(0, right)
    target[:, top:bottom, left:end] = source[
        :, top + down : bottom + down, left + right : end + right
    ]
    if left:
        target[:, top:bottom, :left] = target[:, top:bottom, left : left + 1]
    if end < width:
        target[:, top:bottom, end:] = target[:, top:bottom, end - 1 : end]
    if top:
        target[:, :top] = target[:, top : top + 1]
    if bottom < height:
        target[:, bottom:] = target[:, bottom - 1 : bottom]


class FrameReplay(Replay):
    """The last transitions of some environments whose observations are stacked images."""

    obs: Frames  # (N, rows in memory, C, H, W): a ring whose first rows are repeated at its end

    def __init__(self, layout: FrameLayout, device: torch.device, pad: int) -> None:
        self.stack, self.frame, self.pad = layout.layout.obs.frames, layout.frame, pad
        self.in_memory, self.margin = layout.in_memory, self.stack - 1
        self.memory_from = np.zeros(layout.num_envs, np.int64)  # no earlier rows are in memory
        self.files: dict[str, FrameFile] = {}  # of chunks that were read from
        super().__init__(layout, device)

    # --- writing ------------------------------------------------------------------------------

    def begin(self, obs: NDArray[Any], where: Mask) -> None:
        """Open the first row of new episodes, after rows with the frames before it."""
        envs = np.flatnonzero(where)
        for i in range(self.margin):
            at = envs, self.head[envs] % self.rows
            self.action[at], self.reward[at], self.terminated[at] = 0, 0, False
            # An episode of its own, so that no window begins or ends here.
            self.episode[at], self.segment[at] = -1 - self.head[envs], self.current[envs]
            older = obs[envs, : (i + 1) * self.frame[0]]
            self._set("obs", envs, self.head[envs], older)
            self.head[envs] += 1
        super().begin(obs, where)

    def _open(self, obs: NDArray[Any]) -> None:
        """A frame leaves the memory only when it is in a file."""
        sealed = np.array(self.chunks[-1].span)[:, 1] if self.chunks else 0
        if self.in_memory < min(self.rows, int((self.head - sealed).max()) + 2 * self.stack):
            env, rows = self._places(np.stack([self.head - self.in_memory, self.head], 1).tolist())
            env, rows = env[rows >= 0], rows[rows >= 0]
            frames = self._get("obs", env, rows)
            self.memory_from = np.maximum(0, self.head - self.in_memory)
            self.in_memory = min(self.rows, 2 * self.in_memory)
            shape = self.num_envs, self.in_memory + self.margin, *self.frame
            self.obs = np.zeros(shape, np.uint8)
            self._set("obs", env, rows, frames)
        super()._open(obs)

    def _set(self, name: str, env: Integers, rows: Integers, values: NDArray[Any]) -> None:
        if name != "obs":
            super()._set(name, env, rows, values)
            return
        recent = rows > self.head[env] - self.in_memory
        if not recent.all():  # of a chunk that is read again, the rest stays where it is
            env, rows, values = env[recent], rows[recent], values[recent]
        values = values[:, -self.frame[0] :]
        at = rows % self.in_memory
        self.obs[env, at] = values
        if (mirrored := at < self.margin).any():
            self.obs[env[mirrored], at[mirrored] + self.in_memory] = values[mirrored]

    def _get(self, name: str, env: Integers, rows: Integers) -> NDArray[Any]:
        """Single frames are always asked for before they leave the memory."""
        if name != "obs":
            return super()._get(name, env, rows)
        return self.obs[env, rows % self.in_memory]

    @property
    def stored(self) -> Integers:
        """Those whose whole stack is kept."""
        # Where nothing is lost, the first rows are copies, at which no window begins.
        lost = np.where(self.lost > 0, self.lost + self.margin, 0)
        return np.minimum(self.head - lost, self.rows - 1 - self.margin)

    def has_window(self, n: int) -> bool:
        return super().has_window(n + self.margin)  # the copies do not count

    # --- reading ------------------------------------------------------------------------------

    def _observations(
        self, env: Integers, rows: Integers, rng: np.random.Generator | None
    ) -> Frames:
        """Stacks (B, stack * C, H, W), shifted at random if there is a generator."""
        stacks = np.empty((len(rows), self.stack * self.frame[0], *self.frame[1:]), np.uint8)
        shifts = np.zeros((len(rows), 2), np.int64)
        if rng is not None and self.pad:
            shifts = rng.integers(-self.pad, self.pad + 1, shifts.shape)
        first = rows - self.margin
        near = first >= np.maximum(self.memory_from, self.head - self.in_memory + 1)[env]
        each = zip(env.tolist(), first.tolist(), shifts.tolist(), stacks, strict=True)
        samples = list(each)
        for i in np.flatnonzero(near).tolist():
            e, row, by, stack = samples[i]
            at = row % self.in_memory
            shift(self.obs[e, at : at + self.stack].reshape(stack.shape), stack, *by)
        if not near.all():
            self._read_stacks([samples[i] for i in np.flatnonzero(~near)])
        return stacks

    def _read_stacks(self, samples: list[tuple[int, int, list[int], Frames]]) -> None:
        """In the order in which they lie in the files."""
        located = []
        for e, row, by, stack in samples:
            files = [self._file(e, row + i) for i in range(self.stack)]
            located.append((files[0].handle, files[0].position(e, row), e, row, by, files, stack))
        located.sort(key=lambda sample: sample[:2])
        for *_, e, row, by, files, stack in located:
            block = np.empty((self.stack, *self.frame), np.uint8)
            if files[0] is files[-1]:
                files[0].read(e, row, block)
            else:  # where one chunk ends and the next begins
                for i, file in enumerate(files):
                    file.read(e, row + i, block[i])
            shift(block.reshape(stack.shape), stack, *by)

    def _file(self, env: int, row: int) -> FrameFile:
        for chunk in reversed(self.chunks):
            if chunk.span[env][0] <= row < chunk.span[env][1]:
                if chunk.name not in self.files:
                    self.files[chunk.name] = FrameFile(chunk, math.prod(self.frame))
                return self.files[chunk.name]
        raise RunError(f"frame {row} of environment {env} is in no file")

    # --- state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        names = {chunk.name for chunk in self.chunks}
        for name in [name for name in self.files if name not in names]:
            self.files.pop(name).close()
        return state
