"""Where a point of a maze is, worked out apart from the moves that brought it there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comsd.envs.maze import Maze

FAR = 20  # beyond every maze and what is one move away from it


def cell_index(maze: Maze, position: NDArray[np.floating]) -> NDArray[np.int64]:
    """Number of the cell around each (..., 2) position; -1 outside the maze."""
    table = np.full((2 * FAR, 2 * FAR), -1)
    table[tuple(maze.centres.astype(int).T + FAR)] = np.arange(len(maze.cells))
    cell = np.rint(position).astype(int) + FAR
    return table[cell[..., 0], cell[..., 1]]
