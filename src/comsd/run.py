"""A run: a directory that explains itself, and the objects it describes.

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

import csv
import fcntl
import json
import os
import platform
import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from comsd import checkpoint
import comsd.agents
comsd.agents.load()
from comsd.adaptation import FinetuneSettings, make_env, make_rule
from comsd.agents import AGENTS, AgentConfig
from comsd.config import Config, from_json
from comsd.envs import Env, EnvSpec, env_spec
from comsd.errors import InputError, RunError, UnknownMethodError
from comsd.learners.base import Learner, Policy
from comsd.methods import METHODS, Method, MethodConfig
from comsd.methods.files import LOADED
from comsd.methods.task import TaskReward
from comsd.skills import SPACES, SkillSpace
from comsd.types import ObsSpec

TIME_COLUMNS = ("seconds",)
LOCK_ATTEMPTS = 5


@cache
def commit() -> str:
    """The git commit of the code that runs, if it is a checkout."""
    here = Path(__file__)

    def git(*words: str) -> str:
        answer = subprocess.run(
            ["git", *words], cwd=here.parent, capture_output=True, text=True, check=True
        )
        return answer.stdout.strip()

    try:
        # Fails where this file is not tracked: then it is the repository of somebody's project.
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def provenance() -> dict[str, str]:
    packages = ("comsd", "torch", "numpy", "scipy", "mujoco", "dm_control")
    return {
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        **{path.name: checksum for path, checksum in LOADED.items()},
        "commit": commit(),
    }


def check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device is {device!r}, but torch finds none here") from None


def check_possible(config: Config, source: Run | None = None) -> None:
    """Say now what would fail later: memory, a compiler, an extra that is not installed."""
    spec, space = env_spec(config.run.env), SPACES[config.run.space](config.run.skills)
    if config.run.tensorboard and find_spec("tensorboard") is None:
        raise InputError(
            "tensorboard is True but needs the extra: pip install 'comsd[tensorboard]'"
        )


def is_unused(path: Path) -> bool:
    """An empty directory, or one whose creation was cut short."""
    return path.is_dir() and all(
        p.name in ("config.json.tmp", "lock", "source") for p in path.iterdir()
    )


def taken(path: Path, wanted: dict[str, dict[str, Any]]) -> InputError:
    """What to say of a directory that is there already."""
    anew = "another --run starts a new one"
    try:
        there = json.loads((path / "config.json").read_text())["config"]
        differs = {g: [k for k in own if there[g].get(k) != own[k]] for g, own in wanted.items()}
        other = [f"{group}.{name}" for group, names in differs.items() for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return InputError(f"run {path} exists and is no run directory; {anew}")
    if other:
        what = f"with other settings ({', '.join(other[:3])}{', ...' if other[3:] else ''})"
        return InputError(f"run {path} exists and is never overwritten: it is a run {what}; {anew}")
    return InputError(
        f"run {path} exists and is never overwritten: `comsd resume {path}` continues it, {anew}"
    )


def take_lock(path: Path) -> IO[str]:
    """One writer per directory; the lock goes with the file that is returned, or its process."""
    file = (path / "lock").open("a+")
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if attempt + 1 < LOCK_ATTEMPTS:  # someone may only be looking
                time.sleep(0.05)
                continue
            file.seek(0)
            raise InputError(
                f"run {path} is in use by process {file.read().strip() or '?'}"
            ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


class Table:
    """A CSV file that grows line by line and can be cut back to where a checkpoint saw it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: list[str] | None = None
        if path.exists() and path.stat().st_size:
            with path.open(newline="") as file:
                self.columns = next(csv.reader(file))

    def append(self, row: dict[str, Any]) -> None:
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if self.columns is None:
                self.columns = list(row)
                writer.writerow(self.columns)
            if lost := [name for name in row if name not in self.columns]:
                warnings.warn(f"{self.path} has no column {lost[0]}", stacklevel=2)
            writer.writerow([row.get(name, "") for name in self.columns])

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def check(self, size: int) -> None:
        if self.size < size:
            raise RunError(f"{self.path} is damaged: shorter than the checkpoint saw it")

    def cut(self, size: int) -> None:
        self.check(size)
        if self.size > size:
            os.truncate(self.path, size)
        if size == 0:
            self.columns = None

    def flush(self) -> None:
        if self.path.exists():
            checkpoint.flush(self.path)

    def rows(self) -> list[dict[str, str]]:
        if not self.size:
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))


class Run:
    """Opens a run directory; build what it describes with `learner()` or `policy`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        file = self.path / "config.json"
        if not file.is_file():
            raise InputError(f"run {self.path} is not a run directory: it has no config.json")
        try:
            record = json.loads(file.read_text())
            self.config: Config = from_json(record["config"])
            self.sources: dict[str, str] = record["sources"]
        except UnknownMethodError as error:
            raise InputError(f"run {self.path}: {error}") from None
        except InputError as error:
            raise RunError(f"{file}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RunError(f"{file} is damaged") from None
        self.spec: EnvSpec = env_spec(self.config.run.env)
        self.space: SkillSpace = SPACES[self.config.run.space](self.config.run.skills)
        self.metrics = Table(self.path / "metrics.csv")
        self.evaluations = Table(self.path / "evaluations.csv")
        self._lock: IO[str] | None = None
        self._policy: Policy | None = None
        self.used_step = 0  # of the checkpoint that was read last
        self._board: Any = None
        self.evaluation_due = False  # put off because a signal came
        self.saved_at: int | None = None  # step of the newest checkpoint, as far as known

    @classmethod
    def create(
        cls,
        path: Path | str,
        config: Config,
        sources: dict[str, str],
        source: Run | None = None,
    ) -> Run:
        """A new directory; the policy of `source`, the run that is adapted, is copied into it."""
        path = Path(path)
        check_device(config.run.device)
        check_possible(config, source)
        record = {"config": config.to_json(), "sources": sources, "versions": provenance()}
        try:
            if path.exists() and not is_unused(path):
                raise taken(path, record["config"])
            path.mkdir(parents=True, exist_ok=True)
            with take_lock(path):
                if not is_unused(path):  # another process was faster
                    raise taken(path, record["config"])
                if source is not None:
                    source.copy_policy(path / "source")
                checkpoint.write_json(path / "config.json", record)
        except OSError as error:
            raise InputError(f"run {path} cannot be created: {error.strerror}") from None
        return cls(path)

    def copy_policy(self, place: Path) -> None:
        """Enough of this run to use its skills elsewhere."""
        folder = self.path / "checkpoints"
        shutil.rmtree(place, ignore_errors=True)  # what a creation that was cut short left there
        place.mkdir()
        try:
            checkpoint.copy(folder, place / "checkpoints", ["agent", "method"])
        except RunError as error:
            again = f"`comsd resume {self.path}` goes back to the checkpoint before it"
            raise RunError(f"{error}; {again}") from None
        record = json.loads((self.path / "config.json").read_text())
        checkpoint.write_json(place / "config.json", record)

    # --- what the config describes -----------------------------------------------------------

    @cached_property
    def source(self) -> Run:
        """The run that is adapted, as it was when this one was created."""
        return Run(self.path / "source")

    def check_possible(self) -> None:
        check_possible(self.config, self._source_or_none)

    @property
    def _source_or_none(self) -> Run | None:
        return self.source if self.config.run.stage in ("finetune", "combine") else None

    def make_env(self, num_envs: int, seed: int, discount: float | None = None) -> Env:
        return make_env(self.config, self._source_or_none, num_envs, seed, discount)

    def seeds(self) -> list[np.random.SeedSequence]:
        """Independent streams: weights, environment, learner, evaluation, choice of the skill."""
        return np.random.SeedSequence(self.config.run.seed).spawn(5)

    def make_agent(self, env: Env, device: torch.device) -> Any:
        make, info = AGENTS[self.spec.agent].make, self.obs_info(env, device)
        return make(self.config.agent, self.space, info, env.action_dim, self.critic_form)

    @property
    def critic_form(self) -> str:
        """Fine-tuning goes on with the form of the run it starts from."""
        if self.config.run.stage == "finetune":
            return self.source.critic_form
        return METHODS[self.config.run.method].critic if self.pretrains else "plain"

    def make_method(self, env: Env, device: torch.device) -> Method:
        config = self.config.method
        assert isinstance(config, MethodConfig)
        kind = METHODS[self.config.run.method] if self.pretrains else TaskReward
        return kind(config, self.space, self.obs_info(env, device))

    @property
    def pretrains(self) -> bool:
        return self.config.run.stage == "pretrain"

    @staticmethod
    def obs_info(env: Env, device: torch.device) -> ObsSpec:
        return ObsSpec((env.obs_dim,), 'float32', env.obs_mean, env.obs_std)

    def learner(self) -> Learner:
        """A fresh learner, as at step 0."""
        weights, env_seed, learner_seed, *_ = self.seeds()
        settings = self.config.agent
        assert isinstance(settings, AgentConfig)
        env = self.make_env(settings.envs, int(env_seed.generate_state(1)[0]))
        torch.manual_seed(int(weights.generate_state(1)[0]))
        with (device := torch.device(self.config.run.device)):
            agent, method = self.make_agent(env, device), self.make_method(env, device)
        from comsd.learners.base import Adapter
        from comsd.training.off_policy import OffPolicyTrainer
        from comsd.training.on_policy import OnPolicyTrainer

        if self.spec.agent == 'ppo':
            return OnPolicyTrainer(Adapter(env), agent, method, settings, learner_seed, self.config.run.precision)

        def make(env, agent, method, seed, rule=None):
            return OffPolicyTrainer(Adapter(env), agent, method, settings, seed, rule, self.config.run.precision)

        if self.pretrains:
            return make(env, agent, method, learner_seed)
        if isinstance(self.config.adapt, FinetuneSettings):
            agent.init_from(self.source.policy, self.config.adapt.critic_init)
        return make(env, agent, method, learner_seed, make_rule(self))

    @property
    def policy(self) -> Policy:
        """The trained policy alone, on the CPU: `run.policy.act(obs, skill)`."""
        if self._policy is None:
            self._policy = self.load_policy()
        return self._policy

    @property
    def skill(self) -> Tensor:
        """The skill that was adapted, (Z,)."""
        skill = None if self.pretrains else self._read("rule")["skill"]
        if skill is None:
            raise InputError(f"run {self.path} has not settled on a skill")
        return skill

    def load_policy(self) -> Policy:
        agent = self.make_agent(self.make_env(1, 0), torch.device("cpu"))
        self._fill(agent, "agent")
        return agent.policy

    def load_method(self) -> Method:
        """The trained representation alone, on the CPU."""
        method = self.make_method(self.make_env(1, 0), torch.device("cpu"))
        self._fill(method, "method")
        return method.eval()

    def _read(self, branch: str) -> dict[str, Any]:
        """One branch of the newest whole checkpoint."""
        folder = self.path / "checkpoints"
        places = sorted(checkpoint.found(folder))
        state, problems = checkpoint.latest(folder, [branch])
        for problem in problems:
            warnings.warn(f"{problem}; using the checkpoint before it", stacklevel=4)
        self.used_step = int(places[-1 - len(problems)].name)
        return state[branch]

    def _fill(self, module: nn.Module, branch: str) -> None:
        state = self._read(branch)
        try:
            module.load_state_dict(state)
        except RuntimeError:
            raise InputError(f"the checkpoints of {self.path} do not fit config.json") from None

    # --- TensorBoard, if asked for ------------------------------------------------------------

    def open_board(self, step: int) -> None:
        if self.config.run.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            place = str(self.path / "tensorboard")
            self._board = SummaryWriter(place, purge_step=step + 1)  # what came later is redone

    def show_on_board(self, step: int, values: dict[str, float]) -> None:
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    @property
    def reached(self) -> int:
        """The step of the newest checkpoint."""
        places = checkpoint.found(self.path / "checkpoints")
        return max((int(place.name) for place in places), default=0)

    def begin_with(self, versions: dict[str, str]) -> None:
        """Note what the first step is made with, if that has changed since the run was created."""
        file = self.path / "config.json"
        record = json.loads(file.read_text())
        if record.get("versions") != versions:
            checkpoint.write_json(file, record | {"versions": versions})

    def extend(self, steps: int) -> None:
        """Let it train to another number of steps."""
        if steps < self.reached:
            raise InputError(f"steps is {steps}; run {self.path} is at {self.reached} already")
        file = self.path / "config.json"
        with self.locked():
            if self.reached:  # what cannot go on would stay unfinished for good
                state, _ = checkpoint.latest(self.path / "checkpoints")
                self.metrics.check(state["run"]["metrics"])
                self.evaluations.check(state["run"]["evaluations"])
            record = json.loads(file.read_text())
            record["config"]["run"]["steps"] = steps
            record["sources"]["run.steps"] = "you"
            self.config, self.sources = from_json(record["config"]), record["sources"]
            checkpoint.write_json(file, record)

    @property
    def finished(self) -> bool:
        """Trained to the end, and the last evaluation made."""
        if self.reached < self.config.run.steps:
            return False
        state = checkpoint.plain_state(self.path / "checkpoints" / f"{self.reached:012d}", "run")
        return state is not None and not state.get("evaluation_due")

    @property
    def in_use(self) -> bool:
        """Is a process writing here?"""
        try:
            with (self.path / "lock").open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    # --- state --------------------------------------------------------------------------------

    def lock(self) -> None:
        self._lock = take_lock(self.path)

    def unlock(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.lock()
        try:
            yield
        finally:
            self.unlock()

    def save(self, learner: Learner, seconds: float) -> Path:
        state = learner.state_dict()
        state["run"] = {
            "metrics": self.metrics.size,
            "evaluations": self.evaluations.size,
            "seconds": seconds,
            "evaluation_due": self.evaluation_due,
            "versions": provenance(),
        }
        self.metrics.flush()
        self.evaluations.flush()
        checkpoint.flush(self.path)
        self._policy = None
        try:
            place = checkpoint.save(self.path / "checkpoints", learner.steps, state)
        except RunError as error:
            raise RunError(f"stopped at step {learner.steps}: {error}") from None
        self.saved_at = learner.steps
        return place

    def restore(self, learner: Learner) -> tuple[float, list[str]]:
        """Put the learner and the tables where the newest whole checkpoint saw them.

        Returns the seconds trained so far and what the user should know.
        """
        folder = self.path / "checkpoints"
        checkpoint.mend(folder)
        if not checkpoint.found(folder):
            notes = ["no checkpoint yet: starting from step 0"] if self.metrics.size else []
            self.begin_with(provenance())
            self.metrics.cut(0)
            self.evaluations.cut(0)
            return 0.0, notes
        state, problems = checkpoint.latest(folder, set_aside=True)
        notes = [f"{problem}; continuing from the checkpoint before it" for problem in problems]
        try:
            learner.load_state_dict(state)
        except (RuntimeError, KeyError, ValueError, TypeError):
            raise InputError(f"the checkpoints in {folder} do not fit config.json") from None
        before, now = state["run"].get("versions", {}), provenance()
        if changed := [name for name in now if before.get(name) != now[name]]:
            notes.append(f"other versions than before ({', '.join(changed)}): not exact to the bit")
        self.metrics.cut(state["run"]["metrics"])
        self.evaluations.cut(state["run"]["evaluations"])
        self.evaluation_due = state["run"].get("evaluation_due", False)
        self.saved_at = learner.steps
        return state["run"]["seconds"], notes
