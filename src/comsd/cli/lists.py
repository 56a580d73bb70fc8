"""What there is, and whether it works here."""

from __future__ import annotations

import sys

from comsd.cli.console import new_table, show
from comsd.envs.foreign import FORMS
from comsd.errors import InputError, RunError
from comsd.methods.base import Method
from comsd.registry import ENVS, METHODS
from comsd.training.off_policy import OffPolicySettings

HOOKS = (
    "value_skill regress_skill default_skill candidates flag_orders_skills optimizer "
    "skill_scores diagnostics"
)


def extension_points(method: type[Method]) -> list[str]:
    """What it uses beyond a loss and a reward; docs/add-a-method.md explains each."""
    usual, tuned = OffPolicySettings(), method.config_class.tuned.get("robots", {})
    train = {k.removeprefix("train."): s.value for k, s in tuned.items() if "train." in k}
    own = {name for parent in method.mro()[: method.mro().index(Method)] for name in vars(parent)}
    hooks = [name for name in HOOKS.split() if name in own]
    return hooks + [name for name, value in train.items() if value != getattr(usual, name)]


def methods(argv: list[str]) -> None:
    reject(argv, "methods")
    columns = ("method", "skill spaces", "critic", "fine-tuned skill", "extension points", "status")
    table = new_table(*columns, "paper")
    for name, method in METHODS.items():
        spaces, points = (s.kind for s in method.spaces), extension_points(method)
        row = (", ".join(spaces), method.critic, method.finetuning_rule, ", ".join(points))
        table.add_row(name, *row, method.status, method.paper)
    show(table)


def envs(argv: list[str]) -> None:
    reject(argv, "envs")
    table = new_table("environment", "skills", "presets", "agents", "what it is", "tasks")
    for name, spec in ENVS.items():
        presets = ", ".join(f"{p} {v['run.steps'].value:,}" for p, v in spec.presets.items())
        skills = f"{spec.values['run.skills'].value} {spec.values['run.space'].value}"
        agents, tasks = ", ".join(spec.agents), ", ".join(spec.tasks)
        table.add_row(name, skills, presets, agents, spec.summary, tasks)
    show(table)
    print(f"Others: {FORMS}.")


def doctor(argv: list[str]) -> None:
    reject(argv, "doctor", "says what works on this machine and what to install")
    from comsd.doctor import examine

    findings = examine()
    table = new_table("", "works", "found", "what to do")
    for f in findings:
        table.add_row(f.name, "yes" if f.works else "no", f.found, "" if f.works else f.advice)
    show(table)
    if broken := [f.name for f in findings if f.essential and not f.works]:
        raise RunError(f"comsd cannot work here: {', '.join(broken)}")


def reject(argv: list[str], command: str, does: str | None = None) -> None:
    if argv and argv[0] in ("-h", "--help"):
        print(f"comsd {command}: {does or f'lists all {command}'}; takes no options")
        sys.exit(0)
    if argv:
        raise InputError(f"{argv[0]} is not an option: `comsd {command}` takes none")
