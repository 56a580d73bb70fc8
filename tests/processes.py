"""What the tests of runs share: small runs, real processes that die, what makes runs equal."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from comsd import checkpoint
from comsd.cli import main
from comsd.replay import COLUMNS
from comsd.runs.run import Run
from comsd.training.off_policy import OffPolicyTrainer

SMALL: dict[str, Any] = {
    "env": "hopper",
    "preset": "smoke",
    "skills": 8,
    "steps": 1600,
    "checkpoint_every": 100,
    "log_every": 100,
    "evaluate_every": 10**6,
}


def options_of(settings: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "comsd", *argv]


def call(argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """What a command answers, in this process: exit code, output, errors."""
    code = 0
    capsys.readouterr()
    try:
        main(argv.split())
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def start(run: Path, settings: dict[str, Any] = SMALL) -> subprocess.Popen[bytes]:
    asked = command("pretrain", "comsd", *options_of(settings), "--run", str(run))
    return subprocess.Popen(asked, stderr=subprocess.DEVNULL)


def resume(run: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command("resume", str(run)), stderr=subprocess.DEVNULL)


def newest(run: Path) -> str:
    return max((p.name for p in checkpoint.found(run / "checkpoints")), default="")


def fingerprint(path: Path) -> str:
    """Hash of networks, optimisers, generators, simulator, replay and tables without times."""
    run = Run(path)
    learner = run.trainer()
    assert isinstance(learner, OffPolicyTrainer)
    run.restore(learner)
    state = learner.state_dict()
    state["replay"].pop("chunks")  # where it is cut depends on when it was saved
    tensors: dict[str, torch.Tensor] = {}
    tree = checkpoint.pack(state, "", tensors)
    total = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name in COLUMNS:
        tensors[name] = torch.from_numpy(getattr(learner.replay, name))
    for name, tensor in sorted(tensors.items()):
        total.update(name.encode() + tensor.numpy().tobytes())
    for table in (run.metrics, run.evaluations):
        for row in csv.DictReader(table.path.open()):
            kept = {k: v for k, v in row.items() if k != "seconds"}
            total.update(json.dumps(kept).encode())
    return total.hexdigest()
