"""The `comsd` command: parses, calls the functions of the Python API, prints."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args, get_type_hints

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

import comsd
from comsd.analysis import Analysis
from comsd.config import Config, RunSettings, Settings, choose, resolve
from comsd.doctor import examine
from comsd.envs import ENVS
from comsd.errors import InputError, Interrupted, RunError
from comsd.evaluation import evaluator
from comsd.evaluation.robots import MEAN_NEIGHBOURS, SWEEPS
from comsd.methods import METHODS
from comsd.run import Run

USAGE = """\
comsd: unsupervised skill discovery

  comsd pretrain METHOD --env ENV [--preset P] [--run DIR] ...   discover skills
  comsd resume RUN                     continue a run, exactly where it stopped
  comsd evaluate RUN [--json]          measure and draw what the skills do
  comsd analyse RUN [--video]          a robot's skills one by one: tables, poses, video
  comsd methods                        the methods
  comsd envs                           the environments
  comsd config METHOD --env ENV        every setting, its value and its source
  comsd doctor                         what works on this machine, and what to install

  comsd COMMAND --help                 what each option means
"""

Arg = tyro.conf.arg
GROUPS = ("run", "method", "agent")


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `comsd` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help"):
            print(USAGE)
            return
        choose("command", words[0], COMMANDS)(words[1:])
    except InputError as error:
        fail(str(error), 2)
    except RunError as error:
        fail(str(error), 1)
    except Interrupted as stop:
        fail(str(stop), 128 + stop.signal)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        sys.stderr.close()


def called() -> str:
    """How the user can call this command: by name if it is on the path, else as now."""
    return "comsd" if shutil.which("comsd") else sys.argv[0]


def fail(message: str, code: int) -> NoReturn:
    print(f"comsd: {message}", file=sys.stderr)
    sys.exit(code)


def say(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more: training goes on
        print(message, file=sys.stderr, flush=True)


# --- pretrain, config: every setting is an option ------------------------------------------------


def as_options(group: str, settings: Settings, sources: dict[str, str]) -> type[Any]:
    """A twin of a settings class that shows tyro the meaning and the source of each value."""
    hints = get_type_hints(type(settings))
    fields: list[tuple[str, Any, Any]] = []
    for f in dataclasses.fields(settings):
        if (group, f.name) != ("run", "method"):  # that one is the first word of the command
            note = f"{f.metadata['help']} [{sources[f'{group}.{f.name}']}]"
            value = getattr(settings, f.name)
            fields.append((f.name, Annotated[hints[f.name], Arg(help=note)], value))
    return dataclasses.make_dataclass(type(settings).__name__, fields, frozen=True)


def option_types(config: Config) -> dict[str, Any]:
    """Every option of a config with the type of its value; None for switches."""
    types: dict[str, Any] = {"--run": Path}
    for group in GROUPS:
        settings = getattr(config, group)
        hints = get_type_hints(type(settings))
        prefix = "--" if group == "run" else f"--{group}."
        for f in dataclasses.fields(settings):
            name = f.name.replace("_", "-")
            if hints[f.name] is bool:
                types |= {f"{prefix}{name}": None, f"{prefix}no-{name}": None}
            else:
                types[prefix + name] = hints[f.name]
    del types["--method"]
    return types


def check_words(words: list[str], types: dict[str, Any], places: Sequence[str] = ()) -> None:
    """Say in one sentence which option or value is wrong, before tyro says it in a box."""
    missing, rest = list(places), list(words)
    if "-h" in words or "--help" in words:
        return
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if missing and not option.startswith("-"):
            missing.pop(0)
            continue
        expected = choose("option", option.replace("_", "-"), types)
        if expected is None:
            continue
        if not equals:
            if not rest:
                raise InputError(f"{option} needs a value")
            value = rest.pop(0)
        if choices := get_args(expected):
            choose(option, value, dict.fromkeys(choices))
        elif expected in (int, float):
            try:
                expected(value)
            except ValueError:
                kind = "a whole number" if expected is int else "a number"
                raise InputError(f"{option} is {value!r}; it must be {kind}") from None
    if missing:
        raise InputError(f"{missing[0]} is missing")


def chosen(command: str, words: list[str]) -> tuple[Config, dict[str, str], Path | None]:
    """The config that the words of the command line ask for.

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
    first = {"env": RunSettings.env, "preset": RunSettings.preset}
    for name in first:
        for i, word in enumerate(rest):
            if word == f"--{name}" and i + 1 < len(rest):
                first[name] = rest[i + 1]
            elif word.startswith(f"--{name}="):
                first[name] = word.split("=", 1)[1]
    base, sources = resolve(method, first["env"], first["preset"])

    check_words(rest, option_types(base))
    twins = {name: as_options(name, getattr(base, name), sources) for name in GROUPS}
    run_twin = twins["run"]
    place = Annotated[Path | None, Arg(help="directory of the run [runs/ENV/METHOD-SKILLS-SEED]")]
    options = dataclasses.make_dataclass(
        "options",
        [
            ("settings", Annotated[run_twin, Arg(name="")], run_twin()),
            ("method", twins["method"], twins["method"]()),
            ("agent", twins["agent"], twins["agent"]()),
            ("run", place, None),
        ],
    )
    parsed = tyro.cli(options, prog=f"comsd {command} {method}", args=rest)
    groups = {"run": parsed.settings, "method": parsed.method, "agent": parsed.agent}
    given = {
        group: {
            name: value
            for name, value in dataclasses.asdict(values).items()
            if value != getattr(getattr(base, group), name)
        }
        for group, values in groups.items()
    }
    return *resolve(method, first["env"], first["preset"], **given), parsed.run


def pretrain(words: list[str]) -> None:
    config, sources, path = chosen("pretrain", words)
    s = config.run
    path = path or Path("runs") / s.env / f"{s.method}-{s.skills}-{s.seed}"
    run = Run.create(path, config, sources)
    say(f"{s.method} on {s.env}, {run.space}, {s.steps:,} steps, seed {s.seed} -> {path}")
    comsd.resume(path, say)
    say(f"done; `{called()} evaluate {path}` measures and draws the skills")


def config(words: list[str]) -> None:
    config, sources, _ = chosen("config", words)
    table = Table("setting", "value", "source", "meaning", box=box.SIMPLE)
    for group in GROUPS:
        settings = getattr(config, group)
        for f in dataclasses.fields(settings):
            name = f.name if group == "run" else f"{group}.{f.name}"
            value = str(getattr(settings, f.name))
            table.add_row(name, value, sources[f"{group}.{f.name}"], f.metadata["help"])
    show(table)


# --- commands on an existing run ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    run: Annotated[tyro.conf.Positional[Path], Arg(help="directory of the run")]


def resume(words: list[str]) -> None:
    check_words(words, {}, places=["RUN"])
    options = tyro.cli(ResumeOptions, prog="comsd resume", args=words)
    run = comsd.resume(options.run, say)
    say(f"done: {run.config.run.steps:,} steps; `comsd evaluate {run.path}` shows the skills")


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    run: Annotated[tyro.conf.Positional[Path], Arg(help="directory of the run")]
    json: Annotated[bool, Arg(help="print JSON instead of a table")] = False
    greedy: Annotated[bool, Arg(help="mean actions instead of sampled ones")] = False
    random_start: Annotated[bool, Arg(help="start anywhere in the start cell")] = False


def evaluate(words: list[str]) -> None:
    check_words(words, dict.fromkeys(("--json", "--greedy", "--random-start")), places=["RUN"])
    options = tyro.cli(EvaluateOptions, prog="comsd evaluate", args=words)
    run = comsd.load(options.run)
    result = comsd.evaluate(run, greedy=options.greedy, random_start=options.random_start)
    if options.json:
        print(json.dumps({**dataclasses.asdict(result), "picture": str(result.picture)}, indent=1))
        return
    look, settings = evaluator(run), run.config.run
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
    print(f"picture: {result.picture}")
    other = next(name for name in METHODS if name != settings.method)
    again = f"--env {settings.env} --skills {settings.skills} --preset {settings.preset}"
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
        figures = [f"{result.metrics[f'{metric}_{name}']:.3g}" for name in names]
        table.add_row(metric.replace("_", " "), *figures)
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


# --- what there is --------------------------------------------------------------------------------


def methods(words: list[str]) -> None:
    reject(words, "methods")
    table = Table("method", "skill spaces", "reward uses the skill", "paper", box=box.SIMPLE)
    for name, method in METHODS.items():
        spaces = ", ".join(s.kind for s in method.spaces)
        table.add_row(name, spaces, "yes" if method.reward_uses_skill else "no", method.paper)
    show(table)


def envs(words: list[str]) -> None:
    reject(words, "envs")
    table = Table("environment", "skills", "presets", "what it is", box=box.SIMPLE)
    for name, spec in ENVS.items():
        presets = ", ".join(f"{p} {v['run.steps'].value:,}" for p, v in spec.presets.items())
        skills = f"{spec.values['run.skills'].value} {spec.values['run.space'].value}"
        table.add_row(name, skills, presets, spec.summary)
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
    f.__name__: f for f in (pretrain, resume, evaluate, analyse, methods, envs, config, doctor)
}

if __name__ == "__main__":
    main()
