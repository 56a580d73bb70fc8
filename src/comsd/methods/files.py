"""Methods from files outside the package: `--method-file my_method.py`.

A file is code and is run, so only the user names one; a run directory never does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from comsd.agents.critics import CRITICS
from comsd.config import choose
from comsd.errors import InputError
from comsd.methods import METHODS
from comsd.methods.base import Method

LOADED: dict[Path, str] = {}  # file -> checksum of what was run


def register_file(path: Path | str) -> list[str]:
    """Run a Python file and add the methods it defines; returns their names."""
    path = Path(path).resolve()
    if not path.is_file():
        raise InputError(f"method file {path} does not exist")
    name = f"comsd_method_file_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"method file {path} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises
        raise InputError(f"method file {path}: {type(error).__name__}: {error}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == name
    ]
    if not found:
        raise InputError(f"method file {path} defines no subclass of comsd.Method")
    for kind in found:
        register(kind, path)
    LOADED[path] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return [kind.name for kind in found]


def check_critic(kind: type[Method]) -> None:
    """Raise InputError unless there is a critic of its form for all its skill spaces."""
    takes = choose(f"{kind.__name__}.critic", kind.critic, CRITICS).spaces
    if left := [space.kind for space in kind.spaces if not issubclass(space, takes)]:
        allowed = ", ".join(space.kind for space in takes)
        raise InputError(
            f"{kind.__name__}.critic is {kind.critic!r}, which cannot take {', '.join(left)} "
            f"skills; allowed in {kind.__name__}.spaces: {allowed}"
        )


def register(kind: type[Method], path: Path) -> None:
    for field in ("name", "paper"):
        if not isinstance(getattr(kind, field, None), str):
            raise InputError(f"method file {path}: {kind.__name__} has no {field}, a text")
    for field in dataclasses.fields(kind.config_class):
        if "source" not in field.metadata:
            what = f"{kind.config_class.__name__}.{field.name}"
            raise InputError(f"method file {path}: {what} is no setting(default, help, source)")
    try:
        check_critic(kind)
    except InputError as error:
        raise InputError(f"method file {path}: {error}") from None
    known = METHODS.get(kind.name)
    if known is not None and known.__module__ != kind.__module__:
        raise InputError(f"method file {path}: the name {kind.name!r} is taken")
    METHODS[kind.name] = kind
