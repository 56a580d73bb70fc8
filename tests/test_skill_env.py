"""Tasks controlled through skills: the reward, the hold, episodes that end at different times."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from comsd.envs.skills import SkillEnv
from comsd.skills import Box, OneHot, SkillSpace
from comsd.types import PolicyFn
from counter import Counter
from fake_env import NextStepEnv


def first_coordinate(skill: Tensor, _: np.random.Generator | None) -> PolicyFn:
    return lambda _: skill[:, :1].numpy()


def controlled(space: SkillSpace, hold: int = 1, decode: bool = True, **counter: float) -> SkillEnv:
    env = SkillEnv(Counter(**counter), first_coordinate, space, hold, 0.5, decode)  # pyright: ignore
    env.reset()
    return env


def test_the_action_of_a_controller_is_the_skill() -> None:
    env = controlled(Box(2))
    assert env.action_dim == 2
    step = env.step(np.array([[1.0, -1.0]], np.float32))  # -> (1, 0)
    assert step.obs.item() == 1
    assert env.step(np.array([[0.0, 0.0]], np.float32)).obs.item() == 1.5  # -> (.5, .5)
    plain = controlled(Box(2), decode=False)
    assert plain.step(np.array([[-1.0, 0.0]], np.float32)).obs.item() == -1
    hot = controlled(OneHot(2))
    assert hot.step(np.array([[0.2, 0.1]], np.float32)).obs.item() == 1
    assert hot.step(np.array([[0.1, 0.2]], np.float32)).obs.item() == 1


def test_a_held_choice_earns_the_discounted_sum_and_ends_with_the_episode() -> None:
    env = controlled(Box(1), hold=2)
    assert (env.horizon, env.repeat) == (3, 2)
    ones = np.ones((1, 1), np.float32)
    first = env.step(ones)  # rewards 1 and 2
    assert (first.reward.item(), first.ended.item()) == (1 + 0.5 * 2, False)
    state = env.state_dict()
    second = env.step(ones)  # 3 and 4
    assert second.reward.item() == 3 + 0.5 * 4
    last = env.step(ones)  # 5, and the episode is over
    assert (last.reward.item(), last.terminated.item(), last.truncated.item()) == (5, False, True)
    env.load_state_dict(state)
    assert env.step(ones).reward.item() == 3 + 0.5 * 4


def test_a_choice_is_cut_short_for_all_when_one_episode_ends() -> None:
    """The first adds 1, the second 0.5 per step; 2 is the goal."""
    env = controlled(Box(1), hold=3, num_envs=2, goal=2)
    step = env.step(np.array([[1.0], [0.0]], np.float32))  # two steps instead of three
    assert step.obs[:, 0].tolist() == [2, 1]
    assert step.reward.tolist() == [1 + 0.5 * 2, 0.5 + 0.5 * 1]
    assert step.terminated.tolist() == [True, False]
    assert not step.truncated.any()
    assert env.reset(step.ended)[:, 0].tolist() == [0, 1]
    step = env.step(-np.ones((2, 1), np.float32))  # the action 0, for three steps
    assert step.obs[:, 0].tolist() == [0, 1]
    assert step.truncated.tolist() == [False, True]  # after 3 and 5 steps


def test_a_choice_that_began_with_an_episode_is_no_transition_as_a_whole() -> None:
    inner = NextStepEnv(2, ends=lambda env, _: 2 if env == 0 else None)
    env = SkillEnv(inner, lambda skill, _: lambda _: skill.numpy(), Box(2), hold=2)
    env.reset()
    zeros = np.zeros((2, 2), np.float32)
    assert env.step(zeros).terminated.tolist() == [True, False]
    env.reset(np.array([True, False]))
    step = env.step(zeros)  # of the first: a step that begins an episode, and one of its steps
    assert step.began is not None
    assert (step.began.tolist(), inner.clock.tolist()) == ([True, False], [1, 4])


def test_skills_are_tensors_of_the_space() -> None:
    given: list[Tensor] = []

    def policy_fn_of(skill: Tensor, rng: np.random.Generator | None) -> PolicyFn:
        given.append(skill)
        return first_coordinate(skill, rng)

    env = SkillEnv(Counter(2), policy_fn_of, OneHot(3))
    env.reset()
    env.step(np.array([[0.1, 0.9, 0.2], [0.3, 0.2, 0.1]], np.float32))
    assert torch.equal(given[0], torch.eye(3)[[1, 0]])
