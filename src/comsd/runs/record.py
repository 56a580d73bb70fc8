"""config.json of a run: what it was made with."""

from __future__ import annotations

from typing import Any

from comsd.errors import InputError, RunError, quoted
from comsd.files import Folder

CONFIG = "config.json"


def read_record(folder: Folder) -> dict[str, Any]:
    """What config.json holds, if it is what was written, or edited and its seal removed."""
    try:
        record = folder.read_sealed(CONFIG, {"config", "sources", "versions", "environment"})
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"run {folder.path} is not a run directory: it has no {CONFIG}") from None
    if not {"config", "sources"} <= {*record}:
        raise RunError(f"{folder.path / CONFIG} is damaged")
    return record


def already_exists(folder: Folder, wanted: dict[str, dict[str, Any]]) -> InputError:
    """What to say of a directory that is not new."""
    path, anew = folder.path, "another --run starts a new one"
    try:
        known = read_record(folder)["config"]
        known |= {g: {} for g in wanted if g not in known}  # of a run from before there were such
        differs = {g: [k for k in own if known[g].get(k) != own[k]] for g, own in wanted.items()}
        other = [f"{group}.{name}" for group, names in differs.items() for name in names]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RunError):
        return InputError(f"run {path} exists and is no run directory; {anew}")
    names = f"{', '.join(other[:3])}{', ...' if other[3:] else ''}"
    differs = f"it is a run with other settings ({names}); {anew}"
    same = f"`comsd resume {quoted(path)}` continues it, {anew}"
    return InputError(f"run {path} exists and is never overwritten: {differs if other else same}")
