"""A method held to the contract: its clauses, and a short training that is saved and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from comsd import checkpoint
from comsd.config import Config, RunSettings, choose, shown
from comsd.errors import InputError, RunError
from comsd.methods.base import Method, MethodConfig
from comsd.methods.contract import CLAUSES, breach, problem
from comsd.methods.synthetic import cases
from comsd.registry import ENVS, METHODS
from comsd.resolve import resolve
from comsd.runs import factory
from comsd.training.off_policy import OffPolicySettings
from comsd.training.trainer import Trainer, prepare
from comsd.user_files import check_definition

ENVIRONMENTS = ("maze-tree", "hopper")  # with PPO, and with DDPG
LEG = 100  # environment steps before the save, and after it
RANDOM_STEPS = 20


@dataclass(frozen=True)
class Verdict:
    """Whether a method keeps a clause of the contract."""

    clause: str
    cases: int  # skill spaces and values with which it was tried
    problems: list[str]  # what is wrong, for each case in which it is broken

    @property
    def kept(self) -> bool:
        return not self.problems


def check_method(method: str | type[Method], /) -> list[Verdict]:
    """Hold a method to the contract of docs/add-a-method.md, by name or by its class.

    Raises RunError at the first clause that it breaks.
    """
    found: list[Verdict] = []
    for verdict in verdicts(method):
        if not verdict.kept:
            name = method if isinstance(method, str) else method.name
            raise RunError(f"{name} breaks the clause `{verdict.clause}`: {verdict.problems[0]}")
        found.append(verdict)
    return found


def verdicts(method: str | type[Method]) -> Iterator[Verdict]:
    """Of one clause after the other."""
    kind = checked_class(method)
    tried = cases(kind)
    prepare(RunSettings())
    for says, clause in CLAUSES.items():
        with torch.random.fork_rng(devices=()):
            problems = [breach(case, clause) for case in tried]
        yield Verdict(says, len(tried), [wrong for wrong in problems if wrong is not None])
    for env in ENVIRONMENTS:
        with torch.random.fork_rng(devices=()), registered(kind):
            wrong = problem(partial(resumed_training_is_exact, kind, env))
        yield Verdict(training_clause(env), 1, [] if wrong is None else [wrong])


def checked_class(method: object) -> type[Method]:
    if isinstance(method, str):
        return choose("method", method, METHODS)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise InputError(
            f"method is {shown(method)}; it must be a name or a subclass of comsd.Method"
        )
    check_definition(method)
    return method


@contextmanager
def registered(kind: type[Method]) -> Iterator[None]:
    """Runs find their method by name."""
    before = dict(METHODS)
    METHODS[kind.name] = kind
    try:
        yield
    finally:
        METHODS.clear()
        METHODS.update(before)


# --- a training -----------------------------------------------------------------------------------


def training_clause(env: str) -> str:
    return f"training on {env}, saved and resumed, goes on as if it had not been"


def resumed_training_is_exact(kind: type[Method], env: str) -> None:
    config = short_run(kind, env)

    def make_trainer() -> Trainer:
        return factory.make_trainer(config, None, factory.make_training_env(config, None))

    with TemporaryDirectory(prefix="comsd-check-") as place:
        folder, trainer = Path(place), make_trainer()
        factory.check_possible(config, None, trainer.env, folder)
        train_on(trainer)
        trainer.diagnostics()  # as the log does
        saved = checkpoint.save(folder, trainer.steps, trainer.state_dict())
        train_on(trainer)
        resumed = make_trainer()
        resumed.load_state_dict(checkpoint.read(saved))
        train_on(resumed)
        if (other := first_difference(trainer, resumed)) is not None:
            raise RunError(
                f"expected the same numbers from the resumed training, found others in {other}: is "
                "there state outside parameters and buffers, or randomness outside torch?"
            )


def short_run(kind: type[Method], env: str) -> Config:
    """In the usual skill space, if the method accepts it; with batches that it can reward."""
    spaces, usual = [space.kind for space in kind.spaces], ENVS[env].values["run.space"].value
    space = usual if usual in spaces else spaces[0]
    config = resolve(kind.name, env, "smoke", space=space)
    assert isinstance(config.method, MethodConfig)
    if not isinstance(config.train, OffPolicySettings):
        for name, choice in config.method.on_policy.items():
            config = config.derive(f"method.{name}", choice, "PPO")
        return config
    rows = max([config.train.batch_size, *config.method.rows_needed().values()])
    config = config.derive("train.batch_size", rows, "the method")
    return config.derive("train.random_steps", RANDOM_STEPS, "a short run")


def train_on(trainer: Trainer) -> None:
    end = trainer.steps + LEG
    while trainer.steps < end:
        trainer.train_step()


def first_difference(one: Trainer, other: Trainer) -> str | None:
    """The name of what differs in the states of two trainers."""
    (tree, tensors), (other_tree, others) = packed(one), packed(other)
    for name, tensor in tensors.items():
        if name not in others or not torch.equal(tensor, others[name]):
            return name.lstrip("/")
    return None if tree == other_tree else "counters or random generators"


def packed(trainer: Trainer) -> tuple[Any, dict[str, Tensor]]:
    """What follows from none of the rest, as a replay does: numbers, and tensors by name."""
    state, tensors = trainer.state_dict(), dict[str, Tensor]()
    parts = {branch: state[branch] for branch in ("method", "agent", "training")}
    return checkpoint.pack(parts, "", tensors), tensors
