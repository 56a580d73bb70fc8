"""What the loop, the command line and the plots ask of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from matplotlib.axes import Axes

from comsd.learners.base import Policy
from comsd.methods.base import Method


class Evaluator(Protocol):
    """Rolls out the skills of a run and says what they do, without rewards."""

    meanings: ClassVar[dict[str, str]]  # of every metric
    headline: ClassVar[dict[str, str]]  # short names of the few metrics that progress shows
    bounds: dict[str, float]  # what stands for a published claim here; may be empty

    def follow(
        self, policy: Policy, method: Method, stopped: Callable[[], bool]
    ) -> dict[str, float] | None:
        """The metrics to keep an eye on in training; few enough to cost little.

        None if `stopped` says so before it is done.
        """
        ...

    def measure(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        """The metrics of a policy, or of random actions if there is none."""
        ...

    def draw(self, axes: Axes, policy: Policy) -> None:
        """What each skill does, in one picture."""
        ...
