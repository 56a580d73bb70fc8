"""The wheel: what is inside, and that a run starts from it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = place.glob("comsd-*-py3-none-any.whl")
    return built


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {f"comsd/{p.relative_to(ROOT / 'src/comsd')}" for p in (ROOT / "src").rglob("*.py")}
    assert source <= names
    assert "comsd/py.typed" in names
    others = {n.partition("/")[0] for n in names} - {"comsd"}
    assert [n.endswith(".dist-info") for n in others] == [True]


def test_it_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("dist-info/METADATA"))
        about = message_from_bytes(archive.read(name))
    assert about["Requires-Python"] == ">=3.11"
    pythons = [c for c in about.get_all("Classifier", []) if c.startswith("Programming")]
    assert [c.rpartition(" ")[2] for c in pythons] == ["3.11", "3.12", "3.13"]
    needed = [r for r in about.get_all("Requires-Dist", []) if "extra" not in r]
    assert any(r.startswith("mujoco") for r in needed)
    assert not any(r.startswith("dm") for r in needed)


def test_a_run_starts_from_it(wheel: Path, tmp_path: Path) -> None:
    """Unpacked before everything else that could be imported; dependencies are those of here."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "site")!r})
import comsd
from comsd.cli import main
print(comsd.__file__)
main("pretrain comsd --env maze-tree --preset smoke --run run".split())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == str(tmp_path / "site/comsd/__init__.py")
    assert (tmp_path / "run/checkpoints").is_dir()
