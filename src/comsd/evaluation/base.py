"""What the loop, the command line and the plots ask of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from comsd.learners.base import Policy
    from comsd.training.trainer import Trainer


class Stopped(Exception):  # noqa: N818 (not an error)
    """A signal came in the middle of a roll-out."""


def never() -> bool:
    return False


@contextmanager
def acting() -> Iterator[None]:
    """For steps of a few simulations side by side, which share the threads of the process.

    The products of so few rows are small: torch's threads would mostly wait, and in waiting keep
    the simulator's from running. Make the environment outside.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Evaluator(Protocol):
    """Rolls out what a run has learned and says what it does."""

    meanings: ClassVar[dict[str, str]]  # of every metric
    progress_metrics: dict[str, str]  # short names of the few metrics that progress shows
    bounds: dict[str, float]  # what stands for a published claim here; may be empty
    at_start: ClassVar[bool]  # is there something to see before the first step?

    def evaluate_during_training(
        self, trainer: Trainer, stopped: Callable[[], bool]
    ) -> dict[str, float] | None:
        """The metrics to keep an eye on in training; few enough to cost little.

        None if `stopped` says so before it is done.
        """
        ...

    def evaluate(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        """The metrics of a policy, or of random actions if there is none."""
        ...

    def draw(self, axes: Axes, policy: Policy) -> None:
        """What each skill does, in one picture."""
        ...
