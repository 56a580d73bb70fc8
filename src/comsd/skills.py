"""Skill spaces. A skill is always a float vector; the space knows what its vectors mean."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


class SkillSpace(ABC):
    """Vectors of `dim` numbers with a prior p(z) to draw them from."""

    kind: str
    mean: float  # of each coordinate under the prior
    std: float

    def __init__(self, dim: int) -> None:
        self.dim = dim

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> Tensor:
        """n independent draws z ~ p(z), (n, dim)."""

    def sample_balanced(self, n: int, rng: np.random.Generator) -> Tensor:
        """n draws that cover the prior as evenly as n allows; finite spaces balance the counts."""
        return self.sample(n, rng)

    @abstractmethod
    def grid(self, n: int) -> Tensor:
        """n fixed skills spread over the space, for looking at what was learned."""

    @abstractmethod
    def flag(self, skill: Tensor) -> Tensor:
        """The scalar in [0, 1] that orders the skills for the dynamic weight (Eq. 11)."""

    def flags(self, n: int) -> Tensor:
        """n skills along the range of the flag."""
        return self.grid(n)

    @abstractmethod
    def decode(self, u: Tensor) -> Tensor:
        """[-1, 1]^dim -> skill: what a controller's action means as a skill."""

    @abstractmethod
    def contains(self, skill: Tensor) -> bool:
        """Is this vector, (dim,), a skill?"""

    def centre(self) -> Tensor | None:
        """The skill in the middle of all, (dim,), where there is one."""
        return None

    def unique(self, skill: Tensor) -> tuple[Tensor, Tensor | None]:
        """(skills, assignment) with skill = assignment @ skills: finite spaces list each of their
        skills once; elsewhere every row is its own skill and there is no assignment.
        """
        return skill, None

    @abstractmethod
    def alternatives(self, skill: Tensor, n: int) -> Tensor:
        """Alternatives to each row's skill, (L, B, dim): all others in finite spaces, else n draws
        z ~ p(z), shared by all rows, from torch's generator, whose state is saved with a run.
        """

    def direction(self, skill: Tensor) -> Tensor:
        """The skill as a direction to move along; finite spaces centre it."""
        return skill

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dim})"


class OneHot(SkillSpace):
    """`dim` separate skills, uniform prior."""

    kind = "one-hot"

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.mean = 1 / dim
        self.std = math.sqrt(dim - 1) / dim

    def encode(self, index: Tensor) -> Tensor:
        return F.one_hot(index, self.dim).float()

    def index(self, skill: Tensor) -> Tensor:
        return skill.argmax(-1)

    def unique(self, skill: Tensor) -> tuple[Tensor, Tensor]:
        return torch.eye(self.dim, device=skill.device), skill

    def contains(self, skill: Tensor) -> bool:
        return skill.tolist() == F.one_hot(skill.argmax(), self.dim).tolist()

    def sample(self, n: int, rng: np.random.Generator) -> Tensor:
        return self.encode(torch.from_numpy(rng.integers(self.dim, size=n)))

    def sample_balanced(self, n: int, rng: np.random.Generator) -> Tensor:
        rounds = -(-n // self.dim)  # every skill once per round; the last round may be cut short
        index = np.concatenate([rng.permutation(self.dim) for _ in range(rounds)])[:n]
        return self.encode(torch.from_numpy(index))

    def grid(self, n: int) -> Tensor:
        return self.encode(torch.arange(min(n, self.dim)))

    def flag(self, skill: Tensor) -> Tensor:
        return self.index(skill) / (self.dim - 1)

    def flags(self, n: int) -> Tensor:
        return self.encode(torch.linspace(0, self.dim - 1, n).round().long())

    def decode(self, u: Tensor) -> Tensor:
        return self.encode(u.argmax(-1))

    def alternatives(self, skill: Tensor, n: int) -> Tensor:
        return torch.stack([skill.roll(i, -1) for i in range(1, self.dim)])

    def direction(self, skill: Tensor) -> Tensor:
        return (skill - 1 / self.dim) * self.dim / (self.dim - 1)


class Box(SkillSpace):
    """The unit cube [0, 1]^dim, uniform prior."""

    kind = "box"
    mean = 0.5
    std = math.sqrt(1 / 12)

    def contains(self, skill: Tensor) -> bool:
        return bool(((skill >= 0) & (skill <= 1)).all())

    def sample(self, n: int, rng: np.random.Generator) -> Tensor:
        return torch.from_numpy(rng.random((n, self.dim), dtype=np.float32))

    def centre(self) -> Tensor:
        return torch.full((self.dim,), 0.5)

    def grid(self, n: int) -> Tensor:
        return torch.linspace(0, 1, n)[:, None].repeat(1, self.dim)

    def flag(self, skill: Tensor) -> Tensor:
        return skill[..., 0]

    def flags(self, n: int) -> Tensor:
        """The first coordinate swept, the others in the middle."""
        skill = torch.full((n, self.dim), 0.5)
        skill[:, 0] = torch.linspace(0, 1, n)
        return skill

    def decode(self, u: Tensor) -> Tensor:
        return (u + 1) / 2

    def alternatives(self, skill: Tensor, n: int) -> Tensor:
        return torch.rand(n, 1, self.dim, device=skill.device).expand(n, *skill.shape)


class Sphere(SkillSpace):
    """Unit vectors, uniform prior."""

    kind = "sphere"
    mean = 0.0

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.std = 1 / math.sqrt(dim)

    def contains(self, skill: Tensor) -> bool:
        return abs(float(skill.norm()) - 1) < 1e-3

    def sample(self, n: int, rng: np.random.Generator) -> Tensor:
        return self.decode(torch.from_numpy(rng.standard_normal((n, self.dim), dtype=np.float32)))

    def grid(self, n: int) -> Tensor:
        """Evenly on the circle of the first two coordinates."""
        angle = torch.arange(n) * (2 * math.pi / n)
        return F.pad(torch.stack([angle.cos(), angle.sin()], -1), (0, self.dim - 2))

    def flag(self, skill: Tensor) -> Tensor:
        return (skill[..., 0] + 1) / 2

    def flags(self, n: int) -> Tensor:
        """Half way round the circle of the first two coordinates."""
        x = torch.linspace(-1, 1, n)
        return F.pad(torch.stack([x, (1 - x.square()).sqrt()], -1), (0, self.dim - 2))

    def decode(self, u: Tensor) -> Tensor:
        return F.normalize(u, dim=-1)

    def alternatives(self, skill: Tensor, n: int) -> Tensor:
        drawn = torch.randn(n, 1, self.dim, device=skill.device)
        return self.decode(drawn).expand(n, *skill.shape)


class NoSkill(Box):
    """One nameless behaviour: the cube of dimension 0. For agents with a task only."""

    kind = "none"

    def flag(self, skill: Tensor) -> Tensor:
        return skill.new_zeros(skill.shape[:-1])

    def flags(self, n: int) -> Tensor:
        return self.grid(n)


SPACES: dict[str, type[SkillSpace]] = {s.kind: s for s in (OneHot, Box, Sphere, NoSkill)}
