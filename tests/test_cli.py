"""The command line: what it answers, and that it never answers with a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import comsd
from comsd import checkpoint
from comsd.cli import main
from comsd.config import whole_number
from comsd.registry import ENVS, METHODS
from processes import call

SMOKE = "--env maze-tree --preset smoke --skills 3"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    main(f"pretrain comsd {SMOKE} --run {path}".split())
    return path


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("train", "command is 'train' (did you mean 'pretrain'?)"),
        ("pretrain", "method is missing"),
        ("pretrain cosmd", "(did you mean 'comsd'?); allowed: comsd, cic, diayn, "),
        ("pretrain comsd --env maze-tee", "env is 'maze-tee' (did you mean 'maze-tree'?)"),
        ("pretrain comsd --env", "--env needs a value"),
        ("pretrain comsd", "--env is missing; allowed: maze-tree"),
        ("pretrain comsd --method.smw=false", "is a switch and takes no value like 'false'"),
        ("pretrain comsd --threads 100000", "threads is 100000; it must be between 1 and 1024"),
        ("pretrain comsd --preset huge", "preset is 'huge'; allowed: paper, lite, smoke, literal"),
        ("pretrain comsd --alpha 1", "did you mean '--method.alpha'"),
        ("pretrain comsd --method.alpha", "--method.alpha needs a value"),
        ("pretrain comsd --method.alpha x", "--method.alpha is 'x'; it must be a number"),
        ("pretrain comsd --method.alpha -1", "method.alpha is -1.0; it must be at least 0"),
        ("pretrain comsd --method.alpha nan", "method.alpha is nan; it must be a finite number"),
        ("pretrain comsd --method.knn z", "allowed: embedding, trajectory, observation"),
        ("pretrain comsd --method.f-low 1", "f_low must be less than f_high"),
        ("pretrain comsd --method.no-diversity --method.no-exploration", "both be off"),
        ("pretrain comsd --skills 1", "skills is 1; it must be at least 2"),
        ("pretrain comsd --skills 0", "skills is 0; it must be at least 2"),
        ("pretrain comsd --skills -3", "skills is -3; it must be at least 2"),
        ("pretrain comsd --skills 2.5", "--skills is '2.5'; it must be a whole number"),
        ("pretrain comsd --steps 0", "steps is 0; it must be at least 1"),
        ("pretrain comsd --steps 1.5", "--steps is '1.5'; it must be a whole number"),
        ("pretrain comsd --steps 15e-1", "--steps is '15e-1'; it must be a whole number"),
        ("pretrain comsd --steps 1e999999999", "--steps is '1e999999999'; it must be a whole"),
        ("pretrain comsd --steps 1e20", "steps is 100000000000000000000; it must be at most 1"),
        ("pretrain comsd --steps nan", "--steps is 'nan'; it must be a whole number"),
        ("pretrain comsd --agent.clip 0", "agent.clip is 0.0; it must be greater than 0"),
        ("pretrain comsd --agent.discount 2", "it must be between 0 and 1"),
        ("pretrain comsd --device tpu", "device is 'tpu'; allowed: cpu, cuda, cuda:N"),
        ("pretrain diayn --space box", "space is 'box'; allowed for diayn: one-hot"),
        ("pretrain cic --method.denominator constant", "which has no effect on one-hot skills"),
        (
            "pretrain cesd --env maze-tree --method.outside credit",
            "method.outside is 'credit', but PPO can only",
        ),
        (
            "pretrain cesd --env maze-tree --method.outside credit",
            "teach the skill that acted; allowed: nothing",
        ),
        ("pretrain comsd --env maze-tree --run /proc/nothing/here", "cannot be created"),
        ("pretrain comsd stray", "'stray' is one word too many"),
        ("pretrain comsd --env walker --env hopper", "--env is given twice"),
        ("pretrain comsd --preset smoke --preset=paper", "--preset is given twice"),
        ("pretrain comsd --seed 1 --seed 2", "--seed is given twice"),
        ("pretrain comsd --method.smw False", "--method.no-smw turns it off"),
        ("pretrain comsd --nothing 1", "there is no option '--nothing'; --help lists all"),
        (
            "pretrain comsd --env maze-tree --preset smoke --method.k 500",
            "at most 499 (500 states of a cycle",
        ),
        ("config nothing", "method is 'nothing'"),
        ("resume", "RUN is missing"),
        ("resume nowhere", "nowhere is not a run directory"),
        ("resume nowhere --step 1", "(did you mean '--steps'?); allowed: --steps"),
        ("evaluate nowhere", "nowhere is not a run directory"),
        ("evaluate nowhere --jsn", "(did you mean '--json'?)"),
        ("methods all", "takes none"),
        ("envs --all", "takes none"),
    ],
)
def test_bad_input_is_one_sentence(
    argv: str,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(argv, capsys)
    assert code == 2
    assert expected in err
    assert err.startswith("comsd: ")
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_an_existing_run_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(f"pretrain comsd {SMOKE} --run {finished}", capsys)
    assert code == 2
    assert "never overwritten" in err


def test_a_damaged_run_is_a_failure_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    call(f"pretrain comsd {SMOKE} --run {run}", capsys)
    for place in checkpoint.found(run / "checkpoints"):
        (place / "agent.safetensors").write_bytes(b"not a tensor")
    code, _, err = call(f"evaluate {run}", capsys)
    assert code == 1
    assert "agent.safetensors is damaged" in err
    (run / "config.json").write_text("{")
    code, _, err = call(f"resume {run}", capsys)
    assert code == 1
    assert "config.json is damaged" in err


def test_evaluate_prints_a_table_and_draws(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(f"evaluate {finished}", capsys)
    assert code == 0
    assert "occupancy entropy" in out
    assert "random" in out
    picture = finished / "skills.png"
    assert str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_evaluate_prints_json(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(f"evaluate {finished} --json", capsys)
    assert code == 0
    record = json.loads(out)
    assert set(record) == {"metrics", "intervals", "untrained", "random"} | {
        "picture",
        "step",
        "steps",
    }
    assert record["metrics"].keys() == record["random"].keys()
    again = json.loads(call(f"evaluate {finished} --json", capsys)[1])
    assert again == record  # the same rollouts every time
    picture = Path(record["picture"]).read_bytes()
    greedy = json.loads(call(f"evaluate {finished} --json --greedy", capsys)[1])
    assert greedy["metrics"] != record["metrics"]
    assert Path(greedy["picture"]).read_bytes() != picture


def test_the_papers_claim_is_shown_where_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    call(f"pretrain comsd --env maze-tree --preset smoke --skills 6 --run {run}", capsys)
    assert "at least 0.93" in call(f"evaluate {run}", capsys)[1]


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call("methods", capsys)
    assert all(name in out for name in METHODS)
    _, out, _ = call("envs", capsys)
    assert all(name in out for name in ENVS)


def test_config_shows_the_source_of_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call("config comsd --env maze-tree --method.alpha 0.3 --agent.lr=1e-4", capsys)
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "0.3" in lines["method.alpha"]
    assert "you" in lines["method.alpha"]
    assert "authors' maze code" in lines["method.hidden"]
    assert "you" in lines["agent.lr"]
    assert "6250000" in lines["steps"]
    _, out, _ = call("config comsd --env maze-tree --preset lite", capsys)
    assert "1250000" in out


@pytest.mark.parametrize(
    ("word", "number"), [("1e5", "100000"), ("1.5E+4", "15000"), ("100_000", "100000")]
)
def test_whole_numbers_may_be_written_shortly(
    word: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = call(f"config comsd --env maze-tree --steps {word}", capsys)
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["steps"][1:3] == [number, "you"]


def test_whole_numbers_are_exact_to_the_last_digit() -> None:
    assert whole_number("9007199254740993e0") == 2**53 + 1  # which no float is


@pytest.mark.parametrize("argv", ["--help", "pretrain --help", "pretrain diayn --help",
                                   "evaluate --help", "resume --help", "config cic --help",
                                   "methods --help", "analyse --help",
                                   "doctor --help", "check --help"])  # fmt: skip
def test_help_is_everywhere(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(argv, capsys)
    assert code == 0
    assert "comsd" in out


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_help_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = call("pretrain comsd --env walker --help", capsys)
    _, _, options = out.partition("\n  --run")
    assert max(map(len, options.splitlines())) <= min(columns, 100)
    text = " ".join(options.split())
    assert "--skills INT number of skills, or of dimensions of the skill (default: 64;" in text
    assert "--method.smw, --method.no-smw dynamic weighting;" in text


@pytest.mark.parametrize("env", ENVS)
def test_every_environment_trains(
    env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(
        f"pretrain comsd --env {env} --preset smoke --skills 3 --run {tmp_path / 'run'}", capsys
    )
    assert (code, "Traceback" in err) == (0, False)


@pytest.mark.parametrize("space", ["box", "sphere"])
def test_other_skill_spaces_train(
    space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    argv = f"pretrain comsd --env maze-tree --preset smoke --space {space} --skills 4 --run {run}"
    assert call(argv, capsys)[0] == 0
    assert call(f"evaluate {run}", capsys)[0] == 0


def test_training_goes_on_when_nobody_listens(tmp_path: Path) -> None:
    command = f"{sys.executable} -m comsd pretrain comsd {SMOKE} --run {tmp_path / 'run'}"
    subprocess.run(["bash", "-c", f"{command} 2> >(head -c 5 > /dev/null)"], check=True)
    assert checkpoint.found(tmp_path / "run" / "checkpoints")


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m comsd config comsd | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "allowed"),
    [
        (["--help"], set[str]()),
        (["--version"], set[str]()),
        (["methods"], {"torch"}),
        (["envs"], {"torch"}),
        (["config", "comsd", "--env", "walker"], {"torch"}),
        (["pretrain", "comsd", "--env", "walker", "--help"], {"torch"}),
    ],
)
def test_a_command_loads_no_more_than_it_needs(argv: list[str], allowed: set[str]) -> None:
    """A second for torch, half of one for SciPy, a fifth for MuJoCo."""
    script = f"""
import sys
from comsd.cli import main
try:
    main({argv!r})
except SystemExit:
    pass
print("loaded", {{"torch", "scipy", "mujoco", "dm_control", "matplotlib"}} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"loaded {allowed or set()}"


def test_the_package_has_its_names_without_loading_them() -> None:
    script = "import sys, comsd; print('torch' in sys.modules, set(comsd.__all__) <= {*dir(comsd)})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
    assert all(getattr(comsd, name) is not None for name in comsd.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = comsd.nothing
