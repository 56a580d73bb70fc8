"""Run directories as a stranger may write them: any value anywhere, with checksums that match."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from comsd import checkpoint
from faults.attack import LONG, SEED, ask, check, copy, restore_torch, times
from faults.conftest import Count

VALUES = st.one_of(
    st.sampled_from(
        [
            None, True, 0, -1, 1, 2.5, 10**9, 10**19, 10**30, 10**400, -(10**30), 1e308, "", "x",
            "/etc/passwd", "../../x", "\x1b[2J", "=1+1", "\ud800", "cpu", "cuda", "ppo", "walker",
            [], {}, [[]], {"$tensor": "agent/x"}, {"$chunk": "../../x"}, float("nan"), float("inf"),
        ]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)  # fmt: skip
EASY = {"steps", "rollouts"}  # that take long if they are large and the machine can do it


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON tree."""
    if path:
        yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:3])
    for key, value in items if isinstance(tree, (dict, list)) else ():
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


def changed(tree: Any, path: tuple[Any, ...], value: Any, how: str) -> None:
    """Put a value at a place, remove the place, or add another beside it."""
    for key in path[:-1]:
        tree = tree[key]
    if how == "remove":
        del tree[path[-1]]
    elif how == "add" and isinstance(tree, dict):
        tree[str(value)[:20]] = value
    else:
        tree[path[-1]] = value


def seal(record: dict[str, Any], key: str) -> None:
    """With the checksum that a stranger would compute."""
    if key in record:
        record.pop(key)
        try:
            content = json.dumps(record, sort_keys=True).encode()
        except UnicodeEncodeError:
            return
        record[key] = checkpoint.checksum(content)


def write(file: Path, record: Any) -> None:
    try:
        file.write_text(json.dumps(record), encoding="utf-8", errors="surrogatepass")
    except RecursionError:
        file.write_text("[" * 100_000)


@pytest.mark.parametrize("what", ["config", "checkpoint"])
def test_a_crafted_run_is_used_or_refused(
    what: str, runs: dict[str, Path], tmp_path: Path, count: Count
) -> None:
    known = {}
    for kind, run in runs.items():
        last = max((run / "checkpoints").glob("[0-9]" * 12)).relative_to(run)
        known[kind] = Path("config.json") if what == "config" else last / "state.json"
    trees = {kind: json.loads((runs[kind] / name).read_text()) for kind, name in known.items()}
    ways = {kind: sorted(places(tree), key=str) for kind, tree in trees.items()}

    restore_torch()

    @seed(SEED)
    @settings(
        max_examples=times(20, 160),
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(data=st.data())
    def attack(data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(sorted(runs)))
        run = copy(runs[kind], tmp_path / "run")
        record = json.loads((run / known[kind]).read_text())
        for _ in range(data.draw(st.integers(1, 2))):
            how = data.draw(st.sampled_from(["put", "put", "put", "remove", "add"]))
            way, value = data.draw(st.sampled_from(ways[kind])), data.draw(VALUES)
            if how == "put" and way[-1] in EASY and isinstance(value, int):
                value = min(value, 2000)
            try:
                changed(record, way, value, how)
            except (KeyError, IndexError, TypeError):  # the second change after the first
                continue
        seal(record, "seal" if what == "config" else "checksum")
        write(run / known[kind], record)
        verb: Callable[[], list[object]] = data.draw(
            st.sampled_from([lambda: ["evaluate", run], lambda: ["resume", run]])
        )
        words = verb()
        answer = ask(*words, stop_after=10)
        count(f"crafted {what}", check(answer, f"{words[0]} {kind}: {json.dumps(record)[:3000]}"))

    attack()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        "0",
        '""',
        "{}",
        "[" * 100_000,
        '{"config": 1}',
        "{\x00}",
        '{"a": 1e999}',
        "\ufeff{}",
    ],
    ids=range(10),
)
@pytest.mark.parametrize("name", ["config.json", "state.json"] if LONG else ["config.json"])
def test_other_json_is_refused(
    name: str, text: str, runs: dict[str, Path], tmp_path: Path, count: Count
) -> None:
    run = copy(runs["ppo"], tmp_path / "run")
    for file in run.rglob(name):
        file.write_text(text)
    for verb in ("evaluate", "resume"):
        end = check(ask(verb, run))
        assert end in ("refused", "failed")
        count("crafted JSON", end)


def test_no_code_of_a_run_is_run(runs: dict[str, Path], tmp_path: Path, count: Count) -> None:
    """Files are run only if the command names them: a canary in every place that could be tried."""
    canary, sung = tmp_path / "canary.py", tmp_path / "sung"
    canary.write_text(f"open({str(sung)!r}, 'w')\n")
    fields = ("method_file", "env_file", "reward_file", "method", "env", "reward", "file")
    names = [
        f"{group}.{field}" for group in ("run", "method", "train", "adapt") for field in fields
    ]
    names += ["method_files", "env_files", "files", "path"]
    for name in names if LONG else ["run.env_file", "run.env", "method.method", "method_files"]:
        for value in (str(canary), [str(canary)], f"gym:{canary.stem}:X-v0", f"file:{canary}"):
            run = copy(runs["ppo"], tmp_path / "run")
            (run / "canary.py").write_text(canary.read_text())
            record = json.loads((run / "config.json").read_text())
            group, _, field = name.rpartition(".")
            (record["config"][group] if group else record)[field] = value
            seal(record, "seal")
            write(run / "config.json", record)
            count("canary in a config", check(ask("evaluate", run)))
            assert not sung.exists(), f"{name} = {value}"
