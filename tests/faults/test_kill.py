"""kill -9 at any change of a file and at any time, in every kind of run: the end is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from comsd.envs import rendering
from faults.attack import (
    LONG,
    SEED,
    ask,
    check,
    count_changes,
    die_at,
    fingerprint,
    finish,
    is_alive,
    snapshot,
    start,
    times,
)
from faults.conftest import Count

# An action acts for 8 steps, so an episode ends after 125 of them; the replay keeps 90, of the last
# two episodes, and files of 12 or 13.
IMAGES = (
    "pretrain comsd --env hopper --pixels --pixels.size 16 --pixels.repeat 8 --preset smoke "
    "--skills 4 --train.hold 20 --train.replay 90 --steps 1400 --checkpoint-every 100 "
    "--snapshots 350,1001 "
    "--log-every 200 --evaluate-every 1400 --rollout-steps 20"
)
COMMANDS = {
    "pretrain, PPO": "pretrain comsd --env maze-tree --preset smoke --skills 3 "
    "--checkpoint-every 500 --snapshots 400,1500",
    "pretrain, DDPG": "pretrain comsd --env maze-tree --agent ddpg --preset smoke --skills 3 "
    "--steps 800 --checkpoint-every 100 --log-every 100 --evaluate-every 400 "
    "--snapshots 150,333,800",
    "finetune": "finetune SOURCE --task hopper_hop --rule best-of-k --steps 600 "
    "--checkpoint-every 100 --evaluate-every 600 --snapshots 450",
    "combine": "combine SOURCE --task hopper_hop --hold 3 --skill-noise --steps 300 "
    "--checkpoint-every 100",
    "combine, discrete": "combine SOURCE --task hopper_hop --controller discrete "
    "--train.batch-size 8 --steps 400 --checkpoint-every 100",
    "finetune --scratch": "finetune --scratch --task hopper_hop --preset smoke --steps 600 "
    "--checkpoint-every 100 --evaluate-every 600",
    "pretrain, images in files": f"{IMAGES} --pixels.memory 0",
    "pretrain, images in memory": IMAGES,
}
QUICK = [*list(COMMANDS)[:4], "pretrain, images in files"]


def go_on(run: Path, words: list[str]) -> list[object]:
    """What a person types after a crash."""
    return ["resume", run] if (run / "config.json").exists() else [*words, "--run", run]


@pytest.mark.parametrize("kind", COMMANDS if LONG else QUICK)
def test_a_killed_run_ends_as_if_nothing_had_been(
    kind: str, robot: Path, tmp_path: Path, count: Count
) -> None:
    """Each run dies twice: at a change of its files or at any time, and again when it goes on."""
    if "images" in kind and rendering.first_working() is None:
        pytest.skip("`comsd doctor` finds no OpenGL here")
    words = COMMANDS[kind].replace("SOURCE", str(robot)).split()
    whole, counter, log = tmp_path / "whole", tmp_path / "counter", tmp_path / "log"
    began = time.monotonic()
    process = start(*words, "--run", whole, log=log, prepare=count_changes, given=(whole, counter))
    check(finish(process, log))
    seconds, changes = time.monotonic() - began, len(counter.read_bytes())
    assert changes > 30
    wanted, kept = fingerprint(whole), snapshot(whole / "snapshots")
    assert bool(kept) == ("--snapshots" in words)
    rng = np.random.default_rng([SEED, list(COMMANDS).index(kind)])
    for trial in range(times(1, 9)):
        run = tmp_path / f"killed-{trial}"
        for life in range(2):
            at_any_time = (trial + life) % 3 == 2
            moment = int(rng.integers(changes if life == 0 else changes // 3))
            if at_any_time:
                process = start(*go_on(run, words), log=log)
                time.sleep(float(rng.uniform(0, seconds)))
                process.kill()
            else:
                asked = go_on(run, words)
                process = start(*asked, log=log, prepare=die_at, given=(run, moment))
            process.join()
            assert process.exitcode in (-signal.SIGKILL, 0), log.read_text()
            count(f"kill -9, {kind}", "came too late" if process.exitcode == 0 else "killed")
        check(ask(*go_on(run, words)))
        assert fingerprint(run) == wanted, f"trial {trial} of {kind}"
        assert snapshot(run / "snapshots") == kept, f"trial {trial} of {kind}"


@pytest.mark.skipif(not LONG, reason="tests/test_reproduce.py kills a driver and a worker")
def test_a_killed_reproduction_ends_with_the_same_report(tmp_path: Path, count: Count) -> None:
    words = "reproduce maze --preset smoke --methods diayn --seeds 2 --jobs 2"
    command = [sys.executable, "-m", "comsd", *words.split(), "--dir"]
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    began = time.monotonic()
    subprocess.run([*command, str(calm)], check=True, capture_output=True)
    seconds, rng = time.monotonic() - began, np.random.default_rng(SEED)
    for trial in range(8):
        driver = subprocess.Popen(
            [*command, str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(float(rng.uniform(1, seconds / 2)))
        listed = Path(f"/proc/{driver.pid}/task/{driver.pid}/children")
        workers = [int(word) for word in listed.read_text().split()] if listed.exists() else []
        for worker in workers if trial % 2 else ():
            os.kill(worker, signal.SIGKILL)
            count("kill -9, worker of reproduce", "killed")
        driver.kill()
        ended = driver.wait()
        count("kill -9, reproduce", "killed" if ended == -signal.SIGKILL else "came too late")
        limit = time.monotonic() + 60
        while any(map(is_alive, workers)):
            assert time.monotonic() < limit, "a run goes on without its driver"
            time.sleep(0.05)
    subprocess.run([*command, str(killed)], check=True, capture_output=True)
    figures = [place / "report" / "smoke-maze.csv" for place in (calm, killed)]
    assert figures[0].read_text() == figures[1].read_text()
