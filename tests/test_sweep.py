"""Sweeps: what is swept, which runs follow, how they are ranked."""

from __future__ import annotations

import csv
import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comsd
from comsd.cli import main
from comsd.errors import InputError, RunError
from comsd.files import Folder
from comsd.jobs.executor import Ended, Status
from comsd.jobs.job import Job
from comsd.jobs.size import job_size
from comsd.registry import METHODS
from comsd.reproduction.statistics import summarise
from comsd.runs.run import Run
from comsd.sweeps.course import Course, TreeParzen
from comsd.sweeps.make import make_sweep
from comsd.sweeps.page import response
from comsd.sweeps.ranking import Ranked
from comsd.sweeps.run import carry_out_sweep, estimate
from comsd.sweeps.settings import Range
from comsd.sweeps.sweep import label_of, read_sweep
from processes import call

EXAMPLES = Path(__file__).parents[1] / "examples"

MAZE = "sweep comsd --env maze-tree --preset smoke"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sweep", "METHOD is missing"),
        ("sweep comsd", "--env is missing"),
        ("sweep komsd --env maze-tree", "method is 'komsd' (did you mean 'comsd'?)"),
        ("sweep comsd,komsd --env maze-tree", "method is 'komsd' (did you mean 'comsd'?)"),
        ("sweep cic,cic --env maze-tree", "method is 'cic,cic', which holds a method twice"),
        ("sweep comsd,metra --env walker method.alpha=1", "setting is 'method.alpha'"),
        (f"{MAZE} method=cic,diayn", "name several: comsd sweep comsd,diayn"),
        (f"{MAZE} method.alfa=1,2", "setting is 'method.alfa' (did you mean 'method.alpha'?)"),
        (f"{MAZE} method.alpha=1,1", "holds a value twice"),
        (f"{MAZE} method.alpha=1,", "method.alpha is ''; it must be a number"),
        (f"{MAZE} method.alpha=x", "method.alpha is 'x'; it must be a number"),
        (f"{MAZE} skills=6.5", "skills is '6.5'; it must be a whole number"),
        (f"{MAZE} method.alpha=0.5..0.1 --trials 3", "an empty range; low must be less than high"),
        (f"{MAZE} method.alpha=0..1:log --trials 3", "logarithmic scale must be above 0"),
        (f"{MAZE} method.alpha=0..1:lin --trials 3", "only ':log' is allowed"),
        (f"{MAZE} method.alpha=0.1..1", "--trials is missing: method.alpha is a range"),
        (f"{MAZE} agent.clip=-5,0.2", "agent.clip is -5"),
        (f"{MAZE} method.smw=maybe", "method.smw is 'maybe'; allowed: true, false"),
        (f"{MAZE} seed=1,2", "seed cannot be swept: --seeds says how many"),
        (f"{MAZE} --seeds 0", "seeds is 0; it must be at least 1"),
        (f"{MAZE} --rank coverage", "rank is 'coverage'; allowed: "),
        (f"{MAZE} --task walker_run", "task is 'walker_run'; allowed: none"),
        (f"{MAZE} --halve 1", "halve is 1; it must be at least 2"),
        (f"{MAZE} --halve 3", "halve is 3; there are only 1 trials"),
        (f"{MAZE} method.alpha=1 method.alpha=2", "method.alpha is given twice"),
        (f"{MAZE} --jobs -1", "jobs is -1; it must be at least 0"),
        ("sweep comsd --env walker task.rule=fixed", "setting is 'task.rule'"),
        ("sweep comsd --env walker --task walker_run task.tries=1", "adapt.tries is 1"),
        ("sweep comsd --env walker --task walker_run --rank akd", "rank is 'akd'; allowed: return"),
        # Known after `comsd evaluate` alone, or of skills with a flag: nothing to rank by.
        ("sweep comsd --env walker --rank identification", "rank is 'identification'; allowed: "),
        ("sweep diayn --env walker --rank akd_max_flag", "did you mean 'akd_max_random'?"),
        ("sweep comsd,becl --env walker --rank held_out_auc", "rank is 'held_out_auc'; allowed: "),
        (
            "sweep diayn --env walker skills=6 --rank ms_coverage10_constant",
            "rank is 'ms_coverage10_constant' (did you mean 'ms_coverage1_constant'?)",
        ),
        (
            "sweep comsd --env walker --task walker_run --rank return_without_noise",
            "rank is 'return_without_noise'",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    words: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(words, capsys)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not out
    assert not list(tmp_path.iterdir())


def test_a_plan_trains_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "sweep comsd --env walker --preset lite agent.lr=1e-5,1e-4 --task walker_run --seeds 2"
    code, out, _ = call(f"{words} --plan", capsys)
    assert code == 0
    assert "2 trials of 2 seeds in sweep, ranked by return" in out
    rows = {line.split()[0]: line.split()[1:3] for line in out.splitlines() if "tun" in line}
    assert rows["finetune"] == ["4", "400,000"]
    assert not list(tmp_path.iterdir())


def test_samples_lie_in_their_range_and_do_not_depend_on_their_number() -> None:
    options = {"agent.lr": "1e-5..1e-3:log", "skills": "4..8", "method.smw": [True, False]}
    small, large = (
        list(make_sweep("comsd", "maze-tree", options, trials=n, sampler="random").known_trials())
        for n in (20, 200)
    )
    assert large[: len(small)] == small
    rates = np.array([dict(trial)["agent.lr"] for trial in large], float)
    assert rates.min() >= 1e-5
    assert rates.max() <= 1e-3
    assert abs(np.mean(np.log10(rates)) + 4) < 0.1  # the middle on a logarithmic scale
    assert {dict(trial)["skills"] for trial in large} == {4, 5, 6, 7, 8}
    assert {dict(trial)["method.smw"] for trial in large} == {True, False}
    assert Range("x", 1, 100, log=True, whole=True).draw(np.random.default_rng(0)) in range(1, 101)


def test_names_of_trials_are_short_and_different() -> None:
    assert label_of((("method.alpha", 0.1), ("skills", 6))) == "alpha-0.1_skills-6"
    assert label_of((("method.lr", 1), ("agent.lr", 2))) == "method.lr-1_agent.lr-2"
    assert label_of(()) == "base"
    long = [label_of(tuple((f"setting_{i}", j) for i in range(20))) for j in (1, 2)]
    assert len({*long}) == 2
    assert all(len(label) < 110 for label in long)


def test_methods_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "sweep"
    words = f"sweep comsd,diayn --env maze-tree --preset smoke --seeds 1 --jobs 1 --dir {place}"
    code, out, _ = call(f"{words} skills=3", capsys)
    assert code == 0
    runs = [Run(path.parent).config.run for path in sorted(place.glob("pretrain/*/*/config.json"))]
    assert [(run.method, run.skills) for run in runs] == [("comsd", 3), ("diayn", 3)]
    with (place / "report" / "ranking.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"comsd", "diayn"}
    assert f"best: comsd pretrain {rows[0]['method']} --env maze-tree --preset smoke" in out
    assert (place / "report" / "curves.png").exists()
    assert call(f"report {place}", capsys)[0] == 0  # read again from the disk
    code, _, said = call(f"{words.replace(',diayn', '')} skills=3", capsys)
    assert (code, "methods is ('comsd',), but" in said) == (2, True)
    assert call(f"{words.replace('diayn', 'diayn,cic')} skills=3 --plan", capsys)[0] == 0


def test_a_grid_is_trained_ranked_and_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"{MAZE} method.alpha=0.05,0.1 --dir {tmp_path} --jobs 2 --seeds"
    code, out, _ = call(f"{words} 1", capsys)
    assert code == 0
    assert "best: comsd pretrain comsd --env maze-tree --preset smoke --method.alpha" in out
    runs = {place: place.stat().st_mtime_ns for place in tmp_path.glob("pretrain/*/*/config.json")}
    assert len(runs) == 2
    code, out, _ = call(f"{words} 2", capsys)
    assert len(list(tmp_path.glob("pretrain/*/*/config.json"))) == 4
    assert all(place.stat().st_mtime_ns == at for place, at in runs.items())  # nothing twice
    with (tmp_path / "report" / "ranking.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["n"] for row in rows] == ["2", "2"]
    expected = [
        float(
            Run(
                tmp_path / f"pretrain/maze-tree/alpha-{rows[0]['method.alpha']}-{seed}"
            ).evaluations.rows()[-1]["occupancy_entropy"]
        )
        for seed in (1, 2)
    ]
    assert float(rows[0]["mean"]) == pytest.approx(np.mean(expected))
    assert float(rows[0]["mean"]) >= float(rows[1]["mean"])
    page = (tmp_path / "report" / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page
    command = next(line for line in out.splitlines() if line.startswith("best: "))
    main([*shlex.split(command)[2:-1], str(tmp_path / "best")])  # the command works as printed
    code, out, _ = call(f"{words} 2 --rank identification", capsys)  # trains nothing
    assert code == 0
    assert "ranked by identification" in out
    # A damaged run is named, and the others are ranked.
    (tmp_path / "pretrain/maze-tree/alpha-0.05-1/config.json").write_text("{")
    assert call(f"report {tmp_path}", capsys)[0] == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Not counted: pretrain/maze-tree/alpha-0.05-1 (" in page
    code, out, _ = call(f"report {tmp_path}", capsys)
    assert "report.html" in out


class Quick:
    """Trains nothing: writes the evaluation that a run would have at its end."""

    slots = 3

    def __init__(self, score: dict[str, float]) -> None:
        self.score, self.started, self.ended = score, list[tuple[str, int | None]](), list[Ended]()

    def start(self, job: Job, root: Path) -> None:
        self.started.append((job.place, job.steps))
        self.ended.append(Ended(job.place, 0))
        QUICK[root / job.place] = job.steps or 0
        place = root / job.place
        place.mkdir(parents=True, exist_ok=True)
        with (place / "evaluations.csv").open("a") as file:
            if file.tell() == 0:
                file.write("step,occupancy_entropy\n")
            file.write(f"{job.steps or 0},{self.score[job.arm]}\n")

    def poll(self) -> list[Ended]:
        ended, self.ended = self.ended, []
        return ended

    def status(self) -> dict[str, Status]:
        return {}

    def stop(self) -> None:
        pass


QUICK: dict[Path, int] = {}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened:
        def __init__(self, path: Path) -> None:
            from comsd.training.logger import Table

            self.evaluations = Table(Folder(path), "evaluations.csv")

    def finished(job: Job, root: Path) -> bool:
        return QUICK.get(root / job.place, -1) >= (job.steps or 0)

    QUICK.clear()
    monkeypatch.setattr(Job, "finished", finished)
    monkeypatch.setattr(Job, "in_use", lambda *_: False)
    monkeypatch.setattr("comsd.sweeps.course.Run", Opened)


@pytest.mark.usefixtures("quick")
def test_halving_promotes_the_best_and_continues_where_it_was(tmp_path: Path) -> None:
    settings = {"method.alpha": [i / 10 for i in range(1, 10)]}
    asked = make_sweep("comsd", "maze-tree", settings, seeds=1, halve=3)
    score = {f"alpha-{i / 10}": float(i) for i in range(1, 10)}
    quick = Quick(score)
    carry_out_sweep(asked, tmp_path, quick, lambda _: None)
    steps = asked.steps
    assert asked.rungs == [(9, -(-steps // 9)), (3, -(-steps // 3)), (1, steps)]
    assert [s for _, s in quick.started] == [-(-steps // 9)] * 9 + [-(-steps // 3)] * 3 + [steps]
    assert {p.split("/")[-1] for p, s in quick.started if s == -(-steps // 3)} == {
        "alpha-0.7-1",
        "alpha-0.8-1",
        "alpha-0.9-1",
    }
    assert quick.started[-1][0].endswith("alpha-0.9-1")
    again = Quick(score)
    carry_out_sweep(asked, tmp_path, again, lambda _: None)
    assert not again.started


def test_the_usual_metric_is_one_that_every_trial_logs() -> None:
    for spaces, rank in (
        ("box", "akd_range_flag"),
        ("one-hot", "akd_range_constant"),
        ("box,one-hot", "state_coverage"),
    ):
        assert make_sweep("comsd", "walker", {"space": spaces}).rank == rank
    assert make_sweep(",".join(METHODS), "walker", {}).rank == "state_coverage"


@pytest.mark.parametrize("method", ["comsd", "diayn"])
def test_an_environment_of_the_users_is_swept_and_ranked_by_what_its_runs_measure(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = EXAMPLES / "point_maze.py"
    few = "steps=500 evaluate_every=500 --seeds 1 --preset smoke --jobs 1"
    code, out, _ = call(f"sweep {method} --env-file {file} {few} --dir {tmp_path}", capsys)
    assert code == 0
    assert "ranked by akd_range_constant" in out
    assert (tmp_path / "report" / "ranking.csv").exists()


@pytest.mark.usefixtures("quick")
def test_a_metric_that_is_not_logged_stops_the_sweep(tmp_path: Path) -> None:
    asked = make_sweep(
        "comsd", "maze-tree", {"method.alpha": "0.1,0.2,0.3"}, halve=3, rank="end_depth"
    )
    quick = Quick({f"alpha-{x}": 1.0 for x in (0.1, 0.2, 0.3)})
    with pytest.raises(RunError, match="evaluations have no 'end_depth' to rank by"):
        carry_out_sweep(asked, tmp_path, quick, lambda _: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(find_spec("optuna") is None, reason="needs the extra comsd[optuna]")
def test_optuna_asks_for_trials_one_after_another(tmp_path: Path) -> None:
    settings = {"method.alpha": "0.01..1:log", "skills": [6, 8, 10]}
    asked = make_sweep("comsd", "maze-tree", settings, trials=12, seeds=1)
    assert asked.sampler == "tpe"

    class Scores(dict[str, float]):
        def __missing__(self, label: str) -> float:
            return -abs(np.log10(float(label.split("_")[0].removeprefix("alpha-"))) + 1)

    quick = Quick(Scores())
    carry_out_sweep(asked, tmp_path, quick, lambda _: None)
    sweep, trials = read_sweep(tmp_path)
    assert len(quick.started) == len(set(trials)) == 12
    course = Course(sweep, tmp_path, trials, 3)
    assert isinstance(course.sampler, TreeParzen)
    for trial in trials:
        assert not course.more(course.sweep.chain(trial, 1)[-1], True)
    more = make_sweep("comsd", "maze-tree", settings, trials=15, seeds=1)
    again = Quick(Scores())
    carry_out_sweep(more, tmp_path, again, lambda _: None)
    assert len(again.started) >= 1  # the trials before are kept
    assert read_sweep(tmp_path)[1][:12] == trials


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ({"halve": 2, "trials": 4}, {"halve": 2, "trials": 8}, "trials_wanted"),
        ({"trials": 4}, {"trials": 8}, None),
        ({"trials": 4}, {"trials": 4, "range": "0.1..0.5"}, "settings"),
        ({"trials": 4, "halve": 2}, {"trials": 4, "halve": 2, "rank": "end_depth"}, "rank"),
        ({"trials": 4}, {"trials": 4, "rank": "end_depth"}, None),
        ({"range": "0.1,0.2"}, {"range": "0.1,0.2,0.3"}, None),
    ],
)
def test_a_directory_holds_one_sweep(
    before: dict[str, Any], after: dict[str, Any], field: str | None
) -> None:
    first, second = (
        make_sweep("comsd", "maze-tree", {"method.alpha": given}, sampler="random", **options)
        for given, options in (
            (o.get("range", "0.1..1"), {k: v for k, v in o.items() if k != "range"})
            for o in (before, after)
        )
    )
    assert second.same_kind(first) == field


def test_no_line_joins_means_of_trainings_of_different_lengths() -> None:
    settings = {"method.alpha": "0.1,0.2"}
    for halve, lines in ((0, 1), (2, 0)):
        asked = make_sweep("comsd", "maze-tree", settings, seeds=1, halve=halve)
        ranked = [
            Ranked((("method.alpha", x),), rung, None, [1.0], summarise("", "", [1.0]))
            for rung, x in ((1, 0.1), (0, 0.2))
        ]
        figure = response(asked, ranked)
        assert figure is not None
        assert [line.get_linestyle() for line in figure.axes[0].lines].count("-") == lines


def test_trials_of_the_task_share_their_pre_training() -> None:
    settings = {"agent.lr": [1e-4, 1e-3], "task.rule": ["fixed", "random"]}
    asked = make_sweep("comsd", "walker", settings, task="walker_run", preset="smoke", seeds=2)
    jobs = {job.place: job for trial in asked.known_trials() for job in asked.jobs(trial)}
    stages = [job.stage for job in jobs.values()]
    assert (stages.count("pretrain"), stages.count("finetune")) == (4, 8)
    tuned = jobs["finetune/walker_run/agent.lr-0.001_rule-random-2".replace("agent.", "")]
    assert tuned.needs == "pretrain/walker/lr-0.001-2"
    assert tuned.options == ("--rule", "random")


def test_python(tmp_path: Path) -> None:
    result = comsd.sweep(
        "comsd", env="maze-tree", settings={"skills": [6]}, preset="smoke", seeds=1, dir=tmp_path
    )
    assert result.ranking[0].cell.n == 1
    assert result.page.exists()
    with pytest.raises(InputError, match=r"method\.alpha is 3; it must be a list"):
        comsd.sweep("comsd", env="maze-tree", settings={"method.alpha": 3})  # pyright: ignore


def test_a_damaged_sweep_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in ("{", "[]", json.dumps({"sweep": {"method": "comsd"}, "trials": []})):
        (tmp_path / "sweep.json").write_text(content)
        code, _, err = call(f"report {tmp_path}", capsys)
        assert code == 1
        assert "sweep.json is damaged" in err
        assert err.count("\n") == 1


def test_the_size_of_a_run(tmp_path: Path) -> None:
    main(f"pretrain comsd --env hopper --preset smoke --run {tmp_path / 'run'}".split())
    used = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file())
    job = Job("run", "pretrain", "hopper", "comsd", "comsd", 0, "smoke")
    assert used / 2 < job_size(job).disk < 2 * used


def test_halving_is_estimated_with_its_promotions() -> None:
    asked = make_sweep("comsd", "walker", {"agent.lr": "1e-5..1e-3:log"}, trials=9, halve=3)
    whole = asked.steps
    steps = estimate(asked)["pretrain"].work.steps
    assert steps == pytest.approx(
        3 * (9 * whole / 9 + 3 * (whole / 3 - whole / 9) + 2 * whole / 3), rel=0.01
    )
