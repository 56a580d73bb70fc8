"""The wheel in clean environments, installed by pip with its dependencies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NEEDED = PYPROJECT["project"]["dependencies"]
OTHERS = ["3.12", "3.13"]
WITHOUT_TORCH = ["tests/test_gymnasium_ids.py", "tests/test_models.py"]


def run(*argv: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(a) for a in argv], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


def new_environment(python: str, place: Path) -> Path:
    run(python, "-m", "venv", place)
    return place / "bin"


def install(environment: Path, *what: str | Path) -> None:
    quiet = "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"
    run(environment / "pip", "install", *quiet, *what)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place)
    (built,) = place.glob("*.whl")
    return built


def test_it_installs_and_trains(wheel: Path, tmp_path: Path) -> None:
    environment = new_environment(sys.executable, tmp_path / "venv")
    install(environment, "torch==2.13.0")  # a CPU build, where pip finds one
    install(environment, wheel)
    comsd = environment / "comsd"
    for env, agent in (("maze-tree", "ppo"), ("hopper", "sac")):
        smoke = "pretrain", "comsd", "--env", env, "--agent", agent, "--preset", "smoke"
        run(comsd, *smoke, "--run", tmp_path / env, cwd=tmp_path)
        assert json.loads(run(comsd, "evaluate", tmp_path / env, "--json", cwd=tmp_path))
    assert "dm_control" not in run(environment / "pip", "list").split()


def find_python(version: str) -> str | None:
    """On the path, or among pyenv's."""
    pyenv = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    for candidate in [*map(str, pyenv), shutil.which(f"python{version}")]:
        if candidate and subprocess.run([candidate, "-V"], capture_output=True).returncode == 0:
            return candidate
    return None


def check_without_torch(python: str, wheel: Path, tmp_path: Path) -> None:
    """All but torch, whose build for these may bring CUDA: models, robots, mazes, Gymnasium ids."""
    environment = new_environment(python, tmp_path / "venv")
    install(environment, "pytest", *(n for n in NEEDED if not n.startswith("torch")))
    install(environment, *PYPROJECT["project"]["optional-dependencies"]["dmc"])
    install(environment, "--no-deps", wheel)
    for name in ("docs/gymnasium.md", *WITHOUT_TORCH):
        (tmp_path / name).parent.mkdir(exist_ok=True)  # away from the source: the wheel counts
        shutil.copy(ROOT / name, tmp_path / name)
    run(environment / "python", "-m", "pytest", "-q", "tests", cwd=tmp_path)


@pytest.mark.parametrize("version", OTHERS)
def test_environments_work_in_other_pythons(version: str, wheel: Path, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    check_without_torch(python, wheel, tmp_path)


def test_environments_work_in_the_newest_of_them(wheel: Path, tmp_path: Path) -> None:
    python = next(filter(None, map(find_python, OTHERS[::-1])), None)
    if python is None:
        pytest.skip("no other Python here")
    check_without_torch(python, wheel, tmp_path)
