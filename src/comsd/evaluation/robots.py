"""Evaluation of a robot's skills, without rewards: how active each is and whether they differ.

One roll-out per skill with mean actions, all from the same initial state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.specs import make_robot
from comsd.errors import InputError
from comsd.evaluation.base import EvaluatedRun, evaluation_seed
from comsd.evaluation.held_out import HELD_OUT_MEANINGS, held_out_retrieval
from comsd.evaluation.metrics import SWEEP_MEANINGS, States, akd, identification, sweep_metrics
from comsd.evaluation.sweeps import skill_sweeps
from comsd.methods.base import Method
from comsd.training.rollout import StopFn, Stopped, never, random_policy_fn, rollout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IDENTIFIED = 32  # skills to identify, or all of a space with fewer
IDENTIFIED_STEPS = 200  # of the roll-outs by which they are identified
HELD_OUT_EPISODES = 10


class RobotEvaluator:
    meanings: ClassVar[dict[str, str]] = {
        **SWEEP_MEANINGS,
        "identification": f"accuracy of telling up to {IDENTIFIED} skills apart by their states",
        **HELD_OUT_MEANINGS,
    }
    at_start: ClassVar[bool] = False

    def __init__(self, run: EvaluatedRun) -> None:
        self.robot, self.space, self.make_env = run.spec.name, run.space, run.make_env
        self.rollouts = max(2, run.config.run.rollouts)
        train = run.config.train
        # On-policy training has neither: one skill per episode, transitions of one step.
        self.hold: int | None = getattr(train, "hold", None)
        self.n_step: int = getattr(train, "n_step", 1)
        self.sweeps = skill_sweeps(self.space)
        self.training_sweep = "flag" if "flag" in self.sweeps else "constant"
        self.progress_metrics = {
            "health/retrieval": "retrieval",
            "held_out_retrieval": "held out",
            f"akd_range_{self.training_sweep}": "AKD range",
            f"akd_max_{self.training_sweep}": "max",
        }
        self.seed = evaluation_seed(run)
        self.bounds: dict[str, float] = {}
        self.swept: dict[Policy, dict[str, States]] = {}

    # --- roll-outs ----------------------------------------------------------------------------

    def states(
        self,
        policy: Policy | None,
        skills: Tensor,
        seed: int,
        length: int | None = None,
        *,
        rng: np.random.Generator | None = None,
        stopped: StopFn = never,
    ) -> States:
        """The states after each step, from the initial state of a seed; (skills, length, O).

        Without a policy, actions are sampled from `rng`.
        """
        env = make_robot(self.robot, [seed] * len(skills))
        if policy is not None:
            policy_fn = make_policy_fn(policy, skills, None)
        else:
            assert rng is not None
            policy_fn = random_policy_fn(env.action_dim, env.num_envs, rng)
        steps = rollout(env, policy_fn, length, stopped=stopped)
        return np.stack([step.next_obs for step in steps], 1)

    def sweep_states(
        self, policy: Policy | None, rng: np.random.Generator | None = None
    ) -> dict[str, States]:
        """The states of every sweep; those of a policy are kept, for `evaluate` and `draw`."""
        if policy is not None and policy in self.swept:
            return self.swept[policy]
        states = {n: self.states(policy, z, seed=0, rng=rng) for n, z in self.sweeps.items()}
        if policy is not None:
            self.swept[policy] = states
        return states

    # --- evaluation ---------------------------------------------------------------------------

    def evaluate_during_training(
        self, policy: Policy, method: Method, selected_skill: Tensor | None, stopped: StopFn
    ) -> dict[str, float] | None:
        name = self.training_sweep
        try:
            states = self.states(policy, self.sweeps[name], seed=0, stopped=stopped)
            return sweep_metrics(name, states) | self.held_out(policy, method, stopped)
        except Stopped:
            return None

    def held_out(self, policy: Policy, method: Method, stopped: StopFn = never) -> dict[str, float]:
        env = self.make_env(HELD_OUT_EPISODES, self.seed)
        return held_out_retrieval(
            env,
            policy,
            method,
            self.space,
            hold=min(self.hold or env.horizon, env.horizon),
            n_step=self.n_step,
            seed=self.seed,
            stopped=stopped,
        )

    def evaluate(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        if options.get("random_start"):
            raise InputError("random_start is for mazes; robots sample their initial states")
        if options.get("greedy"):
            raise InputError("greedy is for mazes; robots are always evaluated by mean actions")
        rng = np.random.default_rng(self.seed)
        metrics: dict[str, float] = {}
        for name, states in self.sweep_states(policy, rng).items():
            metrics |= sweep_metrics(name, states)
        return metrics | {"identification": self.identify(policy, rng)}

    def identify(self, policy: Policy | None, rng: np.random.Generator) -> float:
        """Every skill from one initial state, then all of them from the next."""
        if self.space.kind == "one-hot":
            skills = self.space.grid(IDENTIFIED)
        else:
            skills = self.space.sample(IDENTIFIED, np.random.default_rng(self.seed))
        features = []
        for i in range(self.rollouts):
            states = self.states(policy, skills, self.seed + i, IDENTIFIED_STEPS, rng=rng)
            features.append(np.concatenate([states.mean(1), states.std(1)], -1))
        return identification(np.stack(features, 1).astype(np.float64))

    def draw(self, axes: Axes, policy: Policy) -> None:
        """AKD along each sweep."""
        for name, states in self.sweep_states(policy).items():
            values = akd(states)
            if name == "random":
                values = np.sort(values)[::-1]
            position = np.linspace(0, 1, len(values))
            axes.plot(position, values, "o-", label=f"{name} sweep", linewidth=1.5, markersize=4)
        axes.set_xlabel("c, flag, or rank of the random skills")
        axes.set_ylabel("AKD: how active the skill is")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
