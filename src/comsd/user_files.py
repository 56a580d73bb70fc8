"""Methods, environments and rewards from Python files of the user.

A file is code and is run, so only the user names one; a run directory never does. It remembers the
checksum, so that `comsd resume` can say that a file has changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from comsd.agents.critics import CRITICS
from comsd.config import choose
from comsd.envs.foreign import REGISTERED, import_package, register_env
from comsd.envs.reward import register_reward
from comsd.errors import InputError
from comsd.methods.base import Method
from comsd.registry import LOADED, METHODS, LoadedFile

__all__ = ["import_package", "register_env_file", "register_file", "register_reward_file"]


def run_file(path: Path | str, kind: str) -> ModuleType:
    path = Path(path).resolve()
    if not path.is_file():
        raise InputError(f"{kind} file {path} does not exist")
    name = f"comsd_{kind}_file_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{kind} file {path} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    if (folder := str(path.parent)) not in sys.path:  # for what it imports from beside it
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises
        raise InputError(f"{kind} file {path}: {type(error).__name__}: {error}") from error
    LOADED[path] = LoadedFile(kind, hashlib.sha256(path.read_bytes()).hexdigest()[:12])
    return module


def classes_of(module: ModuleType, base: type) -> list[Any]:
    """Those that the file itself defines."""
    found = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, base)]
    return [v for v in found if v.__module__ == module.__name__]


# --- methods --------------------------------------------------------------------------------------


def register_file(path: Path | str) -> list[str]:
    """Run a Python file and add the methods it defines; returns their names."""
    found = classes_of(run_file(path, "method"), Method)
    if not found:
        raise InputError(f"method file {Path(path).resolve()} defines no subclass of comsd.Method")
    for method in found:
        try:
            check_definition(method)
        except InputError as error:
            raise InputError(f"method file {Path(path).resolve()}: {error}") from None
        METHODS[method.name] = method
    return [method.name for method in found]


def check_definition(method: type[Method]) -> None:
    """Raise InputError for what is wrong with a class before it is tried."""
    for field in ("name", "paper"):
        if not isinstance(getattr(method, field, None), str):
            raise InputError(f"{method.__name__} has no {field}, a text")
    for field in dataclasses.fields(method.config_class):
        if "source" not in field.metadata:
            name = f"{method.config_class.__name__}.{field.name}"
            raise InputError(f"{name} is no setting(default, help, source)")
    check_critic(method)
    if METHODS.get(method.name, method).__module__ != method.__module__:
        raise InputError(f"the name {method.name!r} is taken")


def check_critic(method: type[Method]) -> None:
    """Raise InputError unless there is a critic of its form for all its skill spaces."""
    spaces = choose(f"{method.__name__}.critic", method.critic, CRITICS).spaces
    if other := [space.kind for space in method.spaces if not issubclass(space, spaces)]:
        allowed = ", ".join(space.kind for space in spaces)
        raise InputError(
            f"{method.__name__}.critic is {method.critic!r}, which cannot take {', '.join(other)} "
            f"skills; allowed in {method.__name__}.spaces: {allowed}"
        )


# --- environments and rewards ---------------------------------------------------------------------


def register_env_file(path: Path | str) -> list[str]:
    """Run a Python file and add the environments it defines; returns their names.

    Every class in it that is a `gymnasium.Env` or a `VectorEnv` gets its own name; it may also call
    `comsd.register_env` or `gymnasium.register`, whose ids are then known as `gym:ID`.
    """
    import gymnasium

    before, ids = set(REGISTERED), set(gymnasium.registry)
    module = run_file(path, "env")
    registered = [name for name in REGISTERED if name not in before]
    registered += [f"gym:{env_id}" for env_id in gymnasium.registry if env_id not in ids]
    bases = gymnasium.Env, gymnasium.vector.VectorEnv
    classes = [] if registered else [kind for base in bases for kind in classes_of(module, base)]
    for kind in classes:
        register_env(kind.__name__, kind, family=getattr(kind, "family", "robots"))
    names = registered or [kind.__name__ for kind in classes]
    if not names:
        raise InputError(f"env file {Path(path).resolve()} defines no subclass of gymnasium.Env")
    return names


def register_reward_file(path: Path | str) -> str:
    """Run a Python file and add its function `reward`; returns the name, that of the file."""
    path = Path(path).resolve()
    function = getattr(run_file(path, "reward"), "reward", None)
    if function is None:
        wanted = "def reward(obs, action, next_obs, info)"
        raise InputError(f"reward file {path} defines no `{wanted}`")
    register_reward(path.stem, function)
    return path.stem
