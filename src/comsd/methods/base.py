"""What a method is: a representation loss and an intrinsic reward on a flat batch.

A method knows nothing of agents, environments, replay, schedules or logging. To add one, write a
config and three functions; `docs/add-a-method.md` walks through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getattr_static
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from comsd.config import Setting, Settings, setting
from comsd.errors import InputError, RunError
from comsd.methods.returns import checked_loss, checked_reward
from comsd.nets import Adam, Init, Standardise
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.types import Batch, Lesson, Metrics, ObsInfo


@dataclass(frozen=True)
class MethodConfig(Settings):
    """Settings every method has; subclasses add their own."""

    hidden: int = setting(
        1024, "width of the hidden layers", "CIC's code, which the paper follows", low=1
    )
    lr: float = setting(1e-4, "learning rate of the representation", "paper, table", above=0)
    reward_after: bool = setting(
        False, "DDPG: reward by a forward pass after the step (PPO: always)", "ours; CIC: True"
    )
    init: Init = setting("orthogonal", "initial weights of the representation", "URLB's code")

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {}
    """Per kind of environment: values that differ from the defaults, each with its source.

    Names with a dot are settings outside the method, such as `run.skills` or `agent.hold`.
    """

    on_policy: ClassVar[dict[str, str]] = {}
    """Settings and the choice without which rows teach other skills than the one that acted."""

    def rows_needed(self) -> dict[str, int]:
        """Settings and how many rows each needs at least in a batch that is rewarded."""
        return {}

    def check_space(self, kind: str) -> None:
        """Raise InputError where a choice has no meaning for this kind of skills."""

    def check_rows(self, rows: int, what: str) -> None:
        """Raise InputError where so few rows cannot be rewarded; `what` says which they are."""
        for name, needed in self.rows_needed().items():
            if needed > rows:
                value = getattr(self, name)
                most = value - (needed - rows)
                raise InputError(f"method.{name} is {value}; it must be at most {most} ({what})")


HOOKS = "credit regress usual_skill candidates flag_orders_skills descend optimizer scores health"


class Method(nn.Module):
    """Base class of all methods."""

    name: ClassVar[str]
    paper: ClassVar[str]
    status: ClassVar[str] = "not measured"
    config_class: ClassVar[type[MethodConfig]] = MethodConfig
    spaces: ClassVar[tuple[type[SkillSpace], ...]] = (OneHot, Box, Sphere)
    headline: ClassVar[dict[str, str]] = {}  # short names of its few metrics that progress shows
    reward_uses_skill: ClassVar[bool] = True
    reward_uses_order: ClassVar[bool] = False  # does the order of the rows matter?
    critic: ClassVar[str] = "plain"  # its form, a key of `comsd.agents.critics.CRITICS`
    finetuning_rule: ClassVar[str] = "fixed"  # a rule of docs/adaptation.md
    flag_orders_skills: ClassVar[bool] = False  # are they swept along the flag?

    def __init__(self, config: MethodConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__()
        self.config, self.space = config, space
        self.standardise = Standardise(obs.mean, obs.std)

    @classmethod
    def extension_points(cls, agent: Settings) -> list[str]:
        """What it uses beyond a loss and a reward; docs/add-a-method.md explains each.

        agent: the usual settings, for those that the method has otherwise on robots.
        """
        usual = vars(Method)  # static, since a classmethod is another object at every look
        used = [name for name in HOOKS.split() if getattr_static(cls, name) is not usual[name]]
        tuned = cls.config_class.tuned.get("robots", {})
        others = {k.removeprefix("agent."): s.value for k, s in tuned.items() if "agent." in k}
        return used + [name for name, value in others.items() if value != getattr(agent, name)]

    def embed(self, batch: Batch) -> Any:
        """The forward pass that `loss` and `reward` share."""
        return None

    def loss(self, batch: Batch, features: Any) -> tuple[Tensor, Metrics]:
        """What the representation minimises. Not called for a method without parameters."""
        raise RunError(f"{self.name} has parameters but no loss")

    def reward(self, batch: Batch, features: Any) -> tuple[Tensor, Metrics]:
        """What each transition is worth, (B,); called without gradient."""
        raise RunError(f"{self.name} has no reward")

    def descend(self, batch: Batch, optimizer: Adam) -> tuple[Any, Metrics]:
        """One step of the representation; returns what was embedded before it.

        Override where the gradient is known without autograd.
        """
        features = self.embed(batch)
        loss, metrics = checked_loss(self.name, self.loss(batch, features))
        optimizer.descend(loss)
        return features, metrics

    def optimizer(self) -> Adam | None:
        """For what the loss trains; None if there is nothing to train.

        Override where networks learn at different rates: `Adam` takes a rate per parameter.
        """
        trained = [p for p in self.parameters() if p.requires_grad]
        return Adam(trained, self.config.lr) if trained else None

    def credit(self, batch: Batch, features: Any) -> Tensor | None:
        """The skill (B, Z) whose value each row is to teach; None: the skill that acted."""
        return None

    def learn(self, batch: Batch, optimizer: Adam | None) -> Lesson:
        """One step of the representation, and the rewards (B,) from the same forward pass."""
        if optimizer is None:
            return self.lesson(batch)
        features, metrics = self.descend(batch, optimizer)
        again = self.config.reward_after
        reward, parts, credit = self.lesson(batch, None if again else features)
        return Lesson(reward, metrics | parts, credit)

    @torch.no_grad()
    def lesson(self, batch: Batch, features: Any = None) -> Lesson:
        """Reward and credit, from features if there are any already."""
        features = self.embed(batch) if features is None else features
        returned = self.reward(batch, features)
        reward, metrics = checked_reward(self.name, returned, batch.discount)
        return Lesson(reward, metrics, self.credit(batch, features))

    def scores(self, batch: Batch) -> Tensor | None:
        """(B, B): how well the skill of row i fits the transition of row j, if the method says."""
        return None

    def skill_scores(self, batch: Batch) -> Tensor | None:
        return self.scores(batch)

    @classmethod
    def usual_skill(cls, space: SkillSpace) -> Tensor | None:
        """The skill that is fine-tuned by the rule `fixed`, (Z,); None if none stands out."""
        return space.flags(2)[0] if cls.flag_orders_skills else space.centre()

    @classmethod
    def candidates(cls, space: SkillSpace, k: int) -> Tensor:
        """The skills that the rule `best-of-k` tries, (k, Z)."""
        return space.flags(k) if cls.flag_orders_skills else space.grid(k)

    def regress(self, batch: Batch) -> Tensor | None:
        """The skill, (Z,), that the task's rewards in the batch ask for, if the method says."""
        return None

    def health(self, batch: Batch) -> Metrics:
        """Figures for the log that are not needed to learn; called in eval mode."""
        return {}
