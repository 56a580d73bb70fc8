"""What there is, and whether it works here."""

from __future__ import annotations

import sys

from comsd.cli.console import wrapped
from comsd.cli.tables import READABLE, Table, show, terminal_width
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
    columns = ("method", "skill spaces", "critic", "fine-tuned skill")
    prose = dict.fromkeys(["extension points", "status", "paper"], READABLE)
    table = Table(*columns, *prose, prose=prose)
    for name, method in METHODS.items():
        spaces, points = (s.kind for s in method.spaces), extension_points(method)
        row = (", ".join(spaces), method.critic, method.finetuning_rule, ", ".join(points))
        table.add_row(name, *row, method.status, method.paper)
    show(table)


def envs(argv: list[str]) -> None:
    reject(argv, "envs")
    prose = dict.fromkeys(["presets", "what it is", "tasks"], READABLE)
    table = Table("environment", "skills", "agents", *prose, prose=prose)
    for name, spec in ENVS.items():
        presets = ", ".join(f"{p} {v['run.steps'].value:,}" for p, v in spec.presets.items())
        skills = f"{spec.values['run.skills'].value} {spec.values['run.space'].value}"
        agents, tasks = ", ".join(spec.agents), ", ".join(spec.tasks)
        table.add_row(name, skills, agents, presets, spec.summary, tasks)
    show(table)
    print("\n".join(wrapped(f"Others: {FORMS}.", terminal_width())))


def doctor(argv: list[str]) -> None:
    reject(argv, "doctor", "says what works here and what to install")
    from comsd.doctor import examine

    findings = examine()
    prose = {"": READABLE // 2, "found": READABLE, "what to do": READABLE}
    table = Table("", "works", "found", "what to do", prose=prose)
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
