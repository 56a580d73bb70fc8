"""Two-dimensional mazes of unit cells: a point moves, walls stop it, there is no reward.

The mazes are those of EDL (Campos et al. 2020). A maze is a map with one hexadecimal digit per
cell, the sum of its open sides: 1 up, 2 right, 4 down, 8 left; '.' is solid. Cells are centred on
integer coordinates, so a wall lies on a half-integer line.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comsd.envs.base import Step
from comsd.types import Array, Mask, ObsSpec

Cell = tuple[int, int]

UP, RIGHT, DOWN, LEFT, STAY = 0, 1, 2, 3, 4
SIDES: dict[int, Cell] = {UP: (0, 1), RIGHT: (1, 0), DOWN: (0, -1), LEFT: (-1, 0)}

FORWARD, BACKWARD = np.array([RIGHT, UP]), np.array([LEFT, DOWN])  # sides by axis
CORNERS = np.array([[-1, 1], [1, 1], [1, -1], [-1, -1]]) / 2  # of a cell, clockwise
WALLS = CORNERS[[[0, 1], [2, 1], [3, 2], [3, 0]]]  # by side: both ends, the lower or left first

REACH = 0.95  # longest move per axis; below 1, so a move crosses at most one edge per axis
HORIZON = 50
MARGIN = 0.05  # the start keeps this far from walls
PULL_BACK = 0.01  # a blocked move ends up to this far from the wall


class Maze:
    """The geometry: which cells exist, which sides are open, and how a move ends."""

    def __init__(
        self,
        name: str,
        rows: str,
        *,
        corner: Cell = (0, 0),
        start: Cell = (0, 0),
        origin: tuple[float, float] | None = None,
    ) -> None:
        """`corner` is the cell of the map's first digit, `origin` where evaluations begin."""
        self.name = name
        self.start = start
        self.origin = origin or (float(start[0]), float(start[1]))
        self.sides: dict[Cell, int] = {
            (corner[0] + x, corner[1] - y): int(digit, 16)
            for y, row in enumerate(rows.split("/"))
            for x, digit in enumerate(row)
            if digit != "."
        }
        self.cells: list[Cell] = sorted(self.sides)
        self.number = {cell: i for i, cell in enumerate(self.cells)}
        self.centres = np.array(self.cells, dtype=float)
        # The cell behind each side, -1 for a wall; as a fifth, the cell itself.
        self.next_cell = np.full((len(self.cells), 5), -1)
        self.next_cell[:, STAY] = np.arange(len(self.cells))
        for i, cell in enumerate(self.cells):
            for side, (dx, dy) in SIDES.items():
                neighbour = (cell[0] + dx, cell[1] + dy)
                if self.is_open(cell, side):
                    if not self.is_open(neighbour, (side + 2) % 4):
                        raise ValueError(f"maze {name}: cell {cell} opens to {neighbour}, not back")
                    self.next_cell[i, side] = self.number[neighbour]

    def is_open(self, cell: Cell, side: int) -> bool:
        return bool(self.sides.get(cell, 0) >> side & 1)

    def neighbours(self, cell: Cell) -> list[Cell]:
        return [self.cells[i] for i in self.next_cell[self.number[cell], :STAY] if i >= 0]

    def move(
        self,
        position: NDArray[np.float64],
        cell: NDArray[np.int64],
        delta: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Move (N, 2) positions in (N,) cells by |delta| < 1, sliding along walls.

        Each axis crosses at most one edge. The crossings are processed in the order in which they
        are reached, each from the cell that contains the point then, so that no corner leaks.
        """
        centre = self.centres[cell]
        target = position + delta
        towards = np.copysign(0.5, delta)
        edge = centre + towards
        crosses = np.abs(target - centre) > 0.5
        when = np.divide(edge - position, delta, out=np.full_like(delta, np.inf), where=crosses)
        side = np.where(crosses, np.where(delta > 0, FORWARD, BACKWARD), STAY)
        swap = when[:, 1] < when[:, 0]  # y comes first; a tie takes x
        order = np.where(swap[:, None], side[:, ::-1], side)
        stopped = np.empty_like(crosses)
        for i in range(2):
            behind = self.next_cell[cell, order[:, i]]
            stopped[:, i] = behind < 0
            cell = np.where(stopped[:, i], cell, behind)
        blocked = np.where(swap[:, None], stopped[:, ::-1], stopped)
        pull_back = 1e-6 + PULL_BACK * rng.random(delta.shape)
        return np.where(blocked, edge - 2 * towards * pull_back, target), cell

    def random_start(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        low = [-0.5 + MARGIN * (not self.is_open(self.start, s)) for s in (LEFT, DOWN)]
        high = [0.5 - MARGIN * (not self.is_open(self.start, s)) for s in (RIGHT, UP)]
        return np.array(self.start) + rng.uniform(low, high, size=(n, 2))

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """Number of cell-to-cell steps from the start to each cell."""
        steps, queue = {self.start: 0}, [self.start]
        for cell in queue:  # which grows
            for neighbour in self.neighbours(cell):
                if neighbour not in steps:
                    steps[neighbour] = steps[cell] + 1
                    queue.append(neighbour)
        return np.array([steps[cell] for cell in self.cells])

    @cached_property
    def arms(self) -> list[set[int]]:
        """The dead ends: each leaf with its corridor up to the junction, as cell numbers."""
        arms: list[set[int]] = []
        for leaf in self.cells:
            if leaf == self.start or len(self.neighbours(leaf)) != 1:
                continue
            arm, cell = [leaf], self.neighbours(leaf)[0]
            while len(self.neighbours(cell)) == 2 and cell != self.start:
                arm.append(cell)
                cell = next(n for n in self.neighbours(cell) if n not in arm)
            arms.append({self.number[c] for c in arm})
        return arms

    @cached_property
    def branches(self) -> list[set[int]]:
        """Parts that the first junction separates, without the arms; none if there are loops."""
        if sum(len(self.neighbours(cell)) for cell in self.cells) != 2 * (len(self.cells) - 1):
            return []
        trunk, cell = [self.start], self.start
        while len(onward := [n for n in self.neighbours(cell) if n not in trunk]) == 1:
            cell = onward[0]
            trunk.append(cell)
        left = set(range(len(self.cells))).difference(*self.arms, [self.number[c] for c in trunk])
        branches: list[set[int]] = []
        while left:
            branch = [min(left)]
            for i in branch:  # which grows
                left.discard(i)
                branch += left & {self.number[n] for n in self.neighbours(self.cells[i])}
            branches.append(set(branch))
        return branches

    @cached_property
    def walls(self) -> NDArray[np.float64]:
        """Unit wall segments, (W, 2 ends, 2), each once."""
        cell, side = np.nonzero(self.next_cell[:, :STAY] < 0)
        return np.unique(self.centres[cell, None] + WALLS[side], axis=0)

    @cached_property
    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of a point uniform over the maze."""
        return self.centres.mean(0), np.sqrt(self.centres.var(0) + 1 / 12)


class MazeEnv:
    """`num_envs` points in one maze."""

    action_dim = 2
    horizon = HORIZON
    repeat = 1

    def __init__(self, maze: Maze, num_envs: int, seed: int, *, fixed_start: bool = False) -> None:
        self.maze, self.num_envs, self.fixed_start = maze, num_envs, fixed_start
        mean, std = (moment.astype(np.float32) for moment in maze.moments)
        self.obs_spec = ObsSpec((2,), "float32", mean, std)
        self.no_reward = np.zeros(num_envs, np.float32)
        self.never = np.zeros(num_envs, bool)
        # Separate streams: resetting some environments leaves the moves of the others as they are.
        seeds = np.random.SeedSequence(seed).spawn(2)
        self.start_rng, self.move_rng = (np.random.default_rng(s) for s in seeds)
        self.position, self.cell = np.zeros((num_envs, 2)), np.zeros(num_envs, np.int64)
        self.clock = np.zeros(num_envs, np.int64)
        self.reset()

    def reset(self, where: Mask | None = None) -> Array:
        where = ~self.never if where is None else where
        if self.fixed_start:
            start = np.array([self.maze.origin])
        else:
            start = self.maze.random_start(self.num_envs, self.start_rng)
        self.position = np.where(where[:, None], start, self.position)
        self.cell = np.where(where, self.maze.number[self.maze.start], self.cell)
        self.clock = np.where(where, 0, self.clock)
        return self.position.astype(np.float32)

    def step(self, action: Array) -> Step:
        delta = REACH * action.astype(np.float64)
        self.position, self.cell = self.maze.move(self.position, self.cell, delta, self.move_rng)
        self.clock = self.clock + 1
        obs, truncated = self.position.astype(np.float32), self.clock >= self.horizon
        return Step(obs, self.no_reward, self.never, truncated)

    def positions(self) -> NDArray[np.float64]:
        return self.position

    def state_dict(self) -> dict[str, Any]:
        return {
            "position": self.position,
            "cell": self.cell,
            "clock": self.clock,
            "start_rng": self.start_rng.bit_generator.state,
            "move_rng": self.move_rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position, self.cell, self.clock = state["position"], state["cell"], state["clock"]
        self.start_rng.bit_generator.state = state["start_rng"]
        self.move_rng.bit_generator.state = state["move_rng"]


_CORRIDOR = "2aaaaaaaaa8"
_LARGE = (
    "42eaaaa86c/3c56868691/43d783c568/3c55445794/479793d785/"
    "3fabac57ad/4544417941/7f95783eb8/516fbc696c/3a9383ba91"
)
_BOTTLENECK = (
    "6eeeeec6ec/7fffffd7fd/7fffffd7fd/7fffffd7fd/3bbbbfd7fd/"
    "6eeec7d7fd/7fffd7fffd/7fffd3bfb9/7ffffee96c/3bbb93bab9"
)
_TREE = (
    "......4....../......5....../..6aaabaaac../..5.......5../"
    "6abac...6abac/5...5...5...5/1...1...1...1"
)

MAZES: dict[str, Maze] = {
    maze.name: maze
    for maze in (
        Maze("tree", _TREE, corner=(-6, 0), origin=(0.0, -0.5)),
        Maze("a", "4.4.4/5.5.5/7a9.5/5...5/3aaa9"),
        Maze("b", "4.4.4/5.5.5/5.5.5/5.5.5/3aba9"),
        Maze("c", "4.6ac/5.5.5/5.5.5/5.5.5/3a9.1"),
        Maze("d", "6aaeaac/5..5..5/5.454.5/3a913a9", corner=(-3, 0)),
        Maze("corridor", _CORRIDOR, corner=(-5, 0)),
        Maze("corridor-end", _CORRIDOR, corner=(-5, 0), start=(-5, 0)),
        Maze("large", _LARGE, corner=(0, 9)),
        Maze("bottleneck", _BOTTLENECK, corner=(0, 9)),
    )
}
