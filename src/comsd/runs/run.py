"""A run: a directory that explains itself.

config.json        every setting, its source, the versions and the commit it ran with
metrics.csv        a line every `log_every` steps
tensorboard/       the same for TensorBoard, if asked for
evaluations.csv    a line every `evaluate_every` steps
checkpoints/       the two newest states, exact to the bit
snapshots/         the skills at the steps of `--snapshots`, by step, kept for good
source/            policy and config of the run that is adapted, if this is an adaptation
evaluation.json    what `comsd evaluate` finds, beside a picture
analysis/          what `comsd analyse` finds
explore.html       the page of `comsd explore`
at-STEP/           what evaluations of that step find, with --at
lock               held by the process that writes here

It may come from anyone: all of it is opened by `comsd.files`, which follows no links. config.json
and, at every checkpoint, both tables are sealed by checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from comsd import checkpoint
from comsd.agents.base import OffPolicyAgent, Policy
from comsd.config import Config
from comsd.envs.base import Env
from comsd.errors import InputError, RunError, UnknownEnvError, UnknownMethodError
from comsd.files import Folder
from comsd.methods.base import Method
from comsd.registry import EnvSpec
from comsd.resolve import from_json
from comsd.runs import factory
from comsd.runs.creation import creating, discard, is_locked, refuse_lost, take_lock
from comsd.runs.provenance import provenance
from comsd.runs.record import CONFIG, already_exists, read_record
from comsd.runs.saved import Saved, places
from comsd.skills import SkillSpace
from comsd.training.logger import Sealed, Table
from comsd.training.trainer import Trainer, TrainingState
from comsd.types import PolicyFn

TABLES = ("metrics", "evaluations")
EXPLORER = "explore.html"
EVALUATION = "evaluation.json"
M = TypeVar("M", bound=nn.Module)


class Run:
    """Opens a run directory; build what it describes with `trainer()` or `policy`.

    at: the step of a snapshot or of the newest checkpoint, whose policy it has; None: the newest.
    """

    def __init__(self, path: Folder | Path | str, at: int | None = None) -> None:
        self.folder = path if isinstance(path, Folder) else Folder(path)
        self.path = self.folder.path
        record = read_record(self.folder)
        try:
            self.config: Config = from_json(record["config"], record["sources"])
        except (UnknownMethodError, UnknownEnvError) as error:
            raise InputError(f"run {self.path}: {error}") from None
        except InputError as error:
            raise RunError(f"{self.path / CONFIG}: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise RunError(f"{self.path / CONFIG} is damaged") from None
        versions = record.get("versions")
        self.versions: dict[str, str] = versions if isinstance(versions, dict) else {}
        self.spec: EnvSpec = factory.spec_of(self.config)
        self.space: SkillSpace = factory.make_space(self.config)
        self.at, self.saved = at, Saved(self.folder, at)
        self.newest = self.saved if at is None else Saved(self.folder)
        self.checkpoints = self.newest.checkpoints
        self.tables = {n: Table(self.folder, f"{n}.csv", partial(self._seal, n)) for n in TABLES}
        self.metrics, self.evaluations = self.tables.values()
        self._policy: Policy | None = None

    def __repr__(self) -> str:
        s = self.config.run
        step = self.reached if self.at is None else self.at
        return f"Run({str(self.path)!r}: {s.stage} {s.method} on {s.env}, {step:,} steps)"

    @classmethod
    def create(
        cls,
        path: Path | str,
        config: Config,
        source: Run | None = None,
        environment: dict[str, Any] | None = None,
    ) -> Run:
        """A new directory; the policy of `source`, the run that is adapted, is copied into it.

        environment: what is to be remembered of it, for people to read. Nothing is left of a
        creation that fails.
        """
        folder, settings = Folder(path), config.to_json()
        record = {"config": settings, "sources": config.sources, "versions": provenance()}
        record |= {"environment": environment} if environment else {}
        try:
            with creating(folder, partial(already_exists, folder, settings)):
                if source is not None:
                    source.copy_policy(folder / "source")
                folder.write_sealed(CONFIG, record)
        except OSError as error:
            raise InputError(f"run {path} cannot be created: {error.strerror}") from None
        return cls(path)

    def discard_if_empty(self) -> None:
        """Remove what was created if nothing has been trained yet."""
        trained = self.reached or places(self.saved.snapshots)
        if not trained and not any(table.size for table in self.tables.values()):
            discard(self.folder)

    def copy_policy(self, to: Folder) -> None:
        """Enough of this run to use its skills elsewhere."""
        to.make()
        self.saved.copy_skills(to / "checkpoints")
        to.replace(CONFIG, self.folder.read(CONFIG))

    @property
    def results(self) -> Folder:
        """Where what is found of it goes: what is found of a snapshot replaces nothing."""
        return self.folder if self.at is None else self.folder / f"at-{self.at}"

    # --- what the config describes -----------------------------------------------------------

    @property
    def pretrains(self) -> bool:
        return self.config.run.stage == "pretrain"

    @cached_property
    def source(self) -> Run | None:
        """The run that is adapted, as it was when this one was created."""
        adapts = self.config.run.stage in ("finetune", "combine")
        return Run(self.folder / "source") if adapts else None

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
        skill = None if self.pretrains else self.saved.read("rule").get("skill")
        if skill is None:
            raise InputError(f"run {self.path} has not settled on a skill")
        if not isinstance(skill, Tensor) or skill.shape != (self.space.dim,):
            raise self._unfit()
        return skill

    def actor(self, num_envs: int = 1, policy: Policy | None = None) -> PolicyFn:
        """From observations (N, ...) of an adaptation's task to mean actions (N, A): those of the
        tuned skill, or of the skills that the controller chooses. policy: another than the trained.
        """
        given = policy or self.policy, self.selected_skill, num_envs
        return factory.make_actor(self.config, self.source, *given)

    # The next three take sizes from an environment of the same body, if there is one already.
    def load_policy(self, env: Env | None = None) -> Policy:
        policy = self._policy = self._policy or self.load_agent(env).policy
        return policy

    def load_agent(self, env: Env | None = None) -> Any:
        """The trained agent, on the CPU."""
        env, cpu = env or self.make_env(1, 0), torch.device("cpu")
        with same_randomness():
            made = factory.make_agent(self.config, self.source, env, cpu)
        agent = self._load(made, "agent")
        if isinstance(agent, OffPolicyAgent):
            agent.set_step(self.used_step)
        return agent

    def load_method(self, env: Env | None = None) -> Method:
        """The trained representation alone, on the CPU."""
        env, cpu = env or self.make_env(1, 0), torch.device("cpu")
        with same_randomness():
            method = factory.make_method(self.config, env.obs_spec, cpu)
        return self._load(method, "method").eval()

    @property
    def used_step(self) -> int:
        """At which everything that is used was saved."""
        return self.saved.step

    def _seal(self, table: str) -> Sealed | None:
        return table_seal(self.newest.read("run"), table) if self.reached else None

    def _load(self, module: M, branch: str) -> M:
        state = self.saved.read(branch)
        try:
            module.load_state_dict(state)
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):
            raise self._unfit() from None
        return module

    def _unfit(self) -> InputError:
        return InputError(f"the checkpoints of {self.path} do not fit {CONFIG}")

    # --- how far it is ------------------------------------------------------------------------

    @property
    def reached(self) -> int:
        """The step of the newest checkpoint."""
        return self.newest.reached

    @property
    def finished(self) -> bool:
        """Trained to the end, and the last evaluation made."""
        if self.reached < self.config.run.steps:
            return False
        try:
            place = self.checkpoints / f"{self.reached:012d}"
            state = checkpoint.read_manifest(place)["state"].get("run", {})
        except (OSError, RunError):
            return False
        return isinstance(state, dict) and not state.get("evaluation_due")

    def extend(self, steps: int) -> None:
        """Let it train to another number of steps."""
        config = self.config.derive("run.steps", steps, "you")
        if config.run.steps < self.reached:
            raise InputError(f"steps is {steps}; run {self.path} is at {self.reached} already")
        with take_lock(self.folder):
            if self.reached:  # what cannot go on would stay unfinished for good
                checkpoint.latest(self.checkpoints, check=self._check_tables)
            self.config = config
            self._record(config=self.config.to_json(), sources=self.config.sources)

    # --- writing ------------------------------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """Is a process writing here?"""
        return is_locked(self.folder)

    def save(self, trainer: Trainer, state: TrainingState) -> Path:
        branches = trainer.state_dict()
        seals = {name: table.seal() for name, table in self.tables.items()}
        branches["run"] = {
            **{name: size for name, (size, _) in seals.items()},
            "checksums": {name: checksum for name, (_, checksum) in seals.items()},
            "seconds": state.seconds,
            "evaluation_due": state.evaluation_due,
            "began_at": state.began_at,
            "versions": provenance(),
        }
        self.folder.sync()
        self._policy = None
        self.newest.forget()
        with stopped_at(trainer.steps):
            return checkpoint.save(self.checkpoints, trainer.steps, branches)

    def save_snapshot(self, trainer: Trainer, step: int) -> None:
        """The skills as they are; `step` is the one that training has reached or just passed."""
        state = {**trainer.learned(), "run": {"step": trainer.steps}}
        with stopped_at(trainer.steps):
            checkpoint.save(self.saved.snapshots, step, state, keep=None)

    def restore(self, trainer: Trainer) -> tuple[TrainingState, list[str]]:
        """Put the trainer and the tables where they were at the newest whole checkpoint.

        Returns what else it remembers and what the user should know.
        """
        checkpoint.recover(self.checkpoints)
        if not checkpoint.found(self.checkpoints):
            refuse_lost(self.path, self.metrics, self.config.run.checkpoint_every)
            notes = ["no checkpoint yet: starting from step 0"] if self.metrics.size else []
            self._record(versions=provenance())  # which may have changed since it was created
            for table in self.tables.values():
                table.restore((0, None))
            return TrainingState(), notes
        self.newest.forget()
        check = self._check_tables
        state, problems = checkpoint.latest(self.checkpoints, check=check, set_aside=True)
        notes = [f"{problem}; continuing from the checkpoint before it" for problem in problems]
        run = state["run"]
        try:
            trainer.load_state_dict(state)
            due, began_at = bool(run.get("evaluation_due", False)), run.get("began_at")
            remembered = TrainingState(float(run["seconds"]), due, began_at and int(began_at))
            before, now = dict(run.get("versions", {})), provenance()
        except RunError:  # of an environment that cannot begin a new episode
            raise
        except Exception:  # anything may be wrong with what somebody else has put together
            raise self._unfit() from None
        if trainer.restarts[-1:] == [trainer.steps]:
            notes.append(
                f"{self.spec.name} cannot save its state: fresh episodes from step "
                f"{trainer.steps:,} on, not exact to the bit"
            )
        if changed := [name for name in now if before.get(name) != now[name]]:
            notes.append(f"other versions than before ({', '.join(changed)}): not exact to the bit")
        for name, table in self.tables.items():
            table.restore(table_seal(run, name))
        return remembered, notes

    def _check_tables(self, state: dict[str, Any]) -> None:
        for name, table in self.tables.items():
            table.check(table_seal(state["run"], name))

    def _record(self, **changes: Any) -> None:
        """Change what config.json says."""
        record = read_record(self.folder)
        if record | changes != record:
            self.folder.write_sealed(CONFIG, record | changes)


def same_randomness() -> AbstractContextManager[None]:
    """First weights that are replaced at once take no random numbers from a training."""
    return torch.random.fork_rng(devices=())


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    """What cannot be saved ends the training."""
    try:
        yield
    except RunError as error:
        raise RunError(f"stopped at step {step}: {error}") from None


def table_seal(run: dict[str, Any], table: str) -> Sealed:
    """What a checkpoint knows of a table; before they were sealed, only its size."""
    try:
        return int(run[table]), run.get("checksums", {}).get(table)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise RunError(f"a checkpoint does not say how long {table}.csv was") from None
