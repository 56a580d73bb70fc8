"""Write THIRD_PARTY.md: every package that `make install` brings, and its licence.

Names and versions come from requirements.lock, licences from the installed packages. Run by
`make lock`.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
PAGE = ROOT / "THIRD_PARTY.md"
TORCH = "torch"  # installed apart: see the Makefile

ABOUT = """\
# Third-party packages

comsd contains no code of others; these packages are installed beside it. Licences as the packages
state them. Written by `make lock` from requirements.lock; PyTorch for NVIDIA brings CUDA packages
under NVIDIA's terms in addition.
"""
SHORT = {  # classifiers without an SPDX name, and texts in place of names
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-style",
}


def locked() -> dict[str, str]:
    """Name -> version of what the lock installs on any platform, and torch."""
    pins = dict(re.findall(r"^([a-zA-Z0-9_.-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    pinned = re.search(rf"{TORCH}==(\S+)", (ROOT / "Makefile").read_text())
    assert pinned
    return {canonicalize_name(name): version for name, version in pins.items()} | {TORCH: pinned[1]}


def licence(package: Distribution) -> str:
    told = package.metadata.get_all("License-Expression")
    if told:
        return told[0]
    classes: list[str] = [
        line.rpartition(" :: ")[2]
        for line in package.metadata.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    if classes:
        return ", ".join(SHORT.get(name, name) for name in classes)
    return (package.metadata.get_all("License") or ["not stated"])[0].splitlines()[0]


def project(extra: str = "") -> list[Requirement]:
    """What pyproject.toml asks for at run time, or in an extra."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = table["optional-dependencies"][extra] if extra else table["dependencies"]
    return [Requirement(text) for text in texts]


def needed(waiting: list[Requirement]) -> set[str]:
    """The names of these packages and of all that they need here."""
    found: set[str] = set()
    while waiting:
        asked = waiting.pop()
        name, extras = canonicalize_name(asked.name), sorted(asked.extras) or [""]
        if name == "comsd":
            others = [other for extra in extras for other in project(extra)]
        elif name not in found:
            found.add(name)
            others = [Requirement(text) for text in distribution(name).requires or []]
        else:
            continue
        waiting += [
            other
            for other in others
            if not other.marker or any(other.marker.evaluate({"extra": e}) for e in extras)
        ]
    return found


def page() -> str:
    pins, runtime = locked(), needed(project())
    sections = {
        "At run time": [name for name in pins if name in runtime],
        "Extras, tests and tools": [name for name in pins if name not in runtime],
    }
    lines = [ABOUT]
    for title, names in sections.items():
        lines += [f"## {title}\n", "| package | version | licence |", "|---|---|---|"]
        for name in sorted(names):
            try:
                terms = licence(distribution(name))
            except PackageNotFoundError:  # for another platform
                terms = "other platforms only"
            lines.append(f"| {name} | {pins[name]} | {terms} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
