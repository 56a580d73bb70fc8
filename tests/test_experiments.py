"""What the experiments share: they leave results as they are unless there are better ones."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import comsd

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def test_results_are_replaced_by_whole_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    tables = import_module("tables")
    (tmp_path / "runs.csv").write_text("step\n1\n")
    with pytest.raises(SystemExit, match="stays as it is: none of its runs is here"):
        tables.write_csv(tmp_path / "runs.csv", [])
    assert (tmp_path / "runs.csv").read_text() == "step\n1\n"
    place, kept = tmp_path / "run", tmp_path / "results" / "kept"
    run = comsd.pretrain("comsd", env="maze-tree", preset="smoke", seed=1, run=place)
    tables.keep_policy(run, kept)
    tables.keep_policy(run, kept)  # the same again
    opened = comsd.load(kept)
    assert opened.finished
    assert opened.policy is not None
    assert opened.evaluations.rows() == run.evaluations.rows()
    run.extend(10**6)
    with pytest.raises(SystemExit, match="run is not finished"):
        tables.keep_policy(comsd.load(place), kept)
    assert comsd.load(kept).finished
