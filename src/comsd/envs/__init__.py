"""Environments: mazes, robots, tasks of robots."""

from comsd.envs.base import Env, Step
from comsd.envs.specs import ENVS, TASKS, EnvSpec, env_spec, make_task

__all__ = ["ENVS", "TASKS", "Env", "EnvSpec", "Step", "env_spec", "make_task"]
