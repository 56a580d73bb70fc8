"""Every file of a run, damaged in every way: what is read from it is as it was, or is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from comsd.runs import Run
from faults.attack import LONG, SEED, ask, check, copy, fingerprint, times
from faults.conftest import Count

Damage = Callable[[Path, np.random.Generator], None]


def flip(file: Path, rng: np.random.Generator) -> None:
    """One bit."""
    content = bytearray(file.read_bytes())
    if content:
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)


def truncate(file: Path, rng: np.random.Generator) -> None:
    os.truncate(file, int(rng.integers(max(1, file.stat().st_size))))


def delete(file: Path, _: np.random.Generator) -> None:
    file.unlink()


def empty(file: Path, _: np.random.Generator) -> None:
    file.write_bytes(b"")


def garbage(file: Path, rng: np.random.Generator) -> None:
    file.write_bytes(rng.bytes(int(rng.integers(1, 4096))))


def not_text(file: Path, rng: np.random.Generator) -> None:
    """Bytes that are no UTF-8, inside what was there."""
    content = file.read_bytes()
    at = int(rng.integers(len(content) + 1))
    file.write_bytes(content[:at] + b"\xff\xfe\x80" + content[at:])


def append(file: Path, rng: np.random.Generator) -> None:
    with file.open("ab") as opened:
        opened.write(rng.bytes(20))


def directory(file: Path, _: np.random.Generator) -> None:
    file.unlink()
    file.mkdir()


def pipe(file: Path, _: np.random.Generator) -> None:
    """Who opens it to read waits for ever."""
    file.unlink()
    os.mkfifo(file)


DAMAGES: list[Damage] = [
    flip, truncate, delete, empty, garbage, not_text, append, directory, pipe,
]  # fmt: skip


def results(run: Path) -> str:
    """The figures of `comsd evaluate`, without the place of the picture."""
    answer = ask("evaluate", run, "--json")
    assert check(answer) == "done", answer.err
    return figures(answer.out)


def figures(printed: str) -> str:
    return json.dumps({k: v for k, v in json.loads(printed).items() if k != "picture"})


@cache
def truth(run: Path) -> tuple[dict[int, str], str]:
    """What evaluations of each checkpoint find, and what the run is."""
    newest = Run(run).reached
    found = {newest: results(run)}
    older = copy(run, run.with_name(f"{run.name}-older"))
    places = sorted((older / "checkpoints").glob("[0-9]" * 12))
    (places[-1] / "state.json").unlink()
    found[int(places[0].name)] = results(older)
    return found, fingerprint(run)


def files_of(run: Path) -> list[Path]:
    """What results are read from: not the pictures, nor the lock."""
    found = [path.relative_to(run) for path in sorted(run.rglob("*")) if path.is_file()]
    return [path for path in found if path.suffix != ".png" and path.name != "lock"]


def attack(run: Path, name: Path, damage: Damage, rng: np.random.Generator, to: Path) -> list[str]:
    """Evaluate and resume a copy of a run after one of its files was damaged."""
    known, wanted = truth(run)
    copied = copy(run, to)
    damage(copied / name, rng)
    asked = f"{damage.__name__} {name}"
    answer = ask("evaluate", copied, "--json")
    ends = [check(answer, asked)]
    if ends[0] == "done":
        step = json.loads(answer.out)["step"]
        assert figures(answer.out) == known[step], f"{asked}: other figures than before"
        if step != max(known):
            assert "using the checkpoint before it" in answer.err, asked
    answer = ask("resume", copied)
    ends.append(check(answer, asked))
    if ends[1] == "done":
        assert fingerprint(copied) == wanted, f"{asked}: another run than before"
        again = results(copied)
        assert again == known[max(known)], f"{asked}: other figures after resume"
    return ends


@pytest.mark.parametrize("kind", ["ppo", "ddpg", "tuned"] if LONG else ["ppo", "ddpg"])
def test_damage_is_noticed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, count: Count
) -> None:
    run: Path = (
        request.getfixturevalue("tuned")
        if kind == "tuned"
        else request.getfixturevalue("runs")[kind]
    )
    rng = np.random.default_rng([SEED, len(kind)])
    cases = [(name, damage) for name in files_of(run) for damage in DAMAGES]
    wanted = times(14, 175)
    rounds = -(-wanted // len(cases))  # a small run has fewer: then other bits and lengths
    chosen = np.concatenate([rng.permutation(len(cases)) for _ in range(rounds)])[:wanted]
    for name, damage in (cases[i] for i in sorted(chosen)):
        for end in attack(run, name, damage, rng, tmp_path / "run")[:1]:
            count(f"corruption, {damage.__name__}", end)
