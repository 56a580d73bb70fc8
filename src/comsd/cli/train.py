"""Commands that train, and `config`, which shows what a training would have."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any, Literal

import comsd
from comsd.adaptation import CONTROLLERS, CombineSettings, combined_steps, usual_agent
from comsd.cli.console import (
    Given,
    env_of_file,
    read_arguments,
    say,
    show_help,
)
from comsd.cli.tables import READABLE, Table, show
from comsd.config import Config, RunSettings, choose
from comsd.envs.foreign import FORMS, import_package
from comsd.errors import InputError, quoted
from comsd.options import (
    Option,
    converted,
    overrides_of,
    parse,
    peek_option,
    pop_option,
    setting_options,
    wants_help,
)
from comsd.registry import ENVS, METHODS, TASKS
from comsd.resolve import resolve, resolve_combine, resolve_finetune

# --- pretrain, config -----------------------------------------------------------------------------


def chosen(command: str, argv: list[str]) -> tuple[str, dict[str, Any]]:
    """The method and the settings of a pre-training.

    Which options there are depends on the method, the environment and the agent.
    """
    usage, listing = f"comsd {command} METHOD", ", ".join(METHODS)
    if argv and argv[0] in ("-h", "--help"):
        argv = ["comsd", *argv]
    if not argv or argv[0].startswith("-"):
        raise InputError(f"method is missing: {usage} --env ENV; allowed: {listing}")
    method, rest = argv[0], argv[1:]
    env, agent = peek_option(rest, "--env") or env_of_file(), peek_option(rest, "--agent")
    given_env = {"env": env} if env else {}
    env = env or RunSettings.env
    import_package(env)
    family = peek_option(rest, "--env.family")
    settings = {"family": family} if family else {}
    pixels = "--pixels" in rest
    options = setting_options(method, env, agent, pixels=pixels, settings=settings)
    if wants_help(rest):
        preset = peek_option(rest, "--preset") or RunSettings.preset
        shown = resolve(method, env, preset, agent={"name": agent} if agent else {}, pixels=pixels)
        about = f"METHOD is one of {listing}.\nThe values below are those of {method} on {env}."
        show_help(usage, options, about, shown)
    _, given = parse(rest, options)
    return method, {"run": given.get("--run"), **given_env, **overrides_of(options, given)}


def resolved(method: str, settings: dict[str, Any]) -> Config:
    named = {"env": RunSettings.env, "preset": RunSettings.preset} | settings
    named.pop("run")
    return resolve(method, named.pop("env"), named.pop("preset"), **named)


def pretrain(argv: list[str]) -> None:
    method, settings = chosen("pretrain", argv)
    if "env" not in settings:  # a run of hours is not begun by default
        resolved(method, settings)  # says what else is wrong
        raise InputError(f"--env is missing; allowed: {', '.join(ENVS)}, {FORMS}")
    run = comsd.pretrain(method, report=say, **settings)
    say(f"done; `comsd evaluate {quoted(run.path)}` measures and draws the skills")


def config(argv: list[str]) -> None:
    shown = resolved(*chosen("config", argv))
    prose = {"source": READABLE // 2, "meaning": READABLE}
    table = Table("setting", "value", *prose, prose=prose)
    run = shown.run
    for option in setting_options(run.method, run.env, run.agent, pixels=run.pixels):
        if name := option.setting:
            shown_name = option.name.removeprefix("--").replace("-", "_")
            value, source = str(attrgetter(name)(shown)), shown.sources[name]
            table.add_row(shown_name, value, source, option.help)
    show(table)


# --- finetune, combine: a run and a task ----------------------------------------------------------

ADAPTING = """\
RUN is a finished pre-training, --task one of its robot's tasks (`comsd envs`).
With --at STEP it is taken as it was at a snapshot (pretrain --snapshots) or is at
its newest checkpoint, finished or not.
Without --task: the environment's own reward, or that of --reward-file FILE,
a function reward(obs, action, next_obs, info).
Preset, width and the rule for the skill come from RUN; shown are the paper's.
With RUN and --task before --help, theirs."""
REFERENCE = "\n--scratch in place of RUN: an agent without skills."


def adapt(command: Literal["finetune", "combine"], argv: list[str]) -> None:
    usage = f"comsd {command} RUN --task TASK"
    task, stage, source = peek_option(argv, "--task"), command, None
    if wants_help(argv) and argv[0].startswith("-"):
        layer, about = {}, ADAPTING + REFERENCE
        if command == "combine":
            layer, about = combined_steps("paper", "continuous"), ADAPTING
        example = next(iter(TASKS))
        shown = resolve("task", example, "paper", command, layer)
        options = setting_options("task", example, None, command)
        show_help(usage, options, about, shown)
    asked_at = peek_option(argv, "--at")
    _, rest = pop_option(pop_option(argv, "--task")[1], "--at")
    reward = Given.rewards[-1] if Given.rewards else "own"
    if command == "finetune" and "--scratch" in rest:
        stage = "scratch"
        rest.remove("--scratch")
        if rest and not rest[0].startswith("-"):
            raise InputError(f"--scratch starts without a run, so {rest[0]!r} is too much")
        if asked_at is not None:
            raise InputError("--scratch starts without a run, so --at is too much")
        task = task or env_of_file()
    elif not rest or rest[0].startswith("-"):
        hint = " (or --scratch)" if command == "finetune" else ""
        raise InputError(f"RUN is missing{hint}: {usage}")
    else:
        at = None if asked_at is None else converted("--at", asked_at, int)
        source, rest = comsd.load(rest[0], at), rest[1:]
        env = source.config.run.env
        several = reward == "own" and env in ENVS and ENVS[env].tasks
        task = task or (None if several else env)
    if task is None:
        raise InputError(f"--task is missing: {usage}; `comsd envs` lists the tasks")
    import_package(task)
    agent, chosen = peek_option(rest, "--agent"), {}
    if agent:
        chosen["agent"] = agent
    elif source is not None:
        agent = usual_agent(source)
    if command == "combine":
        controller = peek_option(rest, "--controller") or CombineSettings.controller
        usual = choose("controller", controller, CONTROLLERS)
        agent = usual if controller == "discrete" else agent or usual
        chosen["adapt.controller"] = controller
    pixels = "--pixels" in rest
    if source is not None:
        seen = "images" if source.config.run.pixels else "states"
        if pixels:
            raise InputError(f"--pixels cannot be chosen: {source.path} has learned from {seen}")
        pixels = source.config.run.pixels
    of_env = {"reward": reward}
    options = setting_options("task", task, agent, stage, pixels, of_env)
    if wants_help(rest):
        assert source is not None
        resolver = resolve_finetune if command == "finetune" else resolve_combine
        shown = resolver(source, task, peek_option(rest, "--preset"), reward, **chosen)
        show_help(usage, options, config=shown)
    if command == "combine":
        (other,) = CONTROLLERS.keys() - {chosen["adapt.controller"]}
        theirs = setting_options("task", task, CONTROLLERS[other], stage, pixels, of_env)
        check_controller(rest, options, other, theirs)
    _, given = parse(rest, options)
    settings = {"task": task, "reward": reward, "run": given.get("--run")}
    settings |= overrides_of(options, given)
    if source is not None and command == "combine":
        run = comsd.combine(source, report=say, **settings)
    else:
        run = comsd.finetune(source, report=say, **settings)
    for last in run.evaluations.rows()[-1:]:
        print(f"return {float(last['return']):.1f} at step {int(last['step']):,}")
    say(f"done; `comsd evaluate {quoted(run.path)}` scores it again and draws the curve")


def check_controller(
    argv: list[str], options: list[Option], other: str, theirs: list[Option]
) -> None:
    """Raise InputError for an option that only the other controller has."""
    known = {option.name for option in options}
    for name in (argument.partition("=")[0].replace("_", "-") for argument in argv):
        if name not in known and name in {option.name for option in theirs}:
            raise InputError(f"{name} needs --controller {other}")


finetune, combine = partial(adapt, "finetune"), partial(adapt, "combine")


# --- resume ---------------------------------------------------------------------------------------


def resume(argv: list[str]) -> None:
    options = [
        Option("--steps", int, "train to this many steps, if finished too"),
        Option("--threads", int, "CPU threads, this time", "the run's"),
        Option("--device", str, "torch device, this time", "the run's"),
    ]
    about = "RUN is the directory of the run."
    place, given = read_arguments(argv, "comsd resume RUN", options, about)
    changes = {name.removeprefix("--"): value for name, value in given.items()}
    run = comsd.resume(place, say, **changes)
    say(f"done: {run.reached:,} steps; `comsd evaluate {quoted(run.path)}` shows what it does")
