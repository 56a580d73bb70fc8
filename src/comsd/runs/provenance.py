"""What a run was made with: versions of packages, the commit, files of the user."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from comsd.registry import LOADED

PACKAGES = ("comsd", "torch", "numpy", "scipy", "mujoco", "dm_control")


@cache
def commit() -> str:
    """The git commit of the code that runs, if it is a checkout."""
    here = Path(__file__)

    def git(*argv: str) -> str:
        done = subprocess.run(
            ["git", *argv], cwd=here.parent, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        # Fails where this file is not tracked: then it is the repository of somebody's project.
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def provenance() -> dict[str, str]:
    return {
        **{name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        **{path.name: checksum for path, checksum in LOADED.items()},
        "commit": commit(),
    }
