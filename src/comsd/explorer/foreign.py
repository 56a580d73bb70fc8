"""MuJoCo environments of others for the page.

One needs `model` and `data` of MuJoCo, `frame_skip`, the model's source (`fullpath`, as Gymnasium's
have it, or `comsd_model`: a path, MJCF as text or an MjSpec), a recipe of its observations
(`envs/recipe.py`), and a step that writes the action to `data.ctrl` and calls `mj_step`. All of it
is tried against the environment itself before a page is written.
"""

from __future__ import annotations

import os
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.config import shown
from comsd.envs.base import Env
from comsd.envs.gym import GymEnv
from comsd.envs.gym_state import find_plane
from comsd.envs.recipe import Recipe, declared_recipe, observe
from comsd.envs.simulation import Doubles
from comsd.errors import InputError
from comsd.evaluation.base import Options
from comsd.evaluation.metrics import activity, forward_speed, travel
from comsd.evaluation.rollouts import Floats, Rollouts, Watch
from comsd.evaluation.skills import SkillEvaluator
from comsd.explorer.arrays import Arrays
from comsd.explorer.measures import Measure
from comsd.explorer.models import STATE, PageModel, stacked, state_of
from comsd.runs import Run
from comsd.types import Array

# What follows the substeps: Gymnasium's environments compute contact forces, some of others bring
# positions up to date, most do nothing.
ORDERS = ("mj_rnePostConstraint", "mj_forward", "")
TRIED_STEPS = 20
CLOSE = 1e-6  # relative, of float32 observations
CHECKED_STEPS = (0, 1, 5, 20, 60, 100)
WANTED = "a list of comsd.Part such as Part('qpos', slice(1, None)); docs/explorer.md shows one"


class PlainSimulation:
    """What the page does, in Python."""

    def __init__(self, model: mujoco.MjModel, substeps: int, recipe: Recipe, order: str) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        self.substeps, self.recipe = substeps, recipe
        self.order, self.after = order, getattr(mujoco, order) if order else None

    def restore(self, state: dict[str, Doubles]) -> None:
        mujoco.mj_resetData(self.model, self.data)
        for name in STATE:
            getattr(self.data, name)[:] = state[name]
        mujoco.mj_forward(self.model, self.data)
        self.data.qacc_warmstart[:] = state["qacc_warmstart"]

    def step(self, control: Array) -> None:
        self.data.ctrl[:] = control
        mujoco.mj_step(self.model, self.data, self.substeps)
        if self.after:
            self.after(self.model, self.data)


class MotionEvaluator(SkillEvaluator):
    """All skills have the same starts; poses, heights and spins are recorded."""

    body, spin_axis = 1, 2

    def make_env(self, skills: int, starts: int) -> tuple[Env, Watch | None]:
        env = self.run.make_env(skills * starts, self.seed)
        assert isinstance(env, GymEnv)
        env.seeds = [*self.seeds(starts)] * skills
        env.begun[:] = False
        data = [data_of(one) for one in env.envs]

        def watch() -> dict[str, Any]:
            return {
                "qpos": np.array([d.qpos for d in data]),
                "height": np.array([d.xpos[self.body, 2] for d in data]),
                "spin": np.array([d.cvel[self.body, self.spin_axis] for d in data]),
            }

        return env, watch

    def seeds(self, starts: int) -> range:
        return range(self.seed, self.seed + starts)


class ForeignWorld:
    axes: tuple[str, str] = ("akd", "speed")
    ends = (
        "A recorded roll-out begins again where its episode ended. The page does not know when an "
        "episode of this environment would end, so what is live goes on."
    )

    def __init__(self, run: Run, env: GymEnv, options: Options) -> None:
        self.name, self.env = run.spec.name, env
        self.one: Any = env.envs[0].unwrapped if env.envs else None  # a vector has none
        model, self.recipe, self.substeps = declaration(self.one, self.name)
        self.dt: float = self.substeps * model.opt.timestep
        try:
            self.page_model = PageModel(model_source(self.one, self.name), model)
        except (ValueError, OSError, mujoco.FatalError) as error:
            raise InputError(f"the model of {self.name} cannot be read: {error}") from None
        if not self.page_model.same_kind:
            raise InputError(f"the model of {self.name} is not the one that its source describes")
        if env.action_dim != model.nu:
            raise InputError(
                f"{self.name} has {env.action_dim} actions and {model.nu} actuators; explore needs "
                "one for each"
            )
        self.simulation = self.matching_simulation()
        plane = find_plane(self.one)
        self.planar = plane is not None and plane[1] == [0, 2]
        self.evaluator = MotionEvaluator(run, options)
        self.root = int(model.jnt_bodyid[0]) if model.njnt else model.nbody - 1
        self.evaluator.body, self.evaluator.spin_axis = self.root, 1 if self.planar else 2

    def matching_simulation(self) -> PlainSimulation:
        """The order of calls that repeats what the environment does."""
        differences = []
        for order in ORDERS:
            simulation = PlainSimulation(self.page_model.model, self.substeps, self.recipe, order)
            difference = self.difference(simulation)
            if difference is None:
                return simulation
            differences.append(difference)
        raise InputError(f"explore cannot repeat what {self.name} does: {differences[0]}")

    def difference(self, simulation: PlainSimulation) -> str | None:
        """From the environment, in random steps; None if there is none."""
        env, rng = self.env, np.random.default_rng(0)
        env.begun[:] = False
        obs, restart = env.reset()[0], True
        for _ in range(TRIED_STEPS):
            state = state_of(self.one.data)
            simulation.restore(state)
            if restart and (said := unlike(observe(self.recipe, simulation.data), obs)):
                return f"the first observation is not what comsd_recipe says, {said}"
            action = rng.uniform(-1, 1, (1, env.action_dim)).astype(np.float32)
            simulation.step(next(iter(env.native(action))))
            step = env.step(action)
            obs, restart = step.obs[0], bool(step.ended[0])
            after = state_of(self.one.data)
            if said := unlike(simulation.data.qpos, after["qpos"]):
                return (
                    "its step is not data.ctrl[:] = action and frame_skip times mj_step, "
                    f"qpos differs {said}"
                )
            if said := unlike(observe(self.recipe, simulation.data), obs):
                return f"the observation is not what comsd_recipe says, {said}"
            if restart:
                obs = env.reset()[0]
        return None

    def measures(self, rollouts: Rollouts) -> dict[Measure, Floats]:
        values = {Measure("akd", "AKD, how active", ""): activity(rollouts)}
        if rollouts.positions is not None:
            values[Measure("speed", "speed along x", "m/s")] = forward_speed(rollouts, self.dt)
            values[Measure("travel", "from start to end", "m")] = travel(rollouts)
        for name, label, unit in (
            ("height", "height of the root", "m"),
            ("spin", "spin", "rad/s"),
        ):
            values[Measure(name, label, unit)] = rollouts.mean(rollouts.watched[name])
        steps = rollouts.length * self.dt
        return values | {Measure("duration", "time to the end", "s"): steps}

    def frames(self, rollouts: Rollouts) -> Floats:
        poses = rollouts.watched["qpos"][:, 0]
        start = np.broadcast_to(self.start(self.evaluator.seeds(1)[0])["qpos"], poses[:, :1].shape)
        return np.concatenate([start, poses], 1)

    def start(self, seed: int) -> dict[str, Doubles]:
        self.env.envs[0].reset(seed=seed)
        return state_of(self.one.data)

    def spec(self, arrays: Arrays) -> dict[str, Any]:
        states = [self.start(seed) for seed in self.evaluator.seeds(self.evaluator.starts)]
        return {
            "kind": "robot",
            "order": self.simulation.order,
            "model": self.page_model.to_json(arrays),
            "substeps": self.substeps,
            "recipe": [part.to_json(self.one.data) for part in self.recipe],
            "low": arrays.add(self.env.low),
            "scale": arrays.add(self.env.scale),
            "root": self.root,
            "planar": self.planar,
            "starts": {name: arrays.add(np.stack([s[name] for s in states])) for name in STATE},
        }

    def checks(self, policy: Policy, skills: Tensor, arrays: Arrays) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        env, one = self.env, self.one
        for i, at in enumerate(CHECKED_STEPS):
            skill = skills[i * (len(skills) - 1) // len(CHECKED_STEPS)][None]
            policy_fn = make_policy_fn(policy, skill, None)
            env.seeds, env.begun[:] = [i], False
            obs = env.reset()
            for _ in range(at):
                step = env.step(policy_fn(obs))
                obs = env.reset() if step.ended[0] else step.obs
            before, action = state_of(one.data), policy_fn(obs)
            row = {"obs": obs[0], "skill": skill[0].numpy(), "action": action[0]}
            after_obs = env.step(action).obs[0]
            row |= {f"before.{name}": x for name, x in before.items()}
            row |= {f"after.{name}": getattr(one.data, name).copy() for name in ("qpos", "qvel")}
            rows.append(row | {"after_obs": after_obs})
        return stacked(rows, arrays)


def data_of(env: Any) -> mujoco.MjData:
    return env.unwrapped.data


def declaration(env: Any, name: str) -> tuple[mujoco.MjModel, Recipe, int]:
    """Model, recipe and substeps of an unwrapped environment."""
    model, data = getattr(env, "model", None), getattr(env, "data", None)
    if not isinstance(model, mujoco.MjModel) or not isinstance(data, mujoco.MjData):
        raise InputError(
            "explore shows robots, mazes and MuJoCo environments that have a comsd_recipe; "
            f"{name} has no model and data of MuJoCo"
        )
    recipe = declared_recipe(env)
    if recipe is None:
        raise InputError(
            "explore needs to know which fields of mjData an observation is made of; "
            f"{name} has no comsd_recipe, {WANTED}"
        )
    substeps = getattr(env, "frame_skip", None)
    if not isinstance(substeps, int) or substeps < 1:
        raise InputError(
            f"frame_skip of {name} is {shown(substeps)}; it must be a whole number, the physics "
            "steps of a step"
        )
    return model, recipe, substeps


def model_source(env: Any, name: str) -> mujoco.MjSpec:
    source = getattr(env, "comsd_model", None) or getattr(env, "fullpath", None)
    if isinstance(source, mujoco.MjSpec):
        return source
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return mujoco.MjSpec.from_string(source)
    if isinstance(source, str | os.PathLike):
        return mujoco.MjSpec.from_file(os.fspath(source))
    raise InputError(
        f"{name} does not say where its model comes from; comsd_model must be a path, MJCF as "
        "text or an MjSpec"
    )


def unlike(ours: Any, theirs: Any) -> str | None:
    if len(ours) != len(theirs):
        return f"which has {len(ours)} numbers instead of {len(theirs)}"
    far = np.flatnonzero(~(np.abs(ours - theirs) <= CLOSE * (1 + np.abs(theirs))))
    if not len(far):
        return None
    return f"number {far[0]} is {ours[far[0]]:.6g} instead of {theirs[far[0]]:.6g}"
