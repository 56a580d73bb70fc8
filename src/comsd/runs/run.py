"""A run: a directory that explains itself.

config.json        every setting, its source, the versions and the commit it ran with
metrics.csv        a line every `log_every` steps
tensorboard/       the same for TensorBoard, if asked for
evaluations.csv    a line every `evaluate_every` steps
checkpoints/       the two newest states, exact to the bit
source/            policy and config of the run that is adapted, if this is an adaptation
analysis/          what `comsd analyse` finds
lock               held by the process that writes here
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import warnings
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from comsd import checkpoint
from comsd.agents.base import Policy
from comsd.config import Config
from comsd.envs.base import Env
from comsd.errors import InputError, RunError, UnknownMethodError
from comsd.methods.base import Method
from comsd.registry import EnvSpec, env_spec
from comsd.resolve import from_json
from comsd.runs import factory
from comsd.runs.provenance import provenance
from comsd.skills import SkillSpace
from comsd.training.logger import Table
from comsd.training.trainer import Trainer, TrainingState

LOCK_ATTEMPTS = 5
M = TypeVar("M", bound=nn.Module)


def is_unused(path: Path) -> bool:
    """An empty directory, or one whose creation was cut short."""
    begun = {"config.json.tmp", "lock", "source"}
    return path.is_dir() and {p.name for p in path.iterdir()} <= begun


def already_exists(path: Path, wanted: dict[str, dict[str, Any]]) -> InputError:
    """What to say of a directory that is not new."""
    anew = "another --run starts a new one"
    try:
        known = json.loads((path / "config.json").read_text())["config"]
        differs = {g: [k for k in own if known[g].get(k) != own[k]] for g, own in wanted.items()}
        other = [f"{group}.{name}" for group, names in differs.items() for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return InputError(f"run {path} exists and is no run directory; {anew}")
    names = f"{', '.join(other[:3])}{', ...' if other[3:] else ''}"
    differs = f"it is a run with other settings ({names}); {anew}"
    same = f"`comsd resume {path}` continues it, {anew}"
    return InputError(f"run {path} exists and is never overwritten: {differs if other else same}")


def try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take_lock(path: Path) -> IO[str]:
    """One writer per directory; the lock ends with the file that is returned, or its process."""
    file = (path / "lock").open("a+")
    for _ in range(LOCK_ATTEMPTS):
        if try_lock(file):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            return file
        time.sleep(0.05)  # `in_use` takes it for a moment
    file.seek(0)
    raise InputError(f"run {path} is in use by process {file.read().strip() or '?'}")


class Run:
    """Opens a run directory; build what it describes with `trainer()` or `policy`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        file = self.path / "config.json"
        if not file.is_file():
            raise InputError(f"run {self.path} is not a run directory: it has no config.json")
        try:
            record = json.loads(file.read_text())
            self.config: Config = from_json(record["config"], record["sources"])
        except UnknownMethodError as error:
            raise InputError(f"run {self.path}: {error}") from None
        except InputError as error:
            raise RunError(f"{file}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RunError(f"{file} is damaged") from None
        self.spec: EnvSpec = env_spec(self.config.run.env)
        self.space: SkillSpace = factory.make_space(self.config)
        self.checkpoints = self.path / "checkpoints"
        self.metrics = Table(self.path / "metrics.csv")
        self.evaluations = Table(self.path / "evaluations.csv")
        self.used_step = 0  # of the checkpoint that was read last
        self._policy: Policy | None = None

    @classmethod
    def create(cls, path: Path | str, config: Config, source: Run | None = None) -> Run:
        """A new directory; the policy of `source`, the run that is adapted, is copied into it."""
        path = Path(path)
        settings = config.to_json()
        record = {"config": settings, "sources": config.sources, "versions": provenance()}
        try:
            if path.exists() and not is_unused(path):
                raise already_exists(path, settings)
            path.mkdir(parents=True, exist_ok=True)
            with take_lock(path):
                if not is_unused(path):  # another process was faster
                    raise already_exists(path, settings)
                if source is not None:
                    source.copy_policy(path / "source")
                checkpoint.write_json(path / "config.json", record)
        except OSError as error:
            raise InputError(f"run {path} cannot be created: {error.strerror}") from None
        return cls(path)

    def copy_policy(self, place: Path) -> None:
        """Enough of this run to use its skills elsewhere."""
        shutil.rmtree(place, ignore_errors=True)  # what a creation that was cut short left there
        place.mkdir()
        try:
            checkpoint.copy(self.checkpoints, place / "checkpoints", ["agent", "method"])
        except RunError as error:
            again = f"`comsd resume {self.path}` goes back to the checkpoint before it"
            raise RunError(f"{error}; {again}") from None
        config = (self.path / "config.json").read_bytes()
        checkpoint.replace_file(place / "config.json", config)

    # --- what the config describes -----------------------------------------------------------

    @property
    def pretrains(self) -> bool:
        return self.config.run.stage == "pretrain"

    @cached_property
    def source(self) -> Run | None:
        """The run that is adapted, as it was when this one was created."""
        adapts = self.config.run.stage in ("finetune", "combine")
        return Run(self.path / "source") if adapts else None

    def seeds(self) -> list[np.random.SeedSequence]:
        return factory.seeds(self.config)

    def make_env(self, num_envs: int, seed: int) -> Env:
        return factory.make_env(self.config, self.source, num_envs, seed)

    def make_training_env(self) -> Env:
        return factory.make_training_env(self.config, self.source)

    def trainer(self, env: Env | None = None) -> Trainer:
        """A fresh trainer, as at step 0."""
        return factory.make_trainer(self.config, self.source, env or self.make_training_env())

    @property
    def policy(self) -> Policy:
        """The trained policy alone, on the CPU."""
        return self.load_policy()

    @property
    def selected_skill(self) -> Tensor:
        """The skill that was adapted, (Z,)."""
        skill = None if self.pretrains else self._read("rule")["skill"]
        if skill is None:
            raise InputError(f"run {self.path} has not settled on a skill")
        return skill

    # The next three take the sizes of observations and actions from an environment of the same
    # body, if there is one already.

    def load_policy(self, env: Env | None = None) -> Policy:
        policy = self._policy = self._policy or self.load_agent(env).policy
        return policy

    def load_agent(self, env: Env | None = None) -> Any:
        """The trained agent, on the CPU."""
        env, cpu = env or self.make_env(1, 0), torch.device("cpu")
        return self._load(factory.make_agent(self.config, self.source, env, cpu), "agent")

    def load_method(self, env: Env | None = None) -> Method:
        """The trained representation alone, on the CPU."""
        env, cpu = env or self.make_env(1, 0), torch.device("cpu")
        return self._load(factory.make_method(self.config, env.obs_spec, cpu), "method").eval()

    def _read(self, branch: str) -> dict[str, Any]:
        """One branch of the newest whole checkpoint."""
        places = sorted(checkpoint.found(self.checkpoints))
        state, problems = checkpoint.latest(self.checkpoints, [branch])
        for problem in problems:
            warnings.warn(f"{problem}; using the checkpoint before it", stacklevel=4)
        self.used_step = int(places[-1 - len(problems)].name)
        return state[branch]

    def _load(self, module: M, branch: str) -> M:
        state = self._read(branch)
        try:
            module.load_state_dict(state)
        except RuntimeError:
            raise InputError(f"the checkpoints of {self.path} do not fit config.json") from None
        return module

    # --- how far it is ------------------------------------------------------------------------

    @property
    def reached(self) -> int:
        """The step of the newest checkpoint."""
        return max((int(place.name) for place in checkpoint.found(self.checkpoints)), default=0)

    @property
    def finished(self) -> bool:
        """Trained to the end, and the last evaluation made."""
        if self.reached < self.config.run.steps:
            return False
        state = checkpoint.plain_state(self.checkpoints / f"{self.reached:012d}", "run")
        return state is not None and not state.get("evaluation_due")

    def extend(self, steps: int) -> None:
        """Let it train to another number of steps."""
        if steps < self.reached:
            raise InputError(f"steps is {steps}; run {self.path} is at {self.reached} already")
        with take_lock(self.path):
            if self.reached:  # what cannot go on would stay unfinished for good
                state, _ = checkpoint.latest(self.checkpoints)
                self.metrics.check(state["run"]["metrics"])
                self.evaluations.check(state["run"]["evaluations"])
            self.config = self.config.derive("run.steps", steps, "you")
            self._record(config=self.config.to_json(), sources=self.config.sources)

    # --- writing ------------------------------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """Is a process writing here?"""
        if not (self.path / "lock").exists():
            return False
        with (self.path / "lock").open("r+") as file:
            return not try_lock(file)

    def save(self, trainer: Trainer, state: TrainingState) -> Path:
        branches = trainer.state_dict()
        branches["run"] = {
            "metrics": self.metrics.size,
            "evaluations": self.evaluations.size,
            "seconds": state.seconds,
            "evaluation_due": state.evaluation_due,
            "versions": provenance(),
        }
        self.metrics.flush()
        self.evaluations.flush()
        checkpoint.flush(self.path)
        self._policy = None
        try:
            return checkpoint.save(self.checkpoints, trainer.steps, branches)
        except RunError as error:
            raise RunError(f"stopped at step {trainer.steps}: {error}") from None

    def restore(self, trainer: Trainer) -> tuple[TrainingState, list[str]]:
        """Put the trainer and the tables where they were at the newest whole checkpoint.

        Returns what else it remembers and what the user should know.
        """
        checkpoint.recover(self.checkpoints)
        if not checkpoint.found(self.checkpoints):
            notes = ["no checkpoint yet: starting from step 0"] if self.metrics.size else []
            self._record(versions=provenance())  # which may have changed since it was created
            self.metrics.truncate(0)
            self.evaluations.truncate(0)
            return TrainingState(), notes
        state, problems = checkpoint.latest(self.checkpoints, set_aside=True)
        notes = [f"{problem}; continuing from the checkpoint before it" for problem in problems]
        try:
            trainer.load_state_dict(state)
        except (RuntimeError, KeyError, ValueError, TypeError):
            raise InputError(f"the checkpoints of {self.path} do not fit config.json") from None
        before, now = state["run"].get("versions", {}), provenance()
        if changed := [name for name in now if before.get(name) != now[name]]:
            notes.append(f"other versions than before ({', '.join(changed)}): not exact to the bit")
        self.metrics.truncate(state["run"]["metrics"])
        self.evaluations.truncate(state["run"]["evaluations"])
        due = state["run"].get("evaluation_due", False)
        return TrainingState(state["run"]["seconds"], due), notes

    def _record(self, **changes: Any) -> None:
        """Change what config.json says."""
        file = self.path / "config.json"
        record = json.loads(file.read_text())
        if record | changes != record:
            checkpoint.write_json(file, record | changes)
