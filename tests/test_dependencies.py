"""What is installed: declared, bounded, locked with hashes, and under a known licence."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import third_party

ROOT = third_party.ROOT
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = [name for name in PYPROJECT["project"]["optional-dependencies"] if name != "dev"]
RUNTIME = third_party.project()
OPTIONAL = [requirement for extra in EXTRAS for requirement in third_party.project(extra)]
AGAIN = "`make lock` writes it anew"


def imports(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Top-level packages that a file imports, and whether only inside a function."""
    inside = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            yield name.partition(".")[0], node in inside


def test_every_import_is_declared() -> None:
    own = set(sys.stdlib_module_names) | {"comsd"}
    packages = packages_distributions()
    always = {canonicalize_name(r.name) for r in RUNTIME}
    sometimes = always | {canonicalize_name(r.name) for r in OPTIONAL}
    undeclared: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for name, in_function in imports(ast.parse(file.read_text())):
            from_packages = {canonicalize_name(p) for p in packages.get(name, [name])}
            allowed = sometimes if in_function else always
            if name not in own and not from_packages & allowed:
                undeclared.add(f"{file.name}: {name}")
    assert not undeclared


@pytest.mark.parametrize("requirement", [*RUNTIME, *OPTIONAL], ids=str)
def test_every_dependency_has_an_upper_bound_and_is_locked_within_it(
    requirement: Requirement,
) -> None:
    if requirement.name == "comsd":  # an extra of extras
        return
    assert any(bound.operator == "<" for bound in requirement.specifier)
    locked = third_party.locked().get(canonicalize_name(requirement.name))
    if requirement in RUNTIME or locked:  # heavy extras are not installed by `make install`
        assert locked, AGAIN
        assert locked in requirement.specifier


def test_the_lock_has_everything_that_is_installed_with_hashes() -> None:
    locked = third_party.locked()
    missing = third_party.needed(third_party.project("dev")) - set(locked)
    assert not missing, AGAIN
    text = third_party.LOCK.read_text()
    entries = re.split(r"\n(?=[a-zA-Z])", text)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    pins = (ROOT / "constraints.txt").read_text().split()
    chosen = {canonicalize_name(n): v for n, v in (pin.split("==") for pin in pins)}
    assert {name: v for name, v in chosen.items() if name in locked} == {
        name: v for name, v in locked.items() if name in chosen
    }, AGAIN


def test_the_build_backend_is_pinned() -> None:
    (backend,) = (Requirement(text) for text in PYPROJECT["build-system"]["requires"])
    assert str(backend.specifier) == f"=={third_party.locked()[backend.name]}"


def test_the_licences_are_those_of_the_lock() -> None:
    rows = r"^\| ([a-z0-9-]+) \| (\d\S*) \| (.+) \|$"
    listed = re.findall(rows, third_party.PAGE.read_text(), re.MULTILINE)
    assert {name: version for name, version, _ in listed} == third_party.locked(), AGAIN
    assert all(terms not in ("not stated", "") for _, _, terms in listed)
