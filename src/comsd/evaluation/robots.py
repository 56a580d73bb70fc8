"""What a robot's skills do, without rewards: how active each is and whether they differ.

AKD(skill)   mean distance of each of the 1000 states of a roll-out to its k nearest others: near 0
             for a robot that lies still, about 10 for one that moves all the time
MS(skill)    the mean state; MS-coverage is the mean distance of the MS to their nearest others

One roll-out per skill with mean actions, all from the same start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comsd.envs import robot
from comsd.envs.base import Array
from comsd.envs.mujoco import HORIZON, MOTION, RobotEnv
from comsd.envs.simulation import Doubles
from comsd.errors import InputError
from comsd.evaluation.base import Stopped, acting, never
from comsd.learners.base import Learner, Policy
from comsd.methods.base import Method
from comsd.skills import Box, OneHot, SkillSpace
from comsd.methods.entropy import knn_distances
from comsd.methods.statistics import chance, retrieval
from comsd.agents.base import make_policy_fn
from comsd.types import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from comsd.run import Run

States = NDArray[np.float32]  # (skills, time, O)

SWEPT = 11  # skills of a sweep, as in the paper
NEIGHBOURS = 16  # k of the AKD
MEAN_NEIGHBOURS = (3, 1, 5, 10)  # k' of the MS-coverage; 3 is the one that is quoted
IDENTIFIED = 32  # skills to tell apart, or all of a space with fewer
GLANCE = 200  # steps of the roll-outs by which they are told apart
HELD_OUT = 10  # fresh episodes on which the representation is tested

SWEEPS = {
    "constant": "box: c (1, ..., 1), c = 0 to 1, the paper's; sphere: a circle; one-hot: first 11",
    "flag": "box: the first coordinate swept, the others 0.5",
    "random": "random skills, the same for every run",
}


def sweeps(space: SkillSpace) -> dict[str, Tensor]:
    """Eleven skills each, or all of a space with fewer; what the names mean is in `SWEEPS`."""
    result = {"constant": space.grid(SWEPT)}
    if isinstance(space, Box):
        result["flag"] = space.flags(SWEPT)
    finite = isinstance(space, OneHot)  # each of its skills once at most
    n = min(SWEPT, space.dim) if finite else SWEPT
    result["random"] = space.sample_balanced(n, np.random.default_rng(0))
    return result


def akd(states: States, k: int = NEIGHBOURS) -> NDArray[np.float64]:
    """(skills,): mean distance to the k nearest of the same skill's states, self excluded."""
    rows = [torch.from_numpy(s).double() for s in states]
    return np.array([knn_distances(s, s, k + 1)[:, 1:].mean().item() for s in rows])


def ms_coverage(states: States, k: int = MEAN_NEIGHBOURS[0]) -> float:
    """Mean distance between each mean state and its k nearest others."""
    means = torch.from_numpy(states.mean(1, dtype=np.float64))
    return knn_distances(means, means, k + 1)[:, 1:].mean().item()


def identification(features: NDArray[np.float64]) -> float:
    """Leave-one-out accuracy of the nearest centroid; features (skills, rollouts, F)."""
    skills, rollouts, _ = features.shape
    scaled = (features - features.mean((0, 1))) / (features.std((0, 1)) + 1e-8)
    centroids = scaled.mean(1)  # (skills, F)
    hits = 0
    for i in range(skills):
        for row in scaled[i]:
            others = centroids.copy()
            others[i] = (rollouts * centroids[i] - row) / (rollouts - 1)
            hits += int(np.linalg.norm(others - row, axis=1).argmin()) == i
    return hits / (skills * rollouts)


@dataclass(frozen=True)
class Motion:
    """What a robot does under each of some skills, step by step."""

    states: States  # (skills, time, O)
    qpos: Doubles  # (skills, time, .)
    height: Doubles  # (skills, time), as the next two
    speed: Doubles
    spin: Doubles


class RobotEvaluator:
    meanings: ClassVar[dict[str, str]] = {
        **{
            f"akd_{figure}_{name}": f"AKD, {figure} over the sweep: {what}"
            for name, what in SWEEPS.items()
            for figure in ("max", "range", "variance")
        },
        **{
            f"ms_coverage{k}_{name}": f"distance of mean states to their {k} nearest, {name} sweep"
            for name in SWEEPS
            for k in MEAN_NEIGHBOURS
        },
        "identification": f"accuracy of telling up to {IDENTIFIED} skills apart by their states",
        "held_out_retrieval": "share of skills the representation finds in fresh roll-outs",
        "held_out_chance": "the same by guessing",
    }
    at_start: ClassVar[bool] = False

    def __init__(self, run: Run) -> None:
        self.robot, self.space = robot(run.spec.name), run.space
        self.rollouts = max(2, run.config.run.rollouts)
        agent = run.config.agent
        self.hold, self.n = min(agent.hold, HORIZON), agent.n_step
        # the flag's, where there is one
        self.followed, self.followed_skills = list(sweeps(self.space).items())[-2]
        self.headline = {
            "health/retrieval": "retrieval",
            "held_out_retrieval": "held out",
            f"akd_range_{self.followed}": "AKD range",
            f"akd_max_{self.followed}": "max",
        }
        self.stopped = never
        self.seed = int(run.seeds()[3].generate_state(1)[0])  # apart from all training
        self.bounds: dict[str, float] = {}
        self.seen: dict[Policy | None, dict[str, States]] = {}

    def roll_out(
        self,
        policy: Policy | None,
        skills: Tensor,
        seeds: list[int],
        length: int = HORIZON,
    ) -> States:
        """The states after each step, (skills, length, O); without a policy, random actions."""
        env = RobotEnv(self.robot, None, seeds)
        return np.stack(list(self.steps(env, policy, skills, length)), 1)

    def watch(self, policy: Policy, skills: Tensor) -> Motion:
        """The roll-outs of a sweep with all that is needed to draw and to describe them."""
        env = RobotEnv(self.robot, None, [0] * len(skills), also=MOTION)
        robot, x = self.robot, env.readings
        rows = []
        for obs in self.steps(env, policy, skills, HORIZON):
            seen = obs, x["qpos"], robot.height(x), robot.speed(x), robot.spin(x)
            rows.append([np.array(part) for part in seen])  # the simulator writes over its own
        return Motion(*(np.stack(column, 1) for column in zip(*rows, strict=True)))

    def steps(
        self, env: RobotEnv, policy: Policy | None, skills: Tensor, length: int
    ) -> Iterator[Array]:
        """The observations after each step."""
        play = make_policy_fn(policy, skills, None) if policy else None
        rng = np.random.default_rng(self.seed)
        obs = env.reset()
        with acting():
            for _ in range(length):
                if self.stopped():
                    raise Stopped
                if play is not None:
                    action = play(obs)
                else:
                    action = rng.uniform(-1, 1, (len(skills), env.action_dim)).astype(np.float32)
                obs = env.step(action).obs
                yield obs

    def swept(self, policy: Policy | None) -> dict[str, States]:
        """The states of every sweep, rolled out once for a policy that does not learn."""
        if policy not in self.seen:
            self.seen[policy] = {
                name: self.roll_out(policy, skills, [0] * len(skills))
                for name, skills in sweeps(self.space).items()
            }
        return self.seen[policy]

    @staticmethod
    def figures(name: str, states: States) -> dict[str, float]:
        """The metrics of one sweep."""
        activity, others = akd(states), len(states) - 1
        return {
            f"akd_max_{name}": float(activity.max()),
            f"akd_range_{name}": float(np.ptp(activity)),
            f"akd_variance_{name}": float(activity.var()),
            **{
                f"ms_coverage{k}_{name}": ms_coverage(states, k)
                for k in MEAN_NEIGHBOURS
                if k <= others
            },
        }

    def follow(self, learner: Learner, stopped: Callable[[], bool]) -> dict[str, float] | None:
        policy, skills = learner.policy, self.followed_skills
        self.stopped = stopped
        try:
            states = self.roll_out(policy, skills, [0] * len(skills))
            return self.figures(self.followed, states) | self.held_out(policy, learner.method)
        except Stopped:
            return None
        finally:
            self.stopped = never

    def held_out(self, policy: Policy, method: Method) -> dict[str, float]:
        """Does the representation know skills and transitions it was not trained on?

        Fresh episodes with new skills and the noise of training; one transition per segment.
        """
        env = RobotEnv(self.robot, None, [self.seed + i for i in range(HELD_OUT)])
        obs, rows = env.reset(), []
        start, skills = torch.from_numpy(obs), self.space.sample(HELD_OUT, np.random.default_rng(0))
        if self.scores(method, start, start, start, skills) is None:
            return {}  # as it would be after ten episodes
        rng = np.random.default_rng(self.seed)
        for _ in range(HORIZON // self.hold):
            skills = self.space.sample(HELD_OUT, rng)
            play = make_policy_fn(policy, skills, rng)
            seen = [obs]
            with acting():
                for _ in range(self.hold):
                    if self.stopped():
                        raise Stopped
                    obs = env.step(play(obs)).obs
                    seen.append(obs)
            at = int(rng.integers(max(1, self.hold - self.n + 1)))
            later = min(at + self.n, self.hold)
            rows.append((seen[at], seen[later], seen[min(at + 1, later)], skills.numpy()))
        columns = [torch.from_numpy(np.concatenate(part)) for part in zip(*rows, strict=True)]
        scores, skill = self.scores(method, *columns), columns[-1]
        assert scores is not None
        return {
            "held_out_retrieval": retrieval(scores.cpu(), skill).item(),
            "held_out_chance": chance(skill).item(),
        }

    @torch.no_grad()
    def scores(
        self, method: Method, obs: Tensor, after: Tensor, near: Tensor, skill: Tensor
    ) -> Tensor | None:
        """`Method.scores` of transitions whose actions and rewards are unknown."""
        actions, nothing = torch.zeros(len(obs), self.robot.model.nu), torch.zeros(len(obs))
        batch = Batch(obs, actions, after, near, skill, nothing, nothing)
        device = next(method.buffers()).device
        method.eval()
        scores = method.skill_scores(Batch(*(column.to(device) for column in batch)))
        method.train()
        return scores

    def measure(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        if options.get("random_start"):
            raise InputError("random_start is for mazes; robots always start anew")
        if options.get("greedy"):
            raise InputError("greedy is for mazes; robots are always measured by mean actions")
        metrics: dict[str, float] = {}
        for name, states in self.swept(policy).items():
            metrics |= self.figures(name, states)
        return metrics | {"identification": self.identify(policy)}

    def identify(self, policy: Policy | None) -> float:
        if self.space.kind == "one-hot":
            skills = self.space.grid(IDENTIFIED)
        else:
            skills = self.space.sample(IDENTIFIED, np.random.default_rng(self.seed))
        features = []
        for i in range(self.rollouts):  # every skill from the same start, then from another
            states = self.roll_out(policy, skills, [self.seed + i] * len(skills), GLANCE)
            features.append(np.concatenate([states.mean(1), states.std(1)], -1))
        return identification(np.stack(features, 1).astype(np.float64))

    def draw(self, axes: Axes, policy: Policy) -> None:
        """AKD along each sweep."""
        for name, states in self.swept(policy).items():
            values = akd(states)
            if name == "random":
                values = np.sort(values)[::-1]
            position = np.linspace(0, 1, len(values))
            axes.plot(position, values, "o-", label=f"{name} sweep", linewidth=1.5, markersize=4)
        axes.set_xlabel("c, flag, or rank of the random skills")
        axes.set_ylabel("AKD: how active the skill is")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
