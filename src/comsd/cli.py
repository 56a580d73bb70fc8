"""The `comsd` command: parses, calls the functions of the Python API, prints."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, NoReturn, get_type_hints

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

import comsd
from comsd.adaptation import (
    COMBINED_STEPS,
    FinetuneSettings,
    resolve_combine,
    resolve_finetune,
    resolve_scratch,
)
from comsd.agents import AGENTS
from comsd.analysis import Analysis
from comsd.config import Config, RunSettings, choose, resolve, sourced
from comsd.doctor import examine
from comsd.envs import ENVS, TASKS, env_spec
from comsd.errors import InputError, Interrupted, RunError
from comsd.evaluation import make_evaluator
from comsd.evaluation.metrics import MEAN_NEIGHBOURS
from comsd.evaluation.sweeps import SWEEPS
from comsd.methods import METHODS
from comsd.methods.files import LOADED, register_file
from comsd.options import Arg, Resolver, check_words, options_of, peek, shown, taken
from comsd.reproduce import EXHIBITS, LocalExecutor, Plan, execute, exhibit, make_plan, write_report
from comsd.run import Run

USAGE = """\
comsd: unsupervised skill discovery

  comsd pretrain METHOD --env ENV [--preset P] [--run DIR] ...   discover skills
  comsd finetune RUN --task TASK ...   go on from one skill with a task's reward
  comsd finetune --scratch --task TASK the same without pre-training: the reference
  comsd combine RUN --task TASK ...    learn which skill to use when
  comsd resume RUN [--steps N]         continue a run, exactly where it stopped, or beyond its end
  comsd evaluate RUN [--json]          measure and draw what the skills do
  comsd analyse RUN [--video]          a robot's skills one by one: tables, poses, video
  comsd reproduce EXHIBIT ...          all runs behind a table or figure of the paper, and a report
  comsd report DIR                     the report alone: our numbers beside the paper's
  comsd methods                        the methods
  comsd envs                           the environments and their tasks
  comsd config METHOD --env ENV        every setting, its value and its source
  comsd doctor                         what works on this machine, and what to install

  comsd COMMAND --help                 what each option means
  comsd COMMAND --method-file FILE     with the methods that a Python file of yours defines
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `comsd` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        obey(words)


def obey(words: list[str]) -> None:
    """Carry out a command; every failure is one sentence and an exit code."""
    try:
        if not words or words[0] in ("-h", "--help"):
            print(USAGE)
            return
        if words[0] == "--version":
            print(version("comsd"))
            return
        while "--method-file" in words or any(w.startswith("--method-file=") for w in words):
            file, words = taken(words, "--method-file")
            register_file(str(file))
        choose("command", words[0] if words else "", COMMANDS)(words[1:])
    except InputError as error:
        fail(str(error), 2)
    except RunError as error:
        fail(str(error), 1)
    except Interrupted as stop:
        fail(str(stop), 128 + stop.signal)
    except KeyboardInterrupt:
        fail("interrupted; what was saved is kept, and `comsd resume` continues a run", 130)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        fail(f"{error.filename}: {error.strerror}", 2)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        sys.stderr.close()
    except OSError as error:  # a full disk, say
        fail(f"{error.filename or 'output'}: {error.strerror}", 1)


def called() -> str:
    """How the user can call this command: by name if it is on the path, else as now."""
    now = Path(sys.argv[0])
    return str(now) if now.name == "comsd" and not shutil.which("comsd") else "comsd"


def pasteable(message: str) -> str:
    """The commands in a message as the user can call them."""
    files = "".join(f" --method-file {path}" for path in LOADED)
    return re.sub("`comsd ([^`]+)`", lambda said: f"`{called()} {said[1]}{files}`", message)


def fail(message: str, code: int) -> NoReturn:
    print(f"comsd: {pasteable(message)}", file=sys.stderr)
    sys.exit(code)


def say(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more: training goes on
        print(pasteable(message), file=sys.stderr, flush=True)


# --- pretrain, config -----------------------------------------------------------------------------


def chosen(command: str, words: list[str]) -> tuple[Config, dict[str, str], Path | None]:
    """The config of a pre-training that the words ask for.

    The defaults of the options depend on the method, the environment and the preset, so those
    three are read first.
    """
    listing = f"allowed: {', '.join(METHODS)}"
    if not words or words[0].startswith("-"):
        if words and words[0] in ("-h", "--help"):
            words = ["comsd", *words]
        else:
            raise InputError(f"method is missing: comsd {command} METHOD --env ENV; {listing}")
    method, rest = words[0], words[1:]
    env = peek(rest, "--env") or RunSettings.env
    preset = peek(rest, "--preset") or RunSettings.preset
    about = (
        f"METHOD is one of {', '.join(METHODS)}.\nThe values below are those of {method} on {env}."
    )
    resolver = partial(resolve, method, env, preset)
    return options_of(f"comsd {command} METHOD", rest, resolver, about)


def pretrain(words: list[str]) -> None:
    config, sources, path = chosen("pretrain", words)
    if peek(words, "--env") is None:  # a run of hours is not begun by default
        raise InputError(f"--env is missing; allowed: {', '.join(ENVS)}")
    s = config.run
    path = path or Path("runs") / s.env / f"{s.method}-{s.skills}-{s.seed}"
    run = Run.create(path, config, sources)
    say(f"{s.method} on {s.env}, {run.space}, {s.steps:,} steps, seed {s.seed} -> {path}")
    comsd.resume(path, say)
    say(f"done; `comsd evaluate {path}` measures and draws the skills")


def config(words: list[str]) -> None:
    config, sources, _ = chosen("config", words)
    table = Table("setting", "value", "source", "meaning", box=box.SIMPLE)
    for group, name, settings, f in shown(config):
        value = str(getattr(settings, f.name))
        table.add_row(name, value, sources[f"{group}.{f.name}"], f.metadata["help"])
    show(table)


# --- finetune, combine: a run and a task ----------------------------------------------------------

ADAPTING = """\
RUN is a finished pre-training on a robot, --task one of its tasks (`comsd envs`).
Preset, width and the rule for the skill come from RUN; shown are the paper's.
With RUN and --task before --help, theirs."""
REFERENCE = "\n--scratch in place of RUN: plain DDPG without skills."


def adapt(command: Literal["finetune", "combine"], words: list[str]) -> None:
    usage = f"comsd {command} RUN --task TASK"
    wants_help, named = {"-h", "--help"} & {*words}, words and not words[0].startswith("-")
    if wants_help and not (named and peek(words, "--task")):
        steps = sourced("paper, hyper-parameter table", run__steps=COMBINED_STEPS["paper"])
        adapted = steps if command == "combine" else {}
        stage = partial(resolve, "task", next(iter(TASKS)), "paper", stage=command, adapted=adapted)
        about = ADAPTING + REFERENCE if command == "finetune" else ADAPTING
        options_of(usage, words, stage, about)  # prints what there is and exits
    peek(words, "--task")
    task, rest = taken(words, "--task")
    if task is None:
        raise InputError(f"--task is missing: {usage}; `comsd envs` lists the tasks")
    env_spec(task, "task")
    scratch = command == "finetune" and "--scratch" in rest
    preset = peek(rest, "--preset")
    source: Run | None = None
    resolver: Resolver
    if scratch:
        rest.remove("--scratch")
        if rest and not rest[0].startswith("-"):
            raise InputError(f"--scratch starts without a run, so {rest[0]!r} is too much")
        resolver = partial(resolve_scratch, task, preset or RunSettings.preset)
        name = "scratch"
    else:
        if not rest or rest[0].startswith("-"):
            hint = " (or --scratch)" if command == "finetune" else ""
            raise InputError(f"RUN is missing{hint}: {usage}")
        source, rest = comsd.load(rest[0]), rest[1:]
        make = resolve_finetune if command == "finetune" else resolve_combine
        resolver = partial(make, source, task, preset)
        name = f"{command}-{source.path.resolve().name}"
    config, sources, path = options_of(usage, rest, resolver)
    path = path or Path("runs") / task / f"{name}-{config.run.seed}"
    Run.create(path, config, sources, source)
    about = f"{name} on {task}, {config.run.steps:,} steps, seed {config.run.seed}"
    if isinstance(config.adapt, FinetuneSettings):
        about += f", skill rule {config.adapt.rule}"
    say(f"{about} -> {path}")
    run = comsd.resume(path, say)
    for last in run.evaluations.rows()[-1:]:
        print(f"return {float(last['return']):.1f} at step {int(last['step']):,}")
    say(f"done; `comsd evaluate {path}` scores it again and draws the curve")


def finetune(words: list[str]) -> None:
    adapt("finetune", words)


def combine(words: list[str]) -> None:
    adapt("combine", words)


# --- commands on an existing run ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    run: Annotated[tyro.conf.Positional[Path], Arg(help="directory of the run")]
    steps: Annotated[int | None, Arg(help="train to this many steps, if finished too")] = None


def resume(words: list[str]) -> None:
    check_words(words, {"--steps": int}, places=["RUN"])
    options = tyro.cli(ResumeOptions, prog="comsd resume", args=words)
    run = comsd.resume(options.run, say, steps=options.steps)
    say(f"done: {run.reached:,} steps; `comsd evaluate {run.path}` shows what it does")


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    run: Annotated[tyro.conf.Positional[Path], Arg(help="directory of the run")]
    json: Annotated[bool, Arg(help="print JSON instead of a table")] = False
    greedy: Annotated[bool, Arg(help="mazes: mean actions instead of sampled ones")] = False
    random_start: Annotated[bool, Arg(help="mazes: start anywhere in the start cell")] = False


def evaluate(words: list[str]) -> None:
    check_words(words, dict.fromkeys(("--json", "--greedy", "--random-start")), places=["RUN"])
    options = tyro.cli(EvaluateOptions, prog="comsd evaluate", args=words)
    run = comsd.load(options.run)
    result = comsd.evaluate(run, greedy=options.greedy, random_start=options.random_start)
    if options.json:
        print(json.dumps({**dataclasses.asdict(result), "picture": str(result.picture)}, indent=1))
        return
    look, settings = make_evaluator(run), run.config.run
    claim = look.bounds
    columns = ["metric", settings.method, "random"] + ["paper's claim*"] * bool(claim)
    table = Table(*columns, "meaning", box=box.SIMPLE)
    for name, value in result.metrics.items():
        row = [name.replace("_", " "), f"{value:.3g}", f"{result.random[name]:.3g}"]
        if claim:
            row.append(f"at least {claim[name]:g}" if name in claim else "")
        table.add_row(*row, look.meanings[name])
    show(table)
    if claim:
        met = sum(result.metrics[name] >= bound for name, bound in claim.items())
        print(f"* the paper shows a picture; {met} of our {len(claim)} bounds for it are reached")
    if result.step < result.steps:
        print(f"unfinished: step {result.step:,} of {result.steps:,}")
    print(f"picture: {result.picture}")
    if not run.pretrains:
        return
    other = next(name for name in METHODS if name != settings.method)
    again = f"--env {settings.env} --preset {settings.preset}"
    if resolve(other, settings.env, settings.preset)[0].run.space == settings.space:
        again += f" --skills {settings.skills}"  # elsewhere the number means something else
    print(f"next:    {called()} pretrain {other} {again}  # another method")
    print(f"         {called()} config {settings.method} --env {settings.env}  # all settings")


@dataclasses.dataclass(frozen=True)
class AnalyseOptions:
    run: Annotated[tyro.conf.Positional[Path], Arg(help="directory of the run")]
    json: Annotated[bool, Arg(help="print JSON instead of tables")] = False
    video: Annotated[bool, Arg(help="film the skills of the sweep")] = False
    sweep: Annotated[str, Arg(help=f"what to draw and film: {', '.join(SWEEPS)}")] = "constant"
    out: Annotated[Path | None, Arg(help="directory of the results [RUN/analysis]")] = None


def analyse(words: list[str]) -> None:
    types = {"--json": None, "--video": None, "--sweep": str, "--out": Path}
    check_words(words, types, places=["RUN"])
    options = tyro.cli(AnalyseOptions, prog="comsd analyse", args=words)
    result = comsd.analyse(
        options.run, sweep=options.sweep, video=options.video, out=options.out, report=say
    )
    if options.json:
        print(json.dumps(result.to_json(), indent=1))
    else:
        show_analysis(result)


def show_analysis(result: Analysis) -> None:
    names = list(dict.fromkeys(row.sweep for row in result.skills))
    table = Table("metric", *(f"{name} sweep" for name in names), box=box.SIMPLE)
    for metric in ("akd_max", "akd_range", "akd_variance", f"ms_coverage{MEAN_NEIGHBOURS[0]}"):
        keys = [f"{metric}_{name}" for name in names]
        if keys[0] in result.metrics:  # not with fewer skills than neighbours
            table.add_row(metric.replace("_", " "), *(f"{result.metrics[key]:.3g}" for key in keys))
    show(table)
    columns = ("sweep", "skill", "AKD", "torso height, m", "forward speed, m/s")
    table = Table(*columns, f"spin, {result.spin_unit}", box=box.SIMPLE)
    for name in names:
        table.add_section()
        for s in (row for row in result.skills if row.sweep == name):
            values = (s.akd, s.height, s.speed, s.spin)
            figures = [f"{round(x, 2) + 0.0:.2f}" for x in values]  # no -0.00
            table.add_row(s.sweep, s.skill, *figures)
    show(table)
    for path in result.files.values():
        print(f"written: {path}")


# --- the paper's exhibits -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    exhibit: Annotated[tyro.conf.Positional[str], Arg(help=f"one of {', '.join(EXHIBITS)}")]
    preset: Annotated[
        Literal["paper", "lite", "smoke"], Arg(help="scale of all runs; never mixed in a report")
    ] = "paper"
    domains: Annotated[tuple[str, ...], Arg(help="robots [the exhibit's]")] = ()
    methods: Annotated[tuple[str, ...], Arg(help="methods and variants [the exhibit's]")] = ()
    tasks: Annotated[tuple[str, ...], Arg(help="tasks [the exhibit's]")] = ()
    seeds: Annotated[int, Arg(help="seeds 1 to N of everything")] = 3
    dir: Annotated[Path, Arg(help="where runs and report go")] = Path("reproduction")
    jobs: Annotated[int, Arg(help="processes at a time; 0: one per core")] = 0
    plan: Annotated[bool, Arg(help="only print the plan")] = False


def reproduce(words: list[str]) -> None:
    several = ("--domains", "--methods", "--tasks")
    hints = get_type_hints(ReproduceOptions)
    types = {f"--{name}": hints[name] for name in ("preset", "seeds", "jobs")}
    types |= dict.fromkeys((*several, "--dir"), Path) | {"--plan": None}
    check_words(words, types, places=["EXHIBIT"], several=several)
    options = tyro.cli(ReproduceOptions, prog="comsd reproduce", args=words)
    if options.jobs < 0:
        raise InputError(f"jobs is {options.jobs}; it must be at least 0")
    plan = make_plan(
        exhibit(options.exhibit),
        options.preset,
        seeds=options.seeds,
        domains=options.domains,
        methods=options.methods,
        tasks=options.tasks,
    )
    root, executor = options.dir / options.preset, LocalExecutor(options.jobs or None)
    show_plan(plan, root, executor.slots)
    if options.plan:
        return
    try:
        execute(plan, root, executor, say)
    finally:
        if any(root.glob("*/*/*/config.json")):
            print(f"report: {write_report(options.dir)}")


def show_plan(plan: Plan, root: Path, slots: int) -> None:
    table = Table("stage", "environment", "arm", "runs", "finished", box=box.SIMPLE)
    for (stage, env, arm), (jobs, done) in plan.counts(root).items():
        table.add_row(stage, env, arm, str(jobs), str(done))
    show(table)
    hours = plan.seconds(root) / 3600
    kind = f"{plan.exhibit.name} ({plan.exhibit.where}), preset {plan.preset}"
    left = [f"{h:.2g}" if h < 10 else f"{h:,.0f}" for h in (hours, hours / slots)]
    print(f"{kind}: {len(plan.jobs)} jobs in {root}; left: about {left[0]} core hours, ", end="")
    print(f"{left[1]} hours with {slots} processes", flush=True)


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    dir: Annotated[tyro.conf.Positional[Path], Arg(help="the directory of `comsd reproduce`")]


def report(words: list[str]) -> None:
    check_words(words, {}, places=["DIR"])
    options = tyro.cli(ReportOptions, prog="comsd report", args=words)
    print(f"report: {write_report(options.dir)}")


# --- what there is --------------------------------------------------------------------------------


def methods(words: list[str]) -> None:
    reject(words, "methods")
    columns = ("method", "skill spaces", "critic", "fine-tuned skill", "extension points", "status")
    table = Table(*columns, "paper", box=box.SIMPLE)
    usual = AGENTS["ddpg"].config_class()
    for name, method in METHODS.items():
        spaces, points = (s.kind for s in method.spaces), method.extension_points(usual)
        row = (", ".join(spaces), method.critic, method.finetuning_rule, ", ".join(points))
        table.add_row(name, *row, method.status, method.paper)
    show(table)


def envs(words: list[str]) -> None:
    reject(words, "envs")
    table = Table("environment", "skills", "presets", "what it is", "tasks", box=box.SIMPLE)
    for name, spec in ENVS.items():
        presets = ", ".join(f"{p} {v['run.steps'].value:,}" for p, v in spec.presets.items())
        skills = f"{spec.values['run.skills'].value} {spec.values['run.space'].value}"
        table.add_row(name, skills, presets, spec.summary, ", ".join(spec.tasks))
    show(table)


def doctor(words: list[str]) -> None:
    reject(words, "doctor", "says what works on this machine and what to install")
    findings = examine()
    table = Table("", "works", "found", "what to do", box=box.SIMPLE)
    for f in findings:
        table.add_row(f.what, "yes" if f.works else "no", f.found, "" if f.works else f.advice)
    show(table)
    if broken := [f.what for f in findings if f.essential and not f.works]:
        raise RunError(f"comsd cannot work here: {', '.join(broken)}")


def reject(words: list[str], command: str, does: str | None = None) -> None:
    if words and words[0] in ("-h", "--help"):
        print(f"comsd {command}: {does or f'lists all {command}'}; takes no options")
        sys.exit(0)
    if words:
        raise InputError(f"{words[0]} is not an option: `comsd {command}` takes none")


def show(table: Table) -> None:
    """Full width when nobody is watching, so that output can be searched and piped."""
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table)


COMMANDS = {
    f.__name__: f
    for f in (
        pretrain,
        finetune,
        combine,
        resume,
        evaluate,
        analyse,
        reproduce,
        report,
        methods,
        envs,
        config,
        doctor,
    )
}

if __name__ == "__main__":
    main()
