"""Evaluation of skills in any environment, without rewards: how active they are, how far they
reach and whether they differ. Every figure comes from several starts per skill.

Mean actions. Robots have the same starts for all skills; other environments draw one for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comsd.agents.base import Policy
from comsd.envs.base import Env, action_rng
from comsd.envs.pixels import act_on_states
from comsd.envs.specs import make_robot
from comsd.evaluation import held_out
from comsd.evaluation.base import Evaluator, Options, policy_fn_of
from comsd.evaluation.metrics import (
    MEAN_NEIGHBOURS,
    Measured,
    Values,
    activity,
    flag_metrics,
    identification,
    mean_states,
    state_coverage,
    sweep_metrics,
    xy_coverage,
)
from comsd.evaluation.pictures import (
    Colour,
    draw_activity,
    draw_bars,
    draw_trajectories,
    sweep_colours,
)
from comsd.evaluation.rollouts import (
    Entries,
    Floats,
    Rollouts,
    Watch,
    find_entries,
    position_axes,
    roll_out,
)
from comsd.methods.base import Method
from comsd.runs import Run
from comsd.skill_sets import (
    FLAGS,
    IDENTIFIED,
    RANDOM_SKILLS,
    SWEEPS,
    flag_grid,
    identified_skills,
    labels,
    skill_sweeps,
    sweep_title,
)
from comsd.skills import Box, SkillSpace
from comsd.training.trainer import Trainer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from comsd.envs.mujoco import RobotEnv

IDENTIFIED_STEPS = 200  # of the roll-outs by which skills are identified
TRAINING_STARTS = 2  # per skill during training, of which evaluations are a part
SQUARE = 1.0  # side of the squares that are counted, in the units of positions

STATISTICS = {
    "max": "largest of the skills' AKDs",
    "range": "largest minus smallest AKD",
    "variance": "variance of the skills' AKDs",
    "mean": "mean of the skills' AKDs",
    "sd": "SD over the starts of one skill, mean over skills",
}
MEANINGS = (
    {
        f"akd_{statistic}_{name}": f"{meaning}; {name} sweep"
        for name in SWEEPS
        for statistic, meaning in STATISTICS.items()
    }
    | {
        f"ms_coverage{k}_{name}": f"distance of mean states to their {k} nearest; {name} sweep"
        for name in SWEEPS
        for k in MEAN_NEIGHBOURS
    }
    | {f"activity_{f:g}": f"A({f:g}): mean AKD of random skills with flag {f:g}" for f in FLAGS}
    | {
        "activity_rho": "Spearman's rank correlation of flag and AKD over those skills",
        "identification": f"accuracy of telling up to {IDENTIFIED} skills apart by their states",
        "state_coverage": "AKD of 2000 states of the random skills, or all, together (k-NN)",
        "xy_coverage": "squares of side 1 that the random skills, or all, visit together (bins)",
    }
    | held_out.MEANINGS
)


@dataclass(frozen=True)
class Behaviour:
    """What the skills of a policy did."""

    sweeps: dict[str, Rollouts]
    akd: dict[str, Floats]  # (skills, starts) of each sweep
    flags: Floats | None  # (flags, skills, starts): the AKDs along the flag


def training_sweep(space: SkillSpace) -> str:
    """The sweep that progress and pictures show."""
    return "flag" if isinstance(space, Box) else "constant"


def pooled_sweep(space: SkillSpace) -> str:
    """The sweep that stands for all skills."""
    return "random" if "random" in skill_sweeps(space) else "constant"


def training_sweeps(space: SkillSpace) -> list[str]:
    """Those that are rolled out during training."""
    return list(dict.fromkeys((training_sweep(space), pooled_sweep(space))))


def training_meanings(space: SkillSpace) -> dict[str, str]:
    """Of the metrics of evaluations during training."""
    ends = tuple(f"_{name}" for name in training_sweeps(space))
    return {
        name: meaning
        for name, meaning in MEANINGS.items()
        if name.endswith(ends) or name == "state_coverage" or name in held_out.MEANINGS
    }


class SkillEvaluator(Evaluator):
    """For every environment that has no evaluator of its own."""

    takes = ("starts", "skills", "steps", "xy")
    meanings = MEANINGS

    def __init__(self, run: Run, options: Options | None = None) -> None:
        super().__init__(run, options)
        settings, chosen = run.config.run, self.options
        few = settings.pixels  # rendering takes a hundred times as long as a step
        self.starts = chosen.starts or (2 if few else settings.starts)
        steps = chosen.steps or min(settings.rollout_steps, 100 if few else run.spec.horizon)
        self.steps = min(steps, run.spec.horizon)
        self.n_random = chosen.skills or RANDOM_SKILLS
        self.sweeps = skill_sweeps(self.space, self.n_random)
        self.pooled = pooled_sweep(self.space)
        self.training_sweep = training_sweep(self.space)
        self.progress_metrics = {
            "health/retrieval": "retrieval",
            "held_out_auc": "fresh AUC",
            f"akd_range_{self.training_sweep}": "AKD range",
            f"akd_max_{self.training_sweep}": "max",
        }
        self.rng = action_rng(self.seed)  # of random actions: never started again
        self.seen: tuple[Policy, Behaviour] | None = None
        self.xy: Entries | None = None  # of the observation, in place of positions
        self.axes = "x", "y"  # of positions

    # --- roll-outs --------------------------------------------------------------------------------

    def make_env(self, skills: int, starts: int) -> tuple[Env, Watch | None]:
        """The environments of the first skill, then those of the next; what else to record.

        Those of a run on images show their states, too, step by step.
        """
        env = self.run.spec.make(skills * starts, self.seed)
        self.choose_entries(env)
        return env, None

    def choose_entries(self, env: Env) -> None:
        if self.options.entries:
            self.xy = find_entries(self.options.entries, env)
        self.axes = position_axes(env, self.xy)

    def roll_out(
        self,
        policy: Policy | None,
        skills: Tensor,
        starts: int | None = None,
        steps: int | None = None,
    ) -> Rollouts:
        """Of skills (n, Z). States are in units of the environment's scales, if it has any."""
        starts = starts or self.starts
        env, watch = self.make_env(len(skills), starts)
        policy_fn = policy_fn_of(env, policy, skills.repeat_interleave(starts, 0), self.rng)
        if policy is not None:
            policy_fn = act_on_states(env, self.run.config.pixels, policy_fn)
        rollouts = roll_out(
            env,
            policy_fn,
            len(skills),
            min(steps or self.steps, env.horizon),
            xy=self.xy,
            watch=watch,
            stopped=self.stopped,
            tick=self.tick,
        )
        scale = np.ravel(env.obs_spec.std)
        return rollouts if (scale == 1).all() else replace(rollouts, obs=rollouts.obs / scale)

    @cached_property
    def flag_skills(self) -> Tensor | None:
        return flag_grid(self.space, self.n_random)

    @cached_property
    def identified_skills(self) -> Tensor:
        return identified_skills(self.space, self.seed)

    @property
    def planned_steps(self) -> int:
        random, n_identified = self.sweeps[self.pooled], len(self.identified_skills)
        flags = 0 if self.flag_skills is None else self.flag_skills[..., 0].numel()
        skills = sum(map(len, self.sweeps.values())) + flags + 2 * len(random)
        identifying = 3 * n_identified * min(IDENTIFIED_STEPS, self.steps)
        return self.starts * (skills * self.steps + identifying)

    def observe(self, policy: Policy) -> Behaviour:
        """What the last policy did is kept, for metrics and pictures."""
        if self.seen is None or self.seen[0] is not policy:
            sweeps = {name: self.roll_out(policy, z) for name, z in self.sweeps.items()}
            flags = None
            if self.flag_skills is not None:  # one by one: all at once would need much memory
                flags = np.stack([activity(self.roll_out(policy, z)) for z in self.flag_skills])
            active = {name: activity(rollouts) for name, rollouts in sweeps.items()}
            self.seen = policy, Behaviour(sweeps, active, flags)
        return self.seen[1]

    # --- metrics ----------------------------------------------------------------------------------

    def training_metrics(self, trainer: Trainer) -> Values:
        starts, values = min(self.starts, TRAINING_STARTS), Values()
        for name in training_sweeps(self.space):
            rollouts = self.roll_out(trainer.policy, self.sweeps[name], starts)
            values |= sweep_metrics(name, activity(rollouts), mean_states(rollouts))
            if name == self.pooled:
                values["state_coverage"] = state_coverage(rollouts)
        return values | self.held_out(trainer.policy, trainer.method, trainer.agent).values

    def measure(self, policy: Policy) -> Measured:
        learned = None
        if self.run.saved.has("method"):
            learned = self.run.load_method(), self.run.load_agent()  # before the run drops it
        seen = self.observe(policy)
        measured = Measured({}, {})
        if seen.flags is not None:
            measured |= flag_metrics(seen.flags)
        measured |= self.identify(policy)
        measured |= Measured(self.coverage(seen.sweeps[self.pooled]), {})
        for name, rollouts in seen.sweeps.items():
            values = sweep_metrics(name, seen.akd[name], mean_states(rollouts))
            measured |= Measured(values, {})
        if learned is not None:
            measured |= self.held_out(policy, *learned)
        return measured

    def baseline(self, policy: Policy | None) -> Values:
        """Of the random skills alone, or of all: no skill is behind random actions."""
        rollouts = self.roll_out(policy, self.sweeps[self.pooled])
        values = sweep_metrics(self.pooled, activity(rollouts), mean_states(rollouts))
        return self.identify(policy).values | self.coverage(rollouts) | values

    def identify(self, policy: Policy | None) -> Measured:
        steps = min(IDENTIFIED_STEPS, self.steps)
        return identification(self.roll_out(policy, self.identified_skills, steps=steps))

    def coverage(self, rollouts: Rollouts) -> Values:
        values = {"state_coverage": state_coverage(rollouts)}
        if rollouts.positions is not None:
            values["xy_coverage"] = float(xy_coverage(rollouts, SQUARE))
        return values

    def held_out(self, policy: Policy, method: Method, agent: Any = None) -> Measured:
        env, train = self.run.make_env(held_out.EPISODES, self.seed), self.run.config.train
        # On-policy training has neither: one skill per episode, transitions of one step.
        hold, n_step = getattr(train, "hold", env.horizon), getattr(train, "n_step", 1)
        return held_out.held_out(
            env,
            self.space,
            policy,
            method,
            hold=hold,
            n_step=n_step,
            seed=self.seed,
            agent=agent,
            stopped=self.stopped,
        )

    # --- pictures ---------------------------------------------------------------------------------

    def look(self, sweep: str) -> tuple[list[str], list[Colour]]:
        """The name and the colour of every skill of a sweep, the same in all pictures."""
        skills = self.sweeps[sweep]
        return labels(self.space, sweep, skills), sweep_colours(self.space, sweep, skills)

    def draw(self, axes: Axes, policy: Policy) -> None:
        self.draw_trajectories(axes, policy, self.training_sweep)

    def draw_trajectories(self, axes: Axes, policy: Policy, sweep: str) -> None:
        """With a legend beside them."""
        draw_trajectories(axes, self.observe(policy).sweeps[sweep], *self.look(sweep), self.axes)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))

    def figure(self) -> Figure:
        """The skills of one sweep, twice in the same colours; activity along the flag if any."""
        from matplotlib.figure import Figure  # slow to import

        policy, sweep = self.run.policy, self.training_sweep
        seen = self.observe(policy)
        along = seen.flags is not None
        figure = Figure(figsize=(12 + 5 * along, 4.5), layout="constrained")
        panels = figure.subplots(1, 2 + along)
        swept = sweep_title(self.space, sweep, self.sweeps[sweep])
        figure.suptitle(f"{self.title}, {self.starts} starts per skill", fontsize=11)
        draw_bars(panels[0], *self.look(sweep), seen.akd[sweep])
        self.draw_trajectories(panels[1], policy, sweep)
        panels[0].set_title(f"{swept}: activity, SD over starts", fontsize=10)
        panels[1].set_title(f"{swept}: trajectories", fontsize=10)
        if seen.flags is not None:
            draw_activity(panels[2], seen.flags)
        return figure


def motion(env: RobotEnv) -> dict[str, NDArray[Any]]:
    """How a robot made with `motion=True` moves now."""
    robot, x = env.robot, env.readings
    speeds = {"speed": robot.speed(x), "spin": robot.spin(x)}
    return {"qpos": x["qpos"], "height": robot.height(x), **speeds}


class RobotEvaluator(SkillEvaluator):
    """Our robots: all skills have the same starts, and their motion can be recorded."""

    motion = False  # record poses, heights, speeds and spins

    def make_env(self, skills: int, starts: int) -> tuple[Env, Watch | None]:
        env = make_robot(self.run.spec.name, [*range(starts)] * skills, motion=self.motion)
        self.choose_entries(env)
        return env, partial(motion, env) if self.motion else None
