"""Evaluation of a robot's skills, without rewards: how active each is and whether they differ.

One roll-out per skill with mean actions, all from the same initial state. Metrics of its states:

AKD(skill)      mean distance of each state of a roll-out to its k nearest others: near 0 for a
                robot that lies still, about 10 for one that moves all the time
MS-coverage     mean distance of the mean states (MS) of skills to their nearest others
identification  share of roll-outs that the nearest centroid assigns to their skill
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comsd.agents.base import OffPolicyAgent, Policy, make_policy_fn
from comsd.envs.pixels import act_on_states
from comsd.envs.specs import make_robot
from comsd.errors import InputError
from comsd.evaluation.base import Evaluator, Values, policy_fn_of
from comsd.methods.base import Method
from comsd.methods.entropy import knn_distances
from comsd.methods.statistics import chance, retrieval
from comsd.runs import Run
from comsd.skills import Box, OneHot, SkillSpace
from comsd.training.rollout import Transition, rollout
from comsd.training.trainer import Trainer
from comsd.types import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

States = NDArray[np.float32]  # (skills, time, O)

SWEEP_SIZE = 11  # skills of each sweep, as in the paper, or all of a space with fewer
SWEEPS = {
    "constant": "box: c (1, ..., 1), c = 0 to 1, the paper's; sphere: a circle; one-hot: first 11",
    "flag": "box: the first coordinate swept, the others 0.5",
    "random": "random skills, the same for every run",
}
NEIGHBOURS = 16  # k of the AKD
MEAN_NEIGHBOURS = (3, 1, 5, 10)  # k' of the MS-coverage; 3 is the one that is quoted
IDENTIFIED = 32  # skills to identify, or all of a space with fewer
IDENTIFIED_STEPS = 200  # of the roll-outs by which they are identified
HELD_OUT_EPISODES = 10

SWEEP_MEANINGS = {
    f"akd_{statistic}_{name}": f"AKD, {statistic} over the sweep: {skills}"
    for name, skills in SWEEPS.items()
    for statistic in ("max", "range", "variance")
} | {
    f"ms_coverage{k}_{name}": f"distance of mean states to their {k} nearest, {name} sweep"
    for name in SWEEPS
    for k in MEAN_NEIGHBOURS
}


def skill_sweeps(space: SkillSpace) -> dict[str, Tensor]:
    """Skills (n, Z) by the name of their sweep."""
    result = {"constant": space.grid(SWEEP_SIZE)}
    if isinstance(space, Box):
        result["flag"] = space.flags(SWEEP_SIZE)
    n = min(SWEEP_SIZE, space.dim) if isinstance(space, OneHot) else SWEEP_SIZE
    return result | {"random": space.sample_balanced(n, np.random.default_rng(0))}


def akd(states: States, k: int = NEIGHBOURS) -> NDArray[np.float64]:
    """(skills,): mean distance to the k nearest of the same skill's states, self excluded."""
    rows = [torch.from_numpy(s).double() for s in states]
    return np.array([knn_distances(s, s, k + 1)[:, 1:].mean().item() for s in rows])


def ms_coverage(states: States, k: int = MEAN_NEIGHBOURS[0]) -> float:
    """Mean distance between each mean state and its k nearest others."""
    means = torch.from_numpy(states.mean(1, dtype=np.float64))
    return knn_distances(means, means, k + 1)[:, 1:].mean().item()


def sweep_metrics(name: str, states: States) -> Values:
    activity = akd(states)
    return {
        f"akd_max_{name}": float(activity.max()),
        f"akd_range_{name}": float(np.ptp(activity)),
        f"akd_variance_{name}": float(activity.var()),
    } | {
        f"ms_coverage{k}_{name}": ms_coverage(states, k) for k in MEAN_NEIGHBOURS if k < len(states)
    }


def identification(features: NDArray[np.float64]) -> float:
    """Leave-one-out accuracy of the nearest centroid; features (skills, rollouts, F)."""
    skills, rollouts, _ = features.shape
    scaled = (features - features.mean((0, 1))) / (features.std((0, 1)) + 1e-8)
    centroids, own = scaled.mean(1), np.arange(skills)
    distances = np.linalg.norm(scaled[:, :, None] - centroids, axis=-1)
    without_itself = (rollouts * centroids[:, None] - scaled) / (rollouts - 1)
    distances[own, :, own] = np.linalg.norm(scaled - without_itself, axis=-1)
    return float((distances.argmin(-1) == own[:, None]).mean())


class RobotEvaluator(Evaluator):
    meanings = SWEEP_MEANINGS | {
        "identification": f"accuracy of telling up to {IDENTIFIED} skills apart by their states",
        "held_out_retrieval": "share of skills the representation finds in fresh roll-outs",
        "held_out_chance": "the same by guessing",
    }

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.rollouts = max(2, self.rollouts)
        self.sweeps = skill_sweeps(self.space)
        self.training_sweep = "flag" if "flag" in self.sweeps else "constant"
        self.progress_metrics = {
            "health/retrieval": "retrieval",
            "held_out_retrieval": "held out",
            f"akd_range_{self.training_sweep}": "AKD range",
            f"akd_max_{self.training_sweep}": "max",
        }
        self.rng = np.random.default_rng(self.seed)  # of random actions
        self.swept: dict[Policy, dict[str, States]] = {}

    def states(
        self, policy: Policy | None, skills: Tensor, seed: int, length: int | None = None
    ) -> States:
        """The states after each step, from the initial state of a seed; (skills, length, O)."""
        if self.run.spec.families[0] != "robots":
            env = self.run.make_env(len(skills), seed)
            policy_fn = policy_fn_of(env, policy, skills, self.rng)
            steps = rollout(env, policy_fn, length, stopped=self.stopped)
            return np.stack([step.next_obs for step in steps], 1)
        env = make_robot(self.run.spec.name, [seed] * len(skills))
        policy_fn = policy_fn_of(env, policy, skills, self.rng)
        if policy is not None:
            policy_fn = act_on_states(env, self.run.config.pixels, policy_fn)
        steps = rollout(env, policy_fn, length, stopped=self.stopped)
        return np.stack([step.next_obs for step in steps], 1)

    def sweep_states(self, policy: Policy | None) -> dict[str, States]:
        """The states of every sweep; those of a policy are kept, for `evaluate` and `draw`."""
        if policy is not None and policy in self.swept:
            return self.swept[policy]
        states = {n: self.states(policy, z, seed=0) for n, z in self.sweeps.items()}
        if policy is not None:
            self.swept[policy] = states
        return states

    def training_metrics(self, trainer: Trainer) -> Values:
        name, policy = self.training_sweep, trainer.policy
        states = self.states(policy, self.sweeps[name], seed=0)
        return sweep_metrics(name, states) | self.held_out(policy, trainer.method, trainer.agent)

    def held_out(self, policy: Policy, method: Method, agent: Any = None) -> Values:
        """Does the representation generalise to skills and transitions it was not trained on?

        One fresh episode per environment, with new skills and the exploration noise of training. Of
        the time that a skill is held, one n-step transition is scored. Empty for methods without
        skill scores.
        """
        env, train = self.run.make_env(HELD_OUT_EPISODES, self.seed), self.run.config.train
        # On-policy training has neither: one skill per episode, transitions of one step.
        hold = min(getattr(train, "hold", env.horizon), env.horizon)
        n_step: int = getattr(train, "n_step", 1)
        rng = np.random.default_rng(self.seed)
        skill = self.space.sample(env.num_envs, rng)
        obs, reward = torch.from_numpy(env.reset()), torch.zeros(env.num_envs)
        action = torch.zeros(env.num_envs, env.action_dim)
        blank = Batch(obs, action, obs, obs, skill, reward, reward)
        if skill_scores(method, blank, policy.device, agent) is None:  # known without the roll-outs
            return {}
        policy_fn = make_policy_fn(policy, skill, rng)
        segment: list[Transition] = []
        batches: list[Batch] = []
        length = env.horizon // hold * hold
        steps = rollout(env, lambda obs: policy_fn(obs), length, stopped=self.stopped)
        for step in steps:
            segment.append(step)
            if len(segment) == hold:
                batches.append(sample_transition(segment, skill, n_step, rng))
                segment.clear()
                skill = self.space.sample(env.num_envs, rng)
                policy_fn = make_policy_fn(policy, skill, rng)
        if not batches:  # all episodes terminated early
            return {}
        batch = Batch(*(torch.cat(column) for column in zip(*batches, strict=True)))
        scores = skill_scores(method, batch, policy.device, agent)
        assert scores is not None
        return {
            "held_out_retrieval": retrieval(scores.cpu(), batch.skill).item(),
            "held_out_chance": chance(batch.skill).item(),
        }

    def evaluate(self, policy: Policy | None, **options: bool) -> Values:
        if options.get("random_start"):
            raise InputError("random_start is for mazes; robots sample their initial states")
        if options.get("greedy"):
            raise InputError("greedy is for mazes; robots are always evaluated by mean actions")
        self.rng = np.random.default_rng(self.seed)
        metrics: Values = {}
        for name, states in self.sweep_states(policy).items():
            metrics |= sweep_metrics(name, states)
        return metrics | {"identification": self.identify(policy)}

    def identify(self, policy: Policy | None) -> float:
        """Every skill from one initial state, then all of them from the next."""
        if self.space.kind == "one-hot":
            skills = self.space.grid(IDENTIFIED)
        else:
            skills = self.space.sample(IDENTIFIED, np.random.default_rng(self.seed))
        features = []
        for i in range(self.rollouts):
            states = self.states(policy, skills, self.seed + i, IDENTIFIED_STEPS)
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


def sample_transition(
    segment: list[Transition], skill: Tensor, n_step: int, rng: np.random.Generator
) -> Batch:
    """An n-step transition from a random time, of the environments in their first episode."""
    start = int(rng.integers(max(1, len(segment) - n_step + 1)))
    first, last = segment[start], segment[min(start + n_step, len(segment)) - 1]
    arrays = first.obs, first.action, last.next_obs, first.next_obs
    zeros, rows = torch.zeros(len(skill)), torch.from_numpy(last.alive)
    columns = *map(torch.from_numpy, arrays), skill, zeros, zeros
    return Batch(*(column[rows] for column in columns))


@torch.no_grad()
def skill_scores(
    method: Method, batch: Batch, device: torch.device, agent: Any = None
) -> Tensor | None:
    """agent: whose encoder the method sees observations through, if there is one."""
    training = method.training
    batch = Batch(*(column.to(device) for column in batch))
    if isinstance(agent, OffPolicyAgent):
        batch = agent.encode(batch, method.reads).for_method
    method.eval()
    scores = method.skill_scores(batch)
    method.train(training)
    return scores
