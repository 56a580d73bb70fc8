"""From layers of values to the config of a run.

Later wins: the field's default · the environment's values · the method's values for this kind of
environment · the preset · the agent's preset · what an adaptation takes from the run it starts
from · what the user says. The source of every value is kept: `comsd config` prints it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from comsd import adaptation
from comsd.adaptation import CombineSettings, SourceRun, agents_for
from comsd.config import (
    GROUPS,
    SCALES,
    Config,
    RunSettings,
    Setting,
    Settings,
    Stage,
    choose,
    sourced,
)
from comsd.encoders import PixelSettings
from comsd.envs.foreign import find_source, import_package
from comsd.envs.reward import REWARDS
from comsd.envs.specs import EnvSpec, Values
from comsd.errors import InputError, UnknownEnvError, UnknownMethodError
from comsd.methods.base import MethodConfig
from comsd.registry import AGENTS, ENVS, METHODS, TASKS, env_spec, method_class
from comsd.training.on_policy import OnPolicySettings

NAMED = {"run.stage", "run.method", "env.reward"}
ADAPTED = NAMED | {"run.env", "run.space", "run.skills", "train.hold", "adapt.source", "adapt.at"}
ADAPTED |= {"train.representation_steps", "train.representation_every"}  # there is none
IMAGES = {"run.pixels", "pixels.size", "pixels.render", "pixels.stack", "pixels.repeat"}
CONVOLUTIONS = {"pixels.channels", "pixels.strides", "pixels.features"}
FIXED: dict[str, set[str]] = {  # what cannot be chosen in a stage, since it follows from others
    "pretrain": NAMED,
    "finetune": ADAPTED | {"run.agent", "agent.hidden"} | IMAGES | CONVOLUTIONS,
    "combine": ADAPTED | IMAGES,
    "scratch": ADAPTED,
}
DRQV2 = "DrQ-v2's code"
BY_CRITIC = sourced(DRQV2, agent__encoder_from="critic")
PIXEL_STAGES: dict[Stage, Values] = {  # of runs on images
    "pretrain": {},
    "finetune": BY_CRITIC,
    "combine": BY_CRITIC,
    "scratch": BY_CRITIC | sourced(DRQV2, agent__noise=0.1, agent__noise_steps=1_000_000),
}


def setting_classes(
    method: str,
    spec: EnvSpec,
    agent: str | None = None,
    stage: Stage = "pretrain",
    pixels: bool = False,
) -> dict[str, type[Settings]]:
    """The groups of settings of a run; without an agent, of the environment's first."""
    config_class = method_class(method, stage).config_class
    agent = usual_agent(spec, pixels) if agent is None else agent
    choose("agent", agent, spec.agents)
    return {
        "run": RunSettings,
        "method": config_class,
        "agent": AGENTS[agent].config_class,
        "train": AGENTS[agent].train_settings,
        "pixels": PixelSettings if pixels else Settings,
        "adapt": adaptation.SETTINGS.get(stage, Settings),
        "env": spec.settings,
    }


def usual_agent(spec: EnvSpec, pixels: bool) -> str:
    """The environment's first that can learn from such observations."""
    kinds = {name: AGENTS[name].train_settings for name in spec.agents}
    return next(name for name in kinds if not pixels or kinds[name] is not OnPolicySettings)


def has(settings: type[Settings], name: str) -> bool:
    return any(f.name == name for f in dataclasses.fields(settings))


def current_name(name: str, train: type[Settings]) -> str:
    """The settings of training were once the agent's: `agent.X` still stands for `train.X`."""
    group, _, field = name.partition(".")
    return f"train.{field}" if group == "agent" and has(train, field) else name


NAMES = {"agent": str, "pixels": bool}  # groups that can be named without their settings


def by_name(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What the user says by dotted name: run settings come by name, other groups as dicts too."""
    values: dict[str, Any] = {}
    for key, value in overrides.items():
        group, dot, _ = key.partition(".")
        if dot or isinstance(value, Mapping):
            choose("group of settings", group, dict.fromkeys(GROUPS))
            values |= {key: value} if dot else {f"{key}.{name}": v for name, v in value.items()}
            values |= {"run.pixels": True} if key == "pixels" else {}
        elif key in GROUPS and not isinstance(value, NAMES.get(key, ())):
            raise InputError(f"{key} settings are {value!r}; they must be a dict")
        else:
            values[f"run.{key}"] = value
    if "agent.name" in values:
        values["run.agent"] = values.pop("agent.name")
    if isinstance(kwargs := values.get("env.kwargs"), Mapping):
        values["env.kwargs"] = json.dumps(kwargs)
    return values


def env_by_name(env: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name, and the settings, of an environment that is given by name or with settings."""
    if isinstance(env, str):
        return env, {}
    if not isinstance(env, Mapping) or not isinstance(env.get("name"), str):
        raise InputError(f"env is {env!r}; it must be a name, or a dict with a name")
    return env["name"], {f"env.{key}": value for key, value in env.items() if key != "name"}


def resolve(
    method: str,
    env: str | Mapping[str, Any],
    preset: str = "paper",
    stage: Stage = "pretrain",
    inherited: Values | None = None,
    /,
    **overrides: Any,
) -> Config:
    """The config of a run.

    The environment by name, or with its settings: `{"name": "gym:Ant-v5", "horizon": 200}`.

    Overrides: run settings by name (`seed=1`), groups as dicts (`method={"alpha": 0.2}`); the agent
    by name, with its settings (`agent={"name": "ppo", "lr": 1e-4}`) or without (`agent="ppo"`).
    """
    env, settings = env_by_name(env)
    import_package(env)
    user, inherited = by_name(overrides | settings), inherited or {}
    known = {name: setting.value for name, setting in inherited.items()} | user
    spec, agent = env_spec(env, stage, env_settings(known)), None
    if "run.agent" in inherited:
        agent = inherited["run.agent"].value
    if "run.agent" in user and "run.agent" not in FIXED[stage]:
        controller = user.get("adapt.controller", CombineSettings.controller)
        possible = spec.agents if stage == "pretrain" else agents_for(spec, controller)
        agent = user["run.agent"]
        choose("agent", agent, dict.fromkeys(possible))
    pixels = bool(user.get("run.pixels", "run.pixels" in inherited))
    classes = setting_classes(method, spec, agent, stage, pixels)
    user = {current_name(name, classes["train"]): value for name, value in user.items()}
    for name in FIXED[stage].intersection(user):
        raise InputError(f"{name.removeprefix('run.')} cannot be chosen: {stage} says what it is")
    if stage == "pretrain" and env in TASKS:
        raise InputError(
            f"env is {env!r}, a task; skills are discovered without one; allowed: {', '.join(ENVS)}"
        )
    if pixels and spec.make_pixels is None:
        seen = ", ".join(name for name, other in ENVS.items() if other.make_pixels)
        raise InputError(f"pixels is True, but {env} has no images; environments with: {seen}")
    agent = usual_agent(spec, pixels) if agent is None else agent
    config_class = classes["method"]
    assert issubclass(config_class, MethodConfig)
    scale = choose("preset", preset, SCALES)
    families = (*spec.families, *["pixels"] * pixels)
    layers = [
        named(method=method, env=env, preset=preset),
        sourced("the command", run__stage=stage),
        sourced(f"usual for {env}", run__agent=agent),
        spec.values,
        *(method_values(config_class.tuned, family) for family in families),
        *(method_values(config_class.literal, f) for f in families if preset == "literal"),
        spec.presets[scale],
        spec.agents[agent][scale],
        *([image_values(spec.pixels[scale], agent), PIXEL_STAGES[stage]] if pixels else []),
        inherited,
    ]
    values: Values = {}
    for layer in layers:
        for given, setting in layer.items():
            name = current_name(given, classes["train"])
            group, _, field = name.partition(".")
            if group not in ("agent", "train") or has(classes[group], field):  # or another agent's
                values[name] = setting
    for name, choice in config_class.states_only.items() if pixels else ():
        if f"method.{name}" in values and values[f"method.{name}"].value == choice:
            del values[f"method.{name}"]  # tuned for states
    values |= {name: Setting(value, "you") for name, value in user.items()}
    return checked(Config.build(classes, values))


def env_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the environment, without the name of the group."""
    return {k.removeprefix("env."): v for k, v in values.items() if k.startswith("env.")}


def named(**values: str) -> Values:
    """What the user names, or leaves as it is by default."""
    return {
        f"run.{name}": Setting(
            value, "default" if str(value) == getattr(RunSettings, name) else "you"
        )
        for name, value in values.items()
    }


def image_values(layer: Values, agent: str) -> Values:
    """DrQ-v2's rates are those of an actor and a critic: a discrete controller keeps its own."""
    if agent != adaptation.CONTROLLERS["discrete"]:
        return layer
    return {k: value for k, value in layer.items() if not k.startswith(("agent.", "train."))}


def method_values(by_family: Mapping[str, Values], family: str) -> Values:
    """A method's values for a kind of environment."""
    layer = by_family.get(family, {})
    return {k if "." in k else f"method.{k}": value for k, value in layer.items()}


def checked(config: Config) -> Config:
    """A config whose method can have the skill space."""
    method, space = config.run.method, config.run.space
    allowed = [s.kind for s in method_class(method, config.run.stage).spaces]
    if space not in allowed:
        raise InputError(
            f"space is {space!r}; allowed for {method}: {', '.join(allowed)} (--space)"
        )
    assert isinstance(config.method, MethodConfig)
    config.method.check_space(space)
    if config.run.pixels:
        config.method.check_pixels()
    return config


def from_json(data: Mapping[str, Mapping[str, Any]], sources: Mapping[str, str]) -> Config:
    """The config that `to_json` wrote, now or before agents and their training were told apart."""
    run = dict(data["run"])
    method, stage = run["method"], run.get("stage", "pretrain")
    if stage == "pretrain" and method not in METHODS:
        file = "give its file with --method-file"
        raise UnknownMethodError(f"method is {method!r}, which is not built in: {file}")
    settings = data.get("env", {})
    if (reward := settings.get("reward", "own")) not in ("own", *REWARDS):
        raise UnknownEnvError(f"reward is {reward!r}, a file's: give it with --reward-file")
    if not (run["env"] in ENVS or run["env"] in TASKS or find_source(run["env"])):
        file = "give its file with --env-file"
        raise UnknownEnvError(f"env is {run['env']!r}, which is not built in: {file}")
    spec = env_spec(run["env"], stage, settings)
    run.setdefault("agent", next(iter(spec.agents)))
    classes = setting_classes(method, spec, run["agent"], stage, run.get("pixels", False))
    values = {
        current_name(f"{group}.{name}", classes["train"]): Setting(value, "")
        for group, settings in {**data, "run": run}.items()
        for name, value in settings.items()
    }
    return checked(dataclasses.replace(Config.build(classes, values), sources=dict(sources)))


# --- adaptations ----------------------------------------------------------------------------------


def resolve_scratch(
    task: str, preset: str = "paper", reward: str = "own", **overrides: Any
) -> Config:
    import_package(task)
    layer = adaptation.reward_layer(task, reward)
    known = {name: value.value for name, value in layer.items()} | by_name(overrides)
    spec = env_spec(task, "scratch", env_settings(known))
    layer |= sourced("one behaviour, no skills", train__hold=spec.horizon)
    return resolve("task", task, preset, "scratch", layer, **overrides)


def resolve_finetune(
    source: SourceRun,
    task: str | None = None,
    preset: str | None = None,
    reward: str = "own",
    **overrides: Any,
) -> Config:
    """Without a task, on the environment of the run: its own reward, or that of a function."""
    task = source.config.run.env if task is None else task
    import_package(task)
    adaptation.check_source(source, task, "finetune", reward)
    preset = preset or source.config.run.preset
    layer = adaptation.finetune_layer(source, preset)
    layer |= adaptation.env_layer(source, task) | adaptation.reward_layer(task, reward)
    config = resolve("task", task, preset, "finetune", layer, **overrides)
    return adaptation.with_rule(config, source)


def resolve_combine(
    source: SourceRun,
    task: str | None = None,
    preset: str | None = None,
    reward: str = "own",
    **overrides: Any,
) -> Config:
    """As `resolve_finetune`."""
    task = source.config.run.env if task is None else task
    import_package(task)
    adaptation.check_source(source, task, "combine", reward)
    preset = preset or source.config.run.preset
    controller = by_name(overrides).get("adapt.controller", CombineSettings.controller)
    layer = adaptation.combine_layer(source, preset, controller)
    layer |= adaptation.env_layer(source, task) | adaptation.reward_layer(task, reward)
    config = resolve("task", task, preset, "combine", layer, **overrides)
    return adaptation.with_controller(config, source)
