"""Run directories carried in increments, whole at every moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from comsd.errors import InputError
from comsd.files import Folder
from comsd.jobs import carry
from comsd.jobs.carry import Increment, Sender, Store, policy, receive, whole
from comsd.jobs.job import Job
from comsd.jobs.ray_worker import Order, file_options


def write(path: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)


def content(path: Path) -> dict[str, str]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_text() for file in files}


def checkpoint_files(step: int, text: str = "", kind: str = "checkpoints") -> dict[str, str]:
    place = f"{kind}/{step:012d}"
    return {f"{place}/state.json": f"{step}{text}", f"{place}/agent.safetensors": "weights"}


FIRST = {"config.json": "{}", "metrics.csv": "1\n", "checkpoints/chunks/a.safetensors": "rows"}


def test_only_what_is_new_is_sent(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, FIRST | checkpoint_files(100) | {"lock": "1", "checkpoints/.tmp-200/x": "half"})
    sender = Sender(here)
    receive(there, sender.increment())
    assert content(there) == FIRST | checkpoint_files(100)
    write(here, checkpoint_files(200) | {"metrics.csv": "1\n2\n"})
    write(here, {"checkpoints/chunks/b.safetensors": "more"})
    for name in checkpoint_files(100):
        (here / name).unlink()
    (here / "checkpoints" / f"{100:012d}").rmdir()
    (here / "checkpoints" / "chunks" / "a.safetensors").unlink()
    increment = sender.increment()
    expected = {*checkpoint_files(200), "metrics.csv", "checkpoints/chunks/b.safetensors"}
    assert set(increment.files) == expected
    receive(there, increment)
    kept = {
        "config.json": "{}",
        "metrics.csv": "1\n2\n",
        "checkpoints/chunks/b.safetensors": "more",
    }
    assert content(there) == kept | checkpoint_files(200)
    assert not (there / "checkpoints" / f"{100:012d}").exists()
    assert not sender.increment().files


def test_the_same_step_again(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, FIRST | checkpoint_files(100))
    receive(there, whole(here))
    write(here, checkpoint_files(100, " evaluated"))
    receive(there, whole(here))
    assert content(there) == FIRST | checkpoint_files(100, " evaluated")


def test_snapshots_arrive_whole_before_the_checkpoints_that_come_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, received = tmp_path / "here", tmp_path / "there", list[str]()
    snapshots = checkpoint_files(50, kind="snapshots") | checkpoint_files(90, kind="snapshots")
    write(here, FIRST | checkpoint_files(100) | snapshots)
    original = carry.receive_checkpoint

    def receive_checkpoint(folder: Folder, place: str, files: dict[str, bytes]) -> None:
        received.append(f"{folder.path.name}/{int(place)}")
        original(folder, place, files)

    monkeypatch.setattr(carry, "receive_checkpoint", receive_checkpoint)
    receive(there, whole(here))
    assert received == ["snapshots/50", "snapshots/90", "checkpoints/100"]
    assert content(there) == FIRST | checkpoint_files(100) | snapshots
    write(here, checkpoint_files(90, " again", "snapshots"))
    receive(there, whole(here))
    assert content(there) == content(here)


def test_enough_to_adapt_a_run(tmp_path: Path) -> None:
    here = tmp_path / "here"
    write(here, FIRST | checkpoint_files(100) | checkpoint_files(200))
    write(here, {f"checkpoints/{200:012d}/replay.safetensors": "heads"})
    write(here, checkpoint_files(50, kind="snapshots"))
    assert set(policy(here).files) == {"config.json", "metrics.csv", *checkpoint_files(200)}


@pytest.mark.parametrize("name", ["../outside", "/outside", "checkpoints/../../outside"])
def test_nothing_is_written_outside_the_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outside the run directory"):
        receive(tmp_path / "run", Increment({name: b"x"}, frozenset({name})))
    assert not (tmp_path / "outside").exists()


def test_a_store(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    store, sender = Store(f"file://{tmp_path / 'store'}"), Sender(here)
    store.pull("run", there)
    assert not there.exists()
    write(here, FIRST | checkpoint_files(100))
    store.push("run", sender.increment())
    store.pull("run", there)
    write(here, checkpoint_files(200))
    for name in checkpoint_files(100):
        (here / name).unlink()
    store.push("run", sender.increment())
    assert not (tmp_path / "store" / "run" / next(iter(checkpoint_files(100)))).exists()
    store.pull("run", there)
    assert content(there) == FIRST | checkpoint_files(200)


def test_files_of_the_user_come_along(tmp_path: Path) -> None:
    there = tmp_path / "mine.py"
    there.write_text("here")
    files = {str(there): ("method", b"sent"), "/nowhere/world.py": ("env", b"content")}
    job = Job("run", "pretrain", "maze-tree", "comsd", "comsd", 1, "smoke")
    order = Order(job, str(tmp_path), "", "auto", [], [], files)
    with file_options(order) as options:
        assert options[:3] == ["--method-file", str(there), "--env-file"]
        assert Path(options[3]).name == "world.py"
        assert Path(options[3]).read_text() == "content"
    assert not Path(options[3]).exists()


def test_no_link_is_carried_or_followed(tmp_path: Path) -> None:
    here, there, mine = tmp_path / "here", tmp_path / "there", tmp_path / "mine"
    write(here, FIRST | checkpoint_files(100))
    write(mine, {"thesis.tex": "years of work"})
    write(there, FIRST)
    (there / "checkpoints" / f"{100:012d}").symlink_to(mine)
    with pytest.raises(InputError, match="is a link"):
        receive(there, whole(here))
    (here / "notes").symlink_to(mine / "thesis.tex")
    for carried in (whole, policy):
        with pytest.raises(InputError, match="notes is a link"):
            carried(here)
    assert content(mine) == {"thesis.tex": "years of work"}
