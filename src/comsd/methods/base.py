"""What a method is: a representation loss and an intrinsic reward on a flat batch.

A method knows nothing of agents, environments, replay, schedules or logging. To add one, write a
config and three functions; `docs/add-a-method.md` walks through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from comsd.config import Setting, Settings, setting
from comsd.errors import InputError, RunError
from comsd.methods.output_checks import checked_loss, checked_reward
from comsd.nn import Init, Normalizer, adam
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.types import Batch, Metrics, ObsSpec, RewardOutput


@dataclass(frozen=True)
class MethodConfig(Settings):
    """Settings every method has; subclasses add their own."""

    hidden: int = setting(
        1024,
        "width of the hidden layers",
        "CIC's code, which the paper follows",
        low=1,
        high=65_536,
    )
    lr: float = setting(1e-4, "learning rate of the representation", "paper, table", above=0)
    reward_after: bool = setting(
        False,
        "off-policy: reward by a forward pass after the step (PPO: always)",
        "ours; CIC: True",
    )
    init: Init = setting("orthogonal", "initial weights of the representation", "URLB's code")

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {}
    """Per kind of environment: values that differ from the defaults, each with its source.

    Names with a dot are settings outside the method, such as `run.skills` or `train.hold`.
    """

    literal: ClassVar[dict[str, dict[str, Setting]]] = {}
    """The same for `--preset literal`: where the defaults depart from the paper's equations."""

    on_policy: ClassVar[dict[str, str]] = {}
    """Settings and the choice without which rows teach other skills than the one that acted."""

    states_only: ClassVar[dict[str, str]] = {}
    """Settings and the choice that has no meaning for images."""

    def rows_needed(self) -> dict[str, int]:
        """Settings and how many rows each needs at least in a batch that is rewarded."""
        return {}

    def check_space(self, kind: str) -> None:
        """Raise InputError where a choice has no meaning for this kind of skills."""

    def check_pixels(self) -> None:
        """Raise InputError where a choice has no meaning for images."""
        for name, choice in self.states_only.items():
            if getattr(self, name) == choice:
                raise InputError(
                    f"method.{name} is {choice!r}, which is for states, not for pixels"
                )

    def check_rows(self, rows: int, what: str) -> None:
        """Raise InputError where so few rows cannot be rewarded; `what` says which they are."""
        for name, needed in self.rows_needed().items():
            if needed > rows:
                value = getattr(self, name)
                most = value - (needed - rows)
                raise InputError(f"method.{name} is {value}; it must be at most {most} ({what})")


class Method(nn.Module):
    """Base class of all methods."""

    name: ClassVar[str]
    paper: ClassVar[str]
    status: ClassVar[str] = "not measured"
    config_class: ClassVar[type[MethodConfig]] = MethodConfig
    spaces: ClassVar[tuple[type[SkillSpace], ...]] = (OneHot, Box, Sphere)
    progress_metrics: ClassVar[dict[str, str]] = {}  # those on the progress line: their short names
    reward_uses_skill: bool = True
    reward_uses_order: bool = False  # does the order of the rows matter?
    critic: ClassVar[str] = "plain"  # its form, a key of `comsd.agents.critics.CRITICS`
    finetuning_rule: ClassVar[str] = "fixed"  # a rule of docs/adaptation.md
    flag_orders_skills: ClassVar[bool] = False  # are skills swept along the flag?
    reads: tuple[str, ...] = ("obs", "next_obs", "one_step_obs")  # observations; fewer are faster

    def __init__(self, config: MethodConfig, space: SkillSpace, obs: ObsSpec) -> None:
        """obs: describes the encoder's features, which are the observations for states."""
        super().__init__()
        self.config, self.space = config, space
        self.normalizer = Normalizer(obs.mean, obs.std)

    # --- what a method defines ----------------------------------------------------------------

    def embed(self, batch: Batch) -> Any:
        """The forward pass that `loss` and `reward` share."""
        return None

    def loss(self, batch: Batch, features: Any) -> tuple[Tensor, Metrics]:
        """What the representation minimises. Not called for a method without parameters."""
        raise RunError(f"{self.name} has parameters but no loss")

    def reward(self, batch: Batch, features: Any) -> tuple[Tensor, Metrics]:
        """What each transition is worth, (B,); called without gradient."""
        raise RunError(f"{self.name} has no reward")

    def value_skill(self, batch: Batch, features: Any) -> Tensor | None:
        """The skill (B, Z) whose value each row is to teach; None: the skill that acted."""
        return None

    def optimizer(self) -> torch.optim.Optimizer | None:
        """For what the loss trains; None if there is nothing to train.

        Override where networks learn at different rates.
        """
        trained = [p for p in self.parameters() if p.requires_grad]
        return adam(trained, self.config.lr) if trained else None

    def skill_scores(self, batch: Batch) -> Tensor | None:
        """(B, B): how well the skill of row i fits the transition of row j, if the method says."""
        return None

    def diagnostics(self, batch: Batch) -> Metrics:
        """Figures for the log that are not needed to learn; called in eval mode."""
        return {}

    @classmethod
    def default_skill(cls, space: SkillSpace) -> Tensor | None:
        """The skill that is fine-tuned by the rule `fixed`, (Z,); None if none stands out."""
        return space.flags(2)[0] if cls.flag_orders_skills else space.centre()

    @classmethod
    def candidates(cls, space: SkillSpace, k: int) -> Tensor:
        """The skills that the rule `best-of-k` tries, (k, Z)."""
        return space.flags(k) if cls.flag_orders_skills else space.grid(k)

    def regress_skill(self, batch: Batch) -> Tensor | None:
        """The skill, (Z,), that the task's rewards in the batch ask for, if the method says."""
        return None

    # --- how it learns ------------------------------------------------------------------------

    def embed_and_loss(self, batch: Batch) -> tuple[Any, Tensor, Metrics]:
        """Features, loss and metrics; the part that `--agent.compile` compiles."""
        features = self.embed(batch)
        return features, *checked_loss(self.name, self.loss(batch, features))

    def representation_step(
        self, batch: Batch, optimizer: torch.optim.Optimizer
    ) -> tuple[Any, Metrics]:
        """One step down the loss; returns the features from before it."""
        features, loss, metrics = self.embed_and_loss(batch)
        optimizer.zero_grad()
        loss.backward()  # also onto the encoder's features, if this method trains the encoder
        optimizer.step()
        return features, metrics

    @torch.no_grad()
    def intrinsic_reward(self, batch: Batch, features: Any = None) -> RewardOutput:
        """Reward and relabelled skill, from features if there are any already."""
        features = self.embed(batch) if features is None else features
        reward, metrics = checked_reward(self.name, self.reward(batch, features), batch.discount)
        return RewardOutput(reward, metrics, self.value_skill(batch, features))

    def update(
        self, batch: Batch, optimizer: torch.optim.Optimizer | None, *, step: bool = True
    ) -> RewardOutput:
        """One step of the representation, and the rewards (B,) from the same forward pass.

        step: False only evaluates the loss, for the log.
        """
        if optimizer is None:
            return self.intrinsic_reward(batch)
        if step:
            features, metrics = self.representation_step(batch, optimizer)
        else:
            with torch.no_grad():  # nothing goes back
                features, _, metrics = self.embed_and_loss(batch)
        output = self.intrinsic_reward(batch, None if self.config.reward_after else features)
        return output._replace(metrics=metrics | output.metrics)
