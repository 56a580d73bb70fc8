"""The skill explorer's data; the page itself is tested in tests/test_viewer.py."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

import comsd
from comsd.cli import main
from comsd.envs.robots import ROBOTS, load_robot
from comsd.explorer import page
from comsd.explorer.arrays import Arrays, pack_frames
from comsd.explorer.policy import policy_graph
from comsd.explorer.robots import as_text
from comsd.explorer.rollouts import exported_skills
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.page import explorer_links
from comsd.resolve import resolve
from comsd.runs import Run
from comsd.skills import Box, OneHot, Sphere
from comsd.training.trainer import TrainingState


def untrained(path: Path, method: str, env: str, **settings: Any) -> Run:
    run = Run.create(path, resolve(method, env, "smoke", **settings))
    run.save(run.trainer(), TrainingState())
    return run


def unpack(arrays: Arrays, i: int) -> np.ndarray[Any, Any]:
    kind, shape, offset = arrays.index[i]
    block = gzip.decompress(base64.b64decode(arrays.encoded()))
    return np.frombuffer(block, f"<{kind}", int(np.prod(shape)), offset).reshape(shape)


def test_recorded_poses_survive_sixteen_bits() -> None:
    frames = np.random.default_rng(0).normal(size=(3, 50, 4)).cumsum(1)
    arrays = Arrays()
    packed = pack_frames(frames, arrays)
    codes, low, step = (unpack(arrays, packed[key]["array"]) for key in ("codes", "low", "step"))
    assert codes.shape == (2, 3, 4, 50)
    levels = (codes[0] + 256 * codes[1].astype(np.int64)).cumsum(-1) % 65536
    again = low[:, :, None] + step[:, :, None] * levels
    spans = np.ptp(frames, axis=1)[:, None]
    assert np.abs(again.transpose(0, 2, 1) - frames).max() <= 1e-4 * spans.max()


@pytest.mark.parametrize("name", ROBOTS)
def test_text_and_numbers_together_are_the_model(name: str) -> None:
    robot = load_robot(name)
    xml, numbers = as_text(robot.spec, robot.model)
    model = mujoco.MjModel.from_xml_string(xml)
    for field, values in numbers.items():
        getattr(model, field)[...] = values
    for field in ("body_mass", "body_inertia", "geom_size", "jnt_range", "actuator_gear"):
        assert np.array_equal(getattr(model, field), getattr(robot.model, field)), field
    assert "texture" not in xml


@pytest.mark.parametrize(
    ("method", "env", "options", "last"),
    [
        ("comsd", "hopper", {}, "tanh"),
        ("comsd", "hopper", {"agent": "sac"}, "tanh"),
        ("diayn", "hopper", {"agent": "ppo"}, "sub"),
    ],
)
def test_policies_of_all_agents_become_operations(
    method: str, env: str, options: dict[str, Any], last: str, tmp_path: Path
) -> None:
    run = untrained(tmp_path / "run", method, env, **options)
    arrays = Arrays()
    graph = policy_graph(run.policy, arrays)
    assert graph["nodes"][-1]["op"] == last
    assert graph["output"] == 1 + len(graph["nodes"])
    weights = sum(int(np.prod(shape)) for _, shape, _ in arrays.index)
    assert weights >= sum(p.numel() for p in run.policy.parameters())


def test_exported_skills_are_named_and_in_their_space() -> None:
    for space, first in ((Box(64), "c = 0"), (Sphere(3), "angle 0°"), (OneHot(5), "skill 0")):
        skills, names = exported_skills(space, 20)
        assert len(names) == len(skills) == (5 if isinstance(space, OneHot) else 20)
        assert names[0] == first
        assert len(set(names)) == len(names)
    assert len(exported_skills(Box(64), 1)[1]) == 1


def test_a_name_cannot_leave_its_element() -> None:
    text = page.as_json({"run": "</script><img src=x onerror=alert(1)>&"})
    assert "<" not in text
    assert "&" not in text
    assert json.loads(text)["run"].startswith("</script>")


def test_without_the_built_page_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = untrained(tmp_path / "run", "comsd", "maze-tree", skills=4)
    monkeypatch.setattr(page, "files", lambda _: tmp_path)
    with pytest.raises(comsd.InputError, match="make viewer"):
        comsd.explore(run)


def test_a_page_holds_the_run_and_wrong_wishes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.html").write_text(f"<body>{page.HOLE}</body>")
    monkeypatch.setattr(page, "files", lambda _: tmp_path)
    run = untrained(tmp_path / "run", "comsd", "maze-tree", skills=4)
    with pytest.raises(comsd.InputError, match="skills is 0"):
        comsd.explore(run, skills=0)
    with pytest.raises(comsd.InputError, match="starts is 0"):
        comsd.explore(run, starts=0)
    path = comsd.explore(run, starts=2)
    assert path == run.path / "explore.html"
    text = path.read_text()
    header = json.loads(text.partition('id="run">')[2].partition("</script>")[0])
    assert header["run"]["title"]["env"] == "maze-tree"
    assert header["run"]["names"] == [f"skill {i}" for i in range(4)]
    _, shape, _ = header["arrays"][header["run"]["values"]["array"]]
    assert shape == [len(header["run"]["measures"]), 4, 2]


def test_the_command_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.html").write_text(page.HOLE)
    monkeypatch.setattr(page, "files", lambda _: tmp_path)
    run, out = untrained(tmp_path / "run", "comsd", "maze-tree", skills=4), tmp_path / "out.html"
    main(["explore", str(run.path), "--out", str(out), "--starts", "1", "--no-open"])
    assert str(out) in capsys.readouterr().out
    assert out.exists()


def test_the_report_links_the_pages_there_are(tmp_path: Path) -> None:
    run = untrained(tmp_path / "smoke" / "pretrain" / "maze" / "comsd-0", "comsd", "maze-tree")
    finished = [FinishedRun("pretrain", "maze", "comsd <i>", 0, run)]
    assert explorer_links(finished, tmp_path / "report") == ""
    (run.path / "explore.html").touch()
    links = explorer_links(finished, tmp_path / "report")
    assert 'href="../smoke/pretrain/maze/comsd-0/explore.html"' in links
    assert "<i>" not in links
