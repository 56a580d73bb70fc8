"""Adapted runs of our robots for the page: what learned the task, in front of the skills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comsd.adaptation import FinetuneSettings
from comsd.envs.base import Env
from comsd.envs.robots import ROBOTS
from comsd.envs.specs import EnvSettings
from comsd.errors import InputError
from comsd.evaluation.base import Options
from comsd.evaluation.episodes import plain_env
from comsd.evaluation.rollouts import Floats, Rollouts, Watch
from comsd.evaluation.skills import RobotEvaluator
from comsd.explorer.arrays import Arrays
from comsd.explorer.controller import Controller
from comsd.explorer.entries import Entries
from comsd.explorer.measures import MOST_EXPLORED, Measure, Measured, exported_skills
from comsd.explorer.robots import RobotWorld
from comsd.runs import Run

BESIDE = 3  # skills beside the controller when the page opens


def acting_run(run: Run) -> Run:
    """The run whose policy moves the body."""
    combined = run.config.run.stage == "combine"
    return run.source if combined and run.source else run


def method_of(run: Run) -> str:
    """That of the skills; without any, the agent."""
    scratch = run.config.run.stage == "scratch"
    return run.config.run.agent if scratch else (run.source or run).config.run.method


class TaskSkillEvaluator(RobotEvaluator):
    """Skills of the run that was adapted, with the rewards of the task."""

    def __init__(self, run: Run, options: Options) -> None:
        super().__init__(run.source or run, options)
        self.adapted = run

    def make_env(self, skills: int, starts: int) -> tuple[Env, Watch | None]:
        return plain_env(self.adapted, [*range(starts)] * skills)


class TaskWorld(RobotWorld):
    axes: tuple[str, str] = ("akd", "return")

    def measures(self, rollouts: Rollouts) -> dict[Measure, Floats]:
        assert rollouts.reward is not None
        label = f"return in {self.evaluator.steps} steps"
        return super().measures(rollouts) | {Measure("return", label, ""): rollouts.reward.sum(-1)}


class AdaptedEntries(Entries):
    """Entries of their own come before those of skills."""

    own: tuple[str, ...]  # their names
    heading: str
    about: str  # in a few words
    recorded_only: int | None = None  # the entry of a policy that the page does not have

    def __init__(self, run: Run, options: Options, sweeps: dict[str, Tensor]) -> None:
        world, acting = TaskWorld(TaskSkillEvaluator(run, options)), acting_run(run)
        super().__init__(acting.policy, acting.space, world, sweeps)
        assert isinstance(run.config.env, EnvSettings)
        reward = run.config.env.reward
        self.run, self.method = run, method_of(run)
        self.task = run.spec.name + (f", {reward}" if reward != "own" else "")

    def put_first(self, skill: Tensor) -> None:
        """The entries of their own; skill (Z,): which acts in them, as far as it is one."""
        skills = skill.expand(len(self.own), -1)
        self.names = [*self.own, *self.names]
        self.skills = torch.cat([skills, self.skills])
        self.flags = [*self.space.flag(skills).tolist(), *self.flags]

    def notes(self) -> list[str]:
        evaluator, horizon = self.world.evaluator, self.run.spec.horizon
        return [
            f"The return is the sum of the rewards of {self.task} in the first {evaluator.steps} "
            f"of an episode's {horizon} steps. Evaluations score whole ones, from other starts."
        ]

    def opening(self, returns: Floats) -> list[int]:
        """The entries that are shown first, by the mean return of each."""
        return [*range(len(self.own))]

    def to_json(self, measured: Measured, arrays: Arrays) -> dict[str, Any]:
        (returns,) = [x.mean(1) for key, x in measured.values.items() if key.key == "return"]
        adaptation = {
            "heading": self.heading,
            "about": self.about,
            "notes": self.notes(),
            "own": len(self.own),
            "recorded_only": self.recorded_only,
            "opening": self.opening(returns),
            "controller": None,
        }
        return {"adaptation": adaptation}


class ScratchEntries(AdaptedEntries):
    """One behaviour."""

    own = ("policy",)
    has_sliders = False

    def __init__(self, run: Run, options: Options) -> None:
        super().__init__(run, options, {})
        self.heading, self.about = f"{self.method} from scratch on {self.task}", "no skills"
        self.put_first(run.selected_skill)

    def roll_outs(self) -> Iterator[Rollouts]:
        yield self.world.evaluator.roll_out(self.policy, self.skills)


class TunedEntries(AdaptedEntries):
    """The tuned skill, what it did before, and what tuning did to the other skills."""

    own = ("tuned skill", "before tuning")
    recorded_only = 1

    def __init__(self, run: Run, n: int, options: Options) -> None:
        super().__init__(run, options, exported_skills(run.space, n))
        assert isinstance(run.config.adapt, FinetuneSettings)
        self.rule = run.config.adapt.rule
        self.heading = f"{self.method} fine-tuned on {self.task}"
        self.about = f"skill rule {self.rule}"
        self.put_first(run.selected_skill)

    def roll_outs(self) -> Iterator[Rollouts]:
        assert self.run.source is not None
        for policy in (self.policy, self.run.source.policy):
            yield self.world.evaluator.roll_out(policy, self.skills[:1])
        yield from super().roll_outs()

    def notes(self) -> list[str]:
        tuned = "Only the tuned skill has learned the task; the others act by the same policy."
        if self.rule == "resample":
            tuned = "All skills have learned the task in turn; the one called tuned was the last."
        before = "Before tuning: the same skill by the policy of its run, as recorded in Python."
        return [*super().notes(), f"{tuned} {before}"]


class CombinedEntries(AdaptedEntries):
    """The controller, and what it chooses among: candidates, or skills of the whole space."""

    own = ("controller",)

    def __init__(self, run: Run, n: int, options: Options) -> None:
        self.controller = Controller(run)
        candidates, hold = self.controller.candidates, self.controller.actor.hold
        if candidates is None:
            super().__init__(run, options, exported_skills(acting_run(run).space, n))
            kind = "continuous controller"
        else:
            k = check_number(candidates, run)
            super().__init__(run, options, {"candidates": candidates})
            kind, self.has_sliders = f"discrete controller of {k} candidates", False
            self.flags = np.linspace(0, 1, k).tolist()  # by which the page colours them
            self.names = [f"candidate {i}" for i in range(k)]
        self.heading = f"{self.method}'s skills combined for {self.task}"
        self.about = f"{kind}, a choice every {f'{hold} steps' if hold > 1 else 'step'}"
        self.put_first(self.skills[0])

    def roll_outs(self) -> Iterator[Rollouts]:
        self.seen = self.controller.roll_out(self.world.evaluator)
        yield self.seen
        yield from super().roll_outs()

    def notes(self) -> list[str]:
        said = super().notes()
        if self.controller.candidates is not None:
            said.append(
                "The highest return of several candidates is above what that one is worth: "
                "evaluations choose it on other starts than they score it on."
            )
        return said

    def opening(self, returns: Floats) -> list[int]:
        return [0, *(1 + np.argsort(-returns[1:])[:BESIDE]).tolist()]

    def to_json(self, measured: Measured, arrays: Arrays) -> dict[str, Any]:
        result = super().to_json(measured, arrays)
        result["adaptation"]["controller"] = self.controller.to_json(self.seen, arrays)
        return result


def check_number(candidates: Tensor, run: Run) -> int:
    if len(candidates) > MOST_EXPLORED:
        raise InputError(
            f"explore shows all candidates of a controller, at most {MOST_EXPLORED}; "
            f"{run.path} has {len(candidates)}"
        )
    return len(candidates)


def adapted_entries(run: Run, n: int, options: Options) -> Entries:
    stage, families = run.config.run.stage, run.spec.families
    if families[0] != "tasks" or families[-1] not in ROBOTS:
        raise InputError(
            f"explore shows adapted runs of {', '.join(ROBOTS)}; {run.path} is a {stage} run on "
            f"{run.spec.name}"
        )
    if stage == "scratch":
        return ScratchEntries(run, options)
    return (TunedEntries if stage == "finetune" else CombinedEntries)(run, n, options)
