"""What a run was made with: versions of packages, the commit, files of the user."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from subprocess import DEVNULL, CalledProcessError, check_output

from comsd.registry import LOADED

PACKAGES = ("comsd", "torch", "numpy", "scipy", "mujoco", "gymnasium")


@cache
def commit() -> str:
    """The git commit of the code that runs, if it is a checkout."""
    here = Path(__file__)

    def git(*argv: str) -> str:
        return check_output(["git", *argv], cwd=here.parent, text=True, stderr=DEVNULL).strip()

    try:
        # Fails where this file is not tracked: then it is the repository of somebody's project.
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, CalledProcessError):
        return "unknown"


def provenance() -> dict[str, str]:
    return {
        **{name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        **{path.name: file.checksum for path, file in LOADED.items()},
        "commit": commit(),
    }
