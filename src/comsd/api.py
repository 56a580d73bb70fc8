"""The verbs: what the command line calls and what a notebook calls."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comsd.adaptation import FinetuneSettings
from comsd.analysis import Analysis, EpisodeAnalysis, analyse_skills, measure_episodes
from comsd.arguments import as_flag, as_number, as_path, check_report
from comsd.config import LARGEST, Config, check_value
from comsd.errors import InputError, Interrupted, RunError, TrainingError, quoted, readable_failures
from comsd.evaluation import Options, make_evaluator, make_skill_evaluator
from comsd.evaluation.base import Evaluator, untrained_policy
from comsd.evaluation.tasks import TaskEvaluator
from comsd.explorer import MOST_EXPLORED, write_page
from comsd.files import Folder, output_folder
from comsd.resolve import resolve, resolve_combine, resolve_finetune, resolve_scratch
from comsd.runs import factory
from comsd.runs.creation import take_lock
from comsd.runs.run import EVALUATION, EXPLORER, Run
from comsd.training.logger import Logger, Progress
from comsd.training.signals import graceful_stop
from comsd.training.trainer import Trainer, TrainingLoop, prepare

Report = Callable[[str], None]
PATIENCE = 6.0  # seconds for a step of training to end after a signal, before it is given up


def silent(message: str) -> None:
    """No report."""


def pretrain(
    method: str,
    /,
    *,
    env: str | Mapping[str, Any],
    run: Path | str | None = None,
    preset: str = "paper",
    report: Report = silent,
    **settings: Any,
) -> Run:
    """Discover skills without rewards; everything goes to the directory `run`, or below `runs`.

    Settings: those of the run by name (`skills=10, seed=1, steps=100_000`), those of the method,
    of the agent and of its training as dicts (`method={"alpha": 0.2}, train={"batch_size": 256}`).
    The agent: `agent="ppo"`, or `agent={"name": "ppo", "lr": 1e-4}` together with its settings.
    The environment: `env="gym:Ant-v5"`, or `env={"name": "gym:Ant-v5", "horizon": 200}`.
    """
    config = resolve(method, env, preset, **settings)
    return _start(config, run, None, report)


def finetune(
    source: Run | Path | str | None,
    /,
    *,
    task: str | None = None,
    reward: str = "own",
    run: Path | str | None = None,
    preset: str | None = None,
    report: Report = silent,
    **settings: Any,
) -> Run:
    """Go on learning with a task's reward from one skill of a pre-trained run (Algorithm 3).

    Without a source: a plain agent from scratch, the reference. Without a task: the reward of the
    run's own environment, or a function that `register_reward` has made known by this name.
    How the skill is chosen and what is taken over: `adapt={"rule": "best-of-k",
    "critic_init": "none"}`.
    """
    if source is None:
        if task is None:
            raise InputError("task is missing: without a run it says in which environment")
        config = resolve_scratch(task, preset or "paper", reward, **settings)
        return _start(config, run, None, report)
    opened = load(source)
    config = resolve_finetune(opened, task, preset, reward, **settings)
    return _start(config, run, opened, report)


def combine(
    source: Run | Path | str,
    /,
    *,
    task: str | None = None,
    reward: str = "own",
    run: Path | str | None = None,
    preset: str | None = None,
    report: Report = silent,
    **settings: Any,
) -> Run:
    """Learn which of a pre-trained run's skills to use when (Algorithm 2).

    A controller is trained on the task; its action is the skill. `adapt={"hold": 10}` makes a
    choice last. Task and reward as in `finetune`.
    """
    opened = load(source)
    config = resolve_combine(opened, task, preset, reward, **settings)
    return _start(config, run, opened, report)


def resume(
    run: Path | str,
    report: Report = silent,
    *,
    steps: int | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> Run:
    """Continue a run where its last checkpoint is, exactly as if it had never stopped.

    steps: train to this number of steps instead, a finished run too. threads, device: this time in
    place of the run's own, where it was made for another machine; then not exact to the bit.
    """
    opened = load(run)
    check_report(report)
    if opened.at is not None:
        raise InputError(f"at is {opened.at}; a run goes on from its newest checkpoint alone")
    if steps is not None:
        opened.extend(steps)
    use_machine(opened, threads, device)
    prepare(opened.config.run)
    with readable_failures(opened.path):
        env = opened.make_training_env()
        factory.check_possible(opened.config, opened.source, env, opened.path)
        _train(opened, opened.trainer(env), report)
    return opened


def _start(config: Config, path: Path | str | None, source: Run | None, report: Report) -> Run:
    """A new run from its first step; nothing is created if it could not train."""
    s = config.run
    path = None if path is None else as_path("run", path)
    check_report(report)
    prepare(s)
    label = f"{s.method}-{s.skills}"
    if s.stage != "pretrain":
        label = f"{s.stage}-{source.path.resolve().name}" if source else s.stage
        label += f"-at-{source.at}" if source and source.at is not None else ""
    folder = Path("runs") / re.sub(r"[^\w.-]+", "-", s.env)
    path = path or folder / f"{label}-{s.seed}"
    with readable_failures(path):
        env = factory.make_training_env(config, source)
        factory.check_possible(config, source, env, path)
        trainer = factory.make_trainer(config, source, env)
    run = Run.create(path, config, source, factory.describe_env(env))
    about = f"{s.method} on {s.env}, {run.space}" if run.pretrains else f"{label} on {s.env}"
    about += f", {s.steps:,} steps, seed {s.seed}"
    if isinstance(config.adapt, FinetuneSettings):
        about += f", skill rule {config.adapt.rule}"
    report(f"{about} -> {run.path}")
    with readable_failures(run.path):
        try:
            _train(run, trainer, report)
        except Exception:  # a signal that interrupts is none
            run.discard_if_empty()
            raise
    return run


def _train(run: Run, trainer: Trainer, report: Report) -> None:
    """Train to the configured number of steps, from wherever the run stands."""
    settings = run.config.run

    def stopped(at: str, number: int) -> Interrupted:
        return Interrupted(f"stopped {at}; `comsd resume {quoted(run.path)}` continues", number)

    def given_up(number: int) -> Interrupted:
        return stopped(f"in the middle of a long step; saved is step {run.reached:,}", number)

    with take_lock(run.folder), graceful_stop(PATIENCE, given_up) as stop:
        state, notes = run.restore(trainer)
        for note in notes:
            report(note)
        evaluator = make_evaluator(run)
        shown = trainer.method.progress_metrics | evaluator.progress_metrics
        progress = Progress(settings.steps, trainer.steps, shown, report)
        board = run.folder / "tensorboard" if settings.tensorboard else None
        evaluate = evaluator.evaluate_during_training
        with Logger(run.metrics, run.evaluations, progress, board) as logger:
            saves = run.save, run.save_snapshot
            loop = TrainingLoop(trainer, settings, logger, evaluate, *saves, stop, state)
            try:
                loop.run(evaluate_first=evaluator.at_start)
            except RunError as error:
                raise TrainingError(str(error)) from error
        if stop.signal is not None and loop.unfinished:
            at = f"at step {trainer.steps:,}" + (" and saved" if trainer.steps else "")
            raise given_up(stop.signal) if loop.abandoned else stopped(at, stop.signal)


def load(run: Run | Path | str, at: int | None = None) -> Run:
    """Open a run to use its policy.

    at: as it was at a step: that of a snapshot (`pretrain(..., snapshots="100000,500000")`) or of
    the newest checkpoint. The skills of an unfinished run can be adapted so.
    """
    if isinstance(run, Run) and at is None:
        return run
    place = run.folder if isinstance(run, Run) else as_path("run", run)
    return Run(place, None if at is None else as_number("at", at, int, 1, LARGEST))


def use_machine(run: Run, threads: int | None, device: str | None = None) -> None:
    """What the user says in place of the run's own threads and device."""
    for name, value in (("threads", threads), ("device", device)):
        if value is not None:
            run.config = run.config.derive(f"run.{name}", value, "you")


# --- looking at runs ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """What a run's skills do, beside what it did untrained and what random actions do."""

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 %, of the metrics that have one
    untrained: dict[str, float]  # the same figures, as far as they mean something there
    random: dict[str, float]
    picture: Path
    step: int  # of the checkpoint that was measured
    steps: int  # to which it is to be trained

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"picture": str(self.picture)}


def evaluate(
    run: Run | Path | str,
    *,
    starts: int | None = None,
    skills: int | None = None,
    steps: int | None = None,
    xy: tuple[int, int] | str | None = None,
    greedy: bool = False,
    random_start: bool = False,
    out: Path | str | None = None,
    report: Report = silent,
    threads: int | None = None,
) -> Evaluation:
    """Roll out the skills from several starts each, measure and draw.

    starts: per skill; skills: how many random ones; steps: of a roll-out; xy: the entries of the
    observation that are drawn as a trajectory. For mazes, `greedy` takes mean actions and
    `random_start` starts as in training. Picture and figures go to the run's directory, of a
    snapshot to RUN/at-STEP, or to `out`.
    """
    opened = load(run)
    greedy, random_start = as_flag("greedy", greedy), as_flag("random_start", random_start)
    use_machine(opened, threads)
    prepare(opened.config.run)
    evaluator = make_evaluator(opened, Options(starts, skills, steps, xy, greedy, random_start))
    folder = output_folder(None if out is None else as_path("out", out), opened.results)
    with readable_failures(opened.path), shown_progress(evaluator, report):
        measured = evaluator.measure(opened.policy)
        untrained = evaluator.baseline(untrained_policy(opened))
        random = evaluator.baseline(None)
        picture = evaluator.save_figure(folder)
        at = opened.used_step, opened.config.run.steps
        result = Evaluation(*measured, untrained, random, picture, *at)
        folder.write_sealed(EVALUATION, result.to_json())
    return result


@contextmanager
def shown_progress(evaluator: Evaluator, report: Report) -> Iterator[None]:
    """How far an evaluation is, if it takes time."""
    if not (total := evaluator.planned_steps):
        yield
        return
    with Progress(total, 0, {}, report) as progress:
        evaluator.tick = progress.count
        yield


def analyse(
    run: Run | Path | str,
    *,
    sweep: str = "constant",
    video: bool = False,
    starts: int | None = None,
    skills: int | None = None,
    steps: int | None = None,
    xy: tuple[int, int] | str | None = None,
    out: Path | str | None = None,
    report: Report = silent,
) -> Analysis:
    """Measure and draw the skills one by one; everything goes to `out`, or RUN/analysis.

    `sweep` is the one drawn as trajectories and, of robots, as strips of poses and filmed; all of
    them are measured. The other options are those of `evaluate`.
    """
    opened, video = load(run), as_flag("video", video)
    check_report(report)
    if not opened.pretrains:
        raise InputError(
            f"analyse is for skills and {opened.path} is a run on the task {opened.spec.name}; "
            "allowed: analyse_episodes"
        )
    prepare(opened.config.run)
    evaluator = make_skill_evaluator(opened, Options(starts, skills, steps, xy))
    folder = analysis_folder(opened, out)
    with readable_failures(opened.path), shown_progress(evaluator, report):
        return analyse_skills(evaluator, folder, sweep, video, report)


def analyse_episodes(
    run: Run | Path | str,
    *,
    video: bool = False,
    starts: int | None = None,
    out: Path | str | None = None,
    report: Report = silent,
) -> EpisodeAnalysis:
    """Measure and draw what an adaptation does in episodes of its task, beside what it began with,
    and which skill its controller chooses when; everything goes to `out`, or RUN/analysis.

    starts: the number of episodes.
    """
    opened, video = load(run), as_flag("video", video)
    check_report(report)
    if opened.pretrains:
        raise InputError(f"run {opened.path} is a pre-training, without a task; allowed: analyse")
    prepare(opened.config.run)
    evaluator = TaskEvaluator(opened, Options(starts))
    folder = analysis_folder(opened, out)
    with readable_failures(opened.path):
        return measure_episodes(evaluator, folder, video, report)


def analysis_folder(run: Run, out: Path | str | None) -> Folder:
    return output_folder(None if out is None else as_path("out", out), run.results / "analysis")


def explore(
    run: Run | Path | str,
    out: Path | str | None = None,
    skills: int = 64,
    *,
    starts: int | None = None,
    steps: int | None = None,
    report: Report = silent,
) -> Path:
    """Write one HTML file in which the run's skills act, `out` or RUN/explore.html.

    `skills` of them are on its map and recorded, each measured as by `analyse`, from several
    `starts` for so many `steps`. Of an adaptation, what learned the task comes first; a discrete
    controller has its candidates beside it, however many.
    """
    opened = load(run)
    check_report(report)
    check_value("skills", skills, int, {"low": 1, "high": MOST_EXPLORED})
    folder, name = opened.results, EXPLORER
    if out is not None:
        place = as_path("out", out)
        folder, name = Folder(place.parent), place.name
        if place.is_dir() or not name:
            raise InputError(f"out is {str(place)!r}; it must be a file, such as {EXPLORER}")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"out {out} cannot be created: {error.strerror}") from None
    prepare(opened.config.run)
    with readable_failures(opened.path):
        return write_page(opened, folder, name, skills, Options(starts, None, steps), report)
