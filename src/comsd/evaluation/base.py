"""The interface of evaluators, and what they need of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from torch import Tensor

from comsd.agents.base import Policy
from comsd.config import Config
from comsd.envs.base import Env
from comsd.envs.specs import EnvSpec
from comsd.methods.base import Method
from comsd.skills import SkillSpace
from comsd.training.rollout import StopFn

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class EvaluationTable(Protocol):
    def rows(self) -> list[dict[str, str]]: ...


class EvaluatedRun(Protocol):
    @property
    def spec(self) -> EnvSpec: ...

    @property
    def config(self) -> Config: ...

    @property
    def space(self) -> SkillSpace: ...

    @property
    def selected_skill(self) -> Tensor:
        """The skill of an adaptation, (Z,)."""
        ...

    @property
    def evaluations(self) -> EvaluationTable:
        """The evaluations during training."""
        ...

    def seeds(self) -> list[np.random.SeedSequence]: ...

    def make_env(self, num_envs: int, seed: int, discount: float | None = None) -> Env:
        """discount: of rewards within one action of a controller of skills."""
        ...


def evaluation_seed(run: EvaluatedRun) -> int:
    """Independent of all seeds of training."""
    return int(run.seeds()[3].generate_state(1)[0])


class Evaluator(Protocol):
    """Rolls out the policy of a run and computes metrics of its behaviour."""

    meanings: ClassVar[dict[str, str]]  # of every metric
    at_start: ClassVar[bool]  # evaluate before the first step of training, too
    progress_metrics: dict[str, str]  # the few metrics that the progress line shows: short names
    bounds: dict[str, float]  # of metrics, that stand for a claim of the paper; may be empty

    def evaluate_during_training(
        self, policy: Policy, method: Method, selected_skill: Tensor | None, stopped: StopFn
    ) -> dict[str, float] | None:
        """Metrics cheap enough to compute often; None if `stopped()` before they are complete."""
        ...

    def evaluate(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        """All metrics of a policy, or of random actions if it is None."""
        ...

    def draw(self, axes: Axes, policy: Policy) -> None:
        """All skills in one figure, or the learning curve of a task."""
        ...
