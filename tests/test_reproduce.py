"""Plans, their execution whatever dies, and the report."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

import comsd
from comsd.cli import main
from comsd.errors import InputError, RunError
from comsd.files import Folder
from comsd.jobs.cost import job_seconds, product_rate, step_work
from comsd.jobs.job import Job, read_analysis
from comsd.registry import METHODS, TASKS
from comsd.reproduction.collect import FinishedRun
from comsd.reproduction.exhibits import EXHIBITS, find_exhibit
from comsd.reproduction.keep import keep_runs
from comsd.reproduction.page import measured_markdown, write_report
from comsd.reproduction.plan import make_plan, not_kept
from comsd.reproduction.sections import make_section, paper_values
from comsd.reproduction.statistics import interval, summarise
from comsd.resolve import resolve
from comsd.runs.run import Run
from processes import call, command

# --- statistics -----------------------------------------------------------------------------------


def test_seeds_give_mean_deviation_and_interval() -> None:
    one, two, three = (summarise("row", "arm", x) for x in ([5], [1, 3], [1, 2, 6]))
    assert (one.n, one.mean, one.sd, one.low) == (1, 5, None, None)
    assert two.sd == pytest.approx(2**0.5)
    assert two.low is None  # two seeds make no interval
    assert three.mean == 3
    assert three.sd == pytest.approx(7**0.5)
    # The 27 resamples of three: 1/27 > 2.5 % of them are all ones, as many all sixes.
    assert (three.low, three.high) == (1, 6)
    assert (two.ours, two.paper) == ("2 ± 1.41 (n=2)", "")
    assert three.ours == "3 ± 2.65 [1, 6] (n=3)"
    assert summarise("row", "arm", [5], (2, 0)).paper == "paper 2 ± 0"
    assert summarise("row", "arm", [5], (2, None)).paper == "paper 2"


def test_an_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(0, 1, (30, 400))
    low, high = interval(draws)
    assert np.mean((low < 0) & (high > 0)) == pytest.approx(0.93, abs=0.04)


# --- plans ----------------------------------------------------------------------------------------


def test_the_grid_behind_table_one() -> None:
    plan = make_plan("finetuning", "lite", seeds=2, domains=["walker"], methods=["cic"])
    places = [job.place for job in plan.jobs]
    assert len(places) == 2 * (1 + 4 + 4)
    assert places[0] == "pretrain/walker/cic-1"
    tuned = next(job for job in plan.jobs if job.place == "finetune/walker_run/cic-2")
    assert tuned.needs == "pretrain/walker/cic-2"  # the same seed
    root = Path("runs")
    words = " ".join(tuned.command(root))
    assert words.startswith("finetune runs/pretrain/walker/cic-2 --task walker_run --seed 2")
    whole = make_plan("finetuning", "paper", seeds=1)
    arms = len(EXHIBITS["finetuning"].arms)
    assert len(whole.jobs) == 4 * (arms + 4 * arms + 4)


@pytest.mark.parametrize("name", EXHIBITS)
def test_every_exhibit_has_a_plan_whose_needs_come_first(name: str) -> None:
    plan = make_plan(name, "smoke", seeds=1)
    planned: set[str] = set()
    for job in plan.jobs:
        assert job.needs is None or job.needs in planned
        assert job.method in METHODS or job.stage == "scratch"
        planned.add(job.place)


def test_variants_are_told_apart() -> None:
    plan = make_plan("conflict", "lite", seeds=1)
    asked = {job.arm: job.command(Path("d")) for job in plan.jobs if job.stage == "pretrain"}
    assert asked["comsd-alpha-0.5-fixed"][-3:] == ["--method.alpha", "0.5", "--method.no-smw"]
    assert "--method.alpha" not in asked["comsd"]


def test_the_precision_is_that_of_all_trainings() -> None:
    plan = make_plan("behaviour", "lite", seeds=1, methods=["cic"], precision="bf16")
    asked = {job.stage: job.command(Path("d")) for job in plan.jobs}
    assert asked["pretrain"][-2:] == ["--precision", "bf16"]
    assert "--precision" not in asked["analyse"]
    with pytest.raises(InputError, match="precision is 'half'; allowed: float32, bf16"):
        comsd.reproduce("behaviour", precision="half")  # pyright: ignore[reportArgumentType]


def test_the_automatic_balance_is_a_row_that_can_be_asked_for() -> None:
    assert all(job.arm != "comsd-auto" for job in make_plan("finetuning", "lite", seeds=1).jobs)
    names = ["comsd", "comsd-auto", "cic"]
    plan = make_plan("behaviour", "lite", seeds=1, domains=["quadruped"], methods=names)
    asked = {job.arm: job.command(Path("d")) for job in plan.jobs if job.stage == "pretrain"}
    assert list(asked) == names
    assert asked["comsd-auto"][-2:] == ["--method.balance", "auto"]
    assert asked["comsd-auto"][:4] == ["pretrain", "comsd", "--env", "quadruped"]


def test_controllers_are_rows_on_the_same_skills() -> None:
    where: dict[str, Any] = {"domains": ["walker"], "methods": ["comsd"], "tasks": ["walker_stand"]}
    plan = make_plan("combination", "lite", seeds=1, **where)
    combined = {job.arm: job for job in plan.jobs if job.stage == "combine"}
    assert list(combined) == ["comsd", "comsd-discrete"]
    assert {job.needs for job in combined.values()} == {"pretrain/walker/comsd-1"}
    words = combined["comsd-discrete"].command(Path("d"))
    assert words[-2:] == ["--controller", "discrete"]
    one = make_plan("combination", "lite", seeds=1, controllers=["discrete"], **where)
    assert [job.arm for job in one.jobs] == ["comsd", "comsd-discrete"]


def test_the_paper_s_numbers_of_seeds_at_its_scale() -> None:
    for preset in ("paper", "literal"):
        numbers = {name: exhibit.seeds(preset) for name, exhibit in EXHIBITS.items()}
        assert numbers["finetuning"] == numbers["distance"] == 10
        assert numbers["combination"] == 6
        assert numbers["behaviour"] == 3  # the paper does not say
    assert {exhibit.seeds("lite") for exhibit in EXHIBITS.values()} == {3}
    whole = make_plan("combination", "paper", seeds=None, domains=["walker"], methods=["cic"])
    assert {job.seed for job in whole.jobs} == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("reproduce", "EXHIBIT is missing"),
        ("reproduce combination --controllers big", "controllers is 'big'; allowed: continuous"),
        ("reproduce behaviour --controllers discrete", "controllers are chosen where skills"),
        ("reproduce behaviour --domains maze-tree", "domains is 'maze-tree'; allowed: walker"),
        ("reproduce tableau", "exhibit is 'tableau'; allowed: finetuning"),
        ("reproduce pixels --tasks cheetah_fly", "tasks is 'cheetah_fly'"),
        ("reproduce finetuning --seeds 0", "seeds is 0; it must be at least 1"),
        ("reproduce finetuning --seeds x", "--seeds is 'x'; it must be a whole number"),
        ("reproduce finetuning --domains warker", "domains is 'warker' (did you mean 'walker'?)"),
        ("reproduce finetuning --methods cik", "methods is 'cik' (did you mean 'cic'?)"),
        ("reproduce finetuning --tasks walker_fly", "tasks is 'walker_fly'"),
        ("reproduce finetuning --domains walker --tasks hopper_hop", "tasks is 'hopper_hop'"),
        (
            "reproduce finetuning --preset big",
            "--preset is 'big'; allowed: paper, lite, smoke, literal",
        ),
        ("reproduce finetuning --jobs -1", "jobs is -1"),
        ("report nowhere", "directory nowhere is no run and holds none"),
        ("report", "DIR is missing"),
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
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", EXHIBITS)
def test_a_plan_trains_and_writes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a plan builds no trainer")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("comsd.runs.factory.make_trainer", fail)
    main(["reproduce", name, "--plan", "--preset", "lite", "--dir", "new"])
    assert "(an estimate from counted work)" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


# --- how long it takes ----------------------------------------------------------------------------

RATE = 96e9  # FLOPs per second of one core of the machine on which these times were measured


@pytest.mark.parametrize(
    ("job", "measured"),
    [
        (("pretrain", "comsd", "walker", "lite"), 300_000 / 190),
        (("pretrain", "comsd", "walker", "paper"), 2_000_000 / 2 * 0.73),
        (("pretrain", "comsd", "maze-tree", "lite"), 75),
    ],
)
def test_estimates_are_right_within_a_factor_of_two(
    job: tuple[str, str, str, str], measured: float
) -> None:
    assert measured / 2 < job_seconds(job_of(*job), RATE) < 2 * measured


def job_of(stage: str, method: str, env: str, preset: str) -> Job:
    return Job("place", stage, env, method, method, 1, preset)


def test_flops_of_an_update() -> None:
    assert 4 * step_work("comsd", "walker", "lite")[0] == pytest.approx(1.24e9, rel=0.15)
    assert 2 * step_work("comsd", "walker", "paper")[0] == pytest.approx(65.2e9, rel=0.15)
    assert 2500 * step_work("comsd", "maze-tree", "lite")[0] == pytest.approx(6e9, rel=0.25)


def test_every_robot_has_its_own_cost() -> None:
    seconds = [
        job_seconds(job_of("scratch", "task", f"{r}_run", "lite"), RATE)
        for r in ("cheetah", "walker")
    ]
    assert seconds[0] < seconds[1]
    combined = job_seconds(job_of("combine", "cic", "walker_run", "lite"), RATE)
    assert combined > 4 * seconds[1]  # 500,000 steps instead of 100,000
    words = ("combine", "walker_run", "cic-discrete", "cic", 1, "lite", None)
    chosen = Job("place", *words, ("--controller", "discrete"))
    assert job_seconds(chosen, RATE) < seconds[1]  # as many steps, fewer and smaller updates


def test_passes_beyond_one_per_row_are_counted() -> None:
    """DADS predicts for 100 other skills per row; LSD and METRA embed both ends of a step."""
    assert 4 * step_work("dads", "walker", "lite")[0] == pytest.approx(4.7e9, rel=0.15)
    without = step_work(None, "walker_run", "lite")[0]
    diayn, lsd, metra = (
        step_work(name, "walker", "lite")[0] - without for name in ("diayn", "lsd", "metra")
    )
    assert lsd == metra == pytest.approx(2 * diayn, rel=0.3)


def test_a_method_that_fails_is_not_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RunError("no features")

    step_work.cache_clear()
    monkeypatch.setattr(METHODS["diayn"], "embed", fail)
    with pytest.raises(RunError, match="no features"):
        step_work("diayn", "hopper", "smoke")


def test_the_rate_of_products_leaves_the_threads_as_they_were() -> None:
    threads = torch.get_num_threads()
    assert product_rate(256) > 1e8
    assert torch.get_num_threads() == threads


# --- execution ------------------------------------------------------------------------------------


def test_a_full_disk_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "smoke" / "pretrain" / "maze-tree-6" / "comsd-1"
    main(f"pretrain comsd --env maze-tree --preset smoke --skills 6 --seed 1 --run {place}".split())

    def full(_: object, name: str, __: bytes) -> None:
        raise OSError(28, "No space left on device", name)

    monkeypatch.setattr("comsd.files.Folder.write", full)
    code, _, err = call(f"report {tmp_path}", capsys)
    assert code == 1
    assert err.strip().endswith("No space left on device")
    assert "Traceback" not in err


def ends(root: Path) -> dict[Path, int]:
    """The last checkpoint of every run, and when it was written."""
    places = root.glob("*/*/*/checkpoints/0*/state.json")
    newest = {place.parents[2]: place for place in sorted(places)}
    return {run: place.stat().st_mtime_ns for run, place in newest.items()}


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in listed.split()]


def wait_until_gone(processes: list[int], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while alive := [process for process in processes if is_alive(process)]:
        assert time.monotonic() < limit, f"{alive} go on without their driver"
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_paper_s_table_end_to_end_through_kill_9(tmp_path: Path) -> None:
    words = "reproduce finetuning --preset smoke --domains walker --methods comsd cic --seeds 1"
    words += " --tasks walker_run"
    asked = command(*words.split(), "walker_flip", "--dir", str(tmp_path / "killed"))
    driver = subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    root = tmp_path / "killed" / "smoke"
    while len(list(root.glob("finetune/*/*/checkpoints/000000000800"))) < 2:
        assert driver.poll() is None
        time.sleep(0.05)
    workers = children(driver.pid)
    driver.send_signal(signal.SIGKILL)
    os.kill(workers[0], signal.SIGKILL)
    driver.wait()
    wait_until_gone(workers)  # the other one saves itself: nothing trains unseen
    before = {run: at for run, at in ends(root).items() if finished(run)}
    assert before
    subprocess.run(asked, check=True, capture_output=True)
    after = ends(root)
    assert len(after) == 2 + 4 + 2
    assert all(after[run] == at for run, at in before.items())
    assert all(finished(run) for run in after)

    calm = command(*words.split(), "--dir", str(tmp_path / "calm"))
    subprocess.run(calm, check=True, capture_output=True)
    tables = [
        table(tmp_path / name / "report" / "smoke-finetuning.csv") for name in ("killed", "calm")
    ]
    assert [row for row in tables[0] if row["row"] == "walker_run"] == tables[1]
    assert len(tables[0]) == 2 * 3
    page = (tmp_path / "killed" / "report" / "report.html").read_text()
    assert "return after 800 steps (Table I)" in page
    assert "<h2>Preset smoke</h2>" in page
    assert "paper 450 ± 19" in page
    assert "skill rules: cic fixed, comsd fixed" in page
    assert 'src="data:image/png;base64,' in page
    assert "http" not in page

    kept = tmp_path / "kept"
    main(f"report {tmp_path / 'calm'} --keep {kept}".split())
    main(f"report {tmp_path / 'killed'} --keep {kept}".split())  # more of the same exhibit
    assert not [*kept.rglob("agent.safetensors"), *kept.rglob("replay*")]
    pages = [write_report(path) for path in (tmp_path / "killed", kept)]
    same = [page.with_name("smoke-finetuning.csv").read_bytes() for page in pages]
    assert same[0] == same[1]
    assert pages[0].read_text() == pages[1].read_text()
    assert Run(kept / "smoke" / "finetune" / "walker_run" / "cic-1").finished
    chosen: dict[str, Any] = {
        "domains": ["walker"],
        "methods": ["cic"],
        "tasks": ["walker_run", "walker_stand"],
    }
    plan = not_kept(make_plan("finetuning", "smoke", seeds=1, **chosen), kept)
    assert [job.place for job in plan.jobs] == [
        "pretrain/walker/cic-1",  # again: it was kept without weights
        "finetune/walker_stand/cic-1",
        "scratch/walker_stand/ddpg-1",
    ]
    with pytest.raises(InputError, match="which holds no runs of preset lite"):
        not_kept(make_plan("finetuning", "lite", seeds=1, **chosen), kept)
    assert not [path for path in kept.rglob("*.json") if str(tmp_path) in path.read_text()]


def finished(run: Path) -> bool:
    steps = json.loads((run / "config.json").read_text())["config"]["run"]["steps"]
    return (run / "checkpoints" / f"{steps:012d}").exists()


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_maze_exhibit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "reproduce maze --preset smoke --methods comsd diayn --seeds 1 --dir"
    main([*asked.split(), str(tmp_path), "--plan"])
    assert "4 jobs" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    main([*asked.split(), str(tmp_path)])
    rows = table(tmp_path / "report" / "smoke-maze.csv")
    assert {row["arm"] for row in rows} == {"comsd", "diayn"}
    assert {row["row"].split(":")[0] for row in rows} == {"maze-tree-6", "maze-tree-10"}
    main(["report", str(tmp_path), "--keep", str(tmp_path / "kept")])
    main(["report", str(tmp_path / "kept")])  # draws no skills: it has no policies
    assert table(tmp_path / "kept" / "report" / "smoke-maze.csv") == rows


def test_unfinished_runs_are_named_and_not_counted(tmp_path: Path) -> None:
    place = tmp_path / "smoke" / "pretrain" / "maze-tree-6" / "comsd-1"
    main(f"pretrain comsd --env maze-tree --preset smoke --skills 6 --seed 1 --run {place}".split())
    record = json.loads((place / "config.json").read_text())
    del record["seal"]  # of what is edited here
    record["config"]["run"]["steps"] = 10**6
    (place / "config.json").write_text(json.dumps(record))
    page = write_report(tmp_path).read_text()
    assert "Not counted: pretrain/maze-tree-6/comsd-1 (unfinished)" in page
    record["config"]["run"] |= {"steps": 2000, "seed": 2}
    (place / "config.json").write_text(json.dumps(record))
    assert "comsd-1 (its config says otherwise)" in write_report(tmp_path).read_text()
    (place / "config.json").write_text("{")
    assert "comsd-1 (" in (page := write_report(tmp_path).read_text())
    assert "config.json is damaged" in page


def test_kept_runs_are_what_the_runs_are_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        tmp_path / "smoke" / "pretrain" / "maze-tree-6" / f"comsd-{seed}" for seed in (1, 2)
    )
    words = "pretrain comsd --env maze-tree --preset smoke --skills 6 --seed 1 --run"
    main([*words.split(), str(first)])
    shutil.copytree(first, second)
    record = json.loads((second / "config.json").read_text())
    del record["seal"]
    record["config"]["run"]["seed"] = 2
    (second / "config.json").write_text(json.dumps(record))
    (first / "analysis").mkdir()
    about = {"step": 2000, "metrics": {}, "starts": 12}
    (Folder(first) / "analysis").write_sealed("analysis.json", about)
    # Images of two qualities: a report shows one, the copies are of both.
    images = property(lambda r: SimpleNamespace(render=f"way {r.seed}", size=1))
    monkeypatch.setattr(FinishedRun, "images", images)
    kept = tmp_path / "kept"
    keep_runs(tmp_path, kept)
    places = sorted(kept.glob("smoke/*/*/*"))
    assert [place.name for place in places] == ["comsd-1", "comsd-2"]
    assert (places[0] / "analysis" / "analysis.json").exists()
    assert "comsd-2 (pixels.render is way 2" in write_report(kept).read_text()
    # Trained anew and not analysed since; a table that is damaged.
    shutil.rmtree(first / "analysis")
    (second / "evaluations.csv").write_text("step\n")
    with pytest.warns(UserWarning, match="not kept: pretrain/maze-tree-6/comsd-2 "):
        keep_runs(tmp_path, kept)
    assert not (places[0] / "analysis" / "analysis.json").exists()
    assert "evaluations.csv is damaged" in write_report(tmp_path).read_text()


# --- the paper's numbers --------------------------------------------------------------------------


def test_the_published_tables_are_whole() -> None:
    values = paper_values("finetuning")["values"]
    assert set(values) == set(TASKS)
    assert all(len(row) == 7 for row in values.values())
    assert values["walker_walk"]["comsd"] == [918, 32]
    assert values["hopper_flip_backward"]["cic"] == [154, 70]
    distance = paper_values("distance")["values"]
    assert len(distance) == 8
    assert all(distance[task]["comsd"] == values[task]["comsd"] for task in distance)
    assert paper_values("behaviour")["values"]["akd_range_constant"]["comsd"] == [9.4, None]


def test_an_unknown_exhibit_is_an_input_error() -> None:
    with pytest.raises(InputError, match="allowed: finetuning"):
        find_exhibit("figure")


# --- what skills do -------------------------------------------------------------------------------


def analysed(env: str, arm: str, seed: int, rho: float) -> FinishedRun:
    """A run that has been analysed, without the run."""
    analysis = {
        "metrics": {"akd_max_constant": 9.0, "activity_0": 8.0, "activity_rho": rho}
        | {"identification": 0.4},
        "intervals": {"activity_0": [7.0, 9.0], "activity_rho": [rho - 0.1, rho + 0.1]},
        "untrained": {"identification": 0.05},
        "random": {"identification": 0.03},
        "starts": 12,
        "steps": 500,
    }
    config = resolve("comsd", env, "smoke", seed=seed)
    opened = SimpleNamespace(config=config, source=None, pretrains=True)
    run = FinishedRun("pretrain", env, arm, seed, cast(Run, opened))
    run.__dict__["analysis"] = analysis
    return run


def adapted(env: str, arm: str, seed: int, **settings: Any) -> FinishedRun:
    """A run on a task with a return, without the run."""
    config = resolve("task", env, "smoke", "scratch" if arm == "ddpg" else "finetune", **settings)
    opened = SimpleNamespace(config=config, source=None, pretrains=False)
    stage = config.run.stage
    run = FinishedRun(stage, env, arm, seed, cast(Run, opened))
    run.__dict__["rows"] = [{"step": "0", "return": "1.5"}]
    return run


def test_notes_are_of_the_runs_in_the_table_and_say_which_are_unlike() -> None:
    runs = [adapted("walker_run", "comsd", seed, steps=100) for seed in (1, 2)]
    runs += [adapted("walker_run", "metra", 1, steps=200, precision="bf16")]
    runs += [adapted("walker_run", "ddpg", 1, steps=777)]  # no arm of Table II
    section = make_section("distance", "finetune", runs)
    assert section is not None
    assert section.title == EXHIBITS["distance"].title  # there is no one number of steps
    assert "steps of adaptation: 100 (comsd), 200 (metra)" in section.notes
    assert "precision: float32 (comsd), bf16 (metra)" in section.notes
    assert not [note for note in section.notes if "777" in note or "settings differ" in note]
    runs += [adapted("walker_run", "comsd", 3, steps=100, precision="bf16")]
    section = make_section("distance", "finetune", runs)
    assert section is not None
    unlike = "settings differ between the runs of comsd on walker_run: run.precision"
    assert unlike in section.notes


def test_the_behaviour_exhibit_shows_activity_and_baselines_with_intervals() -> None:
    runs = [analysed("walker", "comsd", seed, -0.7 - 0.1 * seed) for seed in (1, 2, 3)]
    runs += [analysed("hopper", "comsd-auto", 1, -0.2)]
    section = make_section("behaviour", "analyse", runs)
    assert section is not None
    cells = {(cell.row, cell.arm): cell for cell in section.cells}
    rho = cells["walker: rho (flag, AKD)", "comsd"]
    assert (rho.n, rho.mean) == (3, pytest.approx(-0.9))
    assert rho.low is not None
    assert cells["walker: A(0)", "comsd"].mean == 8
    assert cells["walker: identification, untrained policy", "comsd"].mean == pytest.approx(0.05)
    assert cells["walker: identification, random actions", "comsd"].mean == pytest.approx(0.03)
    assert cells["walker: AKD maximum", "comsd"].paper_mean == 9.5
    assert cells["hopper: AKD maximum", "comsd-auto"].paper_mean is None  # Fig. 7 is of Walker
    one = next(m for m in section.measured if (m.env, m.figure) == ("hopper", "rho (flag, AKD)"))
    assert (one.value, one.low, one.high, one.starts) == (-0.2, -0.2 - 0.1, -0.2 + 0.1, 12)
    assert "| walker, comsd, seed 1 | 8 [7, 9] |" in measured_markdown(section)
    assert "per skill 12 starts of 500 steps" in section.notes


def test_an_analysis_from_single_roll_outs_does_not_count(tmp_path: Path) -> None:
    run = tmp_path / "maze"
    main(f"pretrain comsd --env maze-tree --preset smoke --skills 6 --seed 1 --run {run}".split())
    step = json.loads((run / "config.json").read_text())["config"]["run"]["steps"]
    (run / "analysis").mkdir()
    folder = Folder(run) / "analysis"
    job = Job("maze/analysis", "analyse", "maze-tree", "comsd", "comsd", 1, "smoke", "maze")
    for about, counts, usual in (
        ({"starts": 12}, True, True),
        ({"starts": 1}, False, False),
        ({"starts": 2, "usual": False}, True, False),  # a quick look is no result of an exhibit
    ):
        folder.write_sealed("analysis.json", {"step": step, "metrics": {}, **about})
        assert (read_analysis(run) is not None) == counts
        assert job.finished(tmp_path) == usual
    main(f"analyse {run} --starts 2 --steps 5 --skills 2".split())
    assert read_analysis(run) is not None
    assert not job.finished(tmp_path)
