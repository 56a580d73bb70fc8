"""A real Ray cluster on loopback: a head and two nodes of one core, which are killed with -9."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from comsd.runs.run import Run
from processes import command, fingerprint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra comsd[ray]"),
]

TOKEN = "0123456789abcdef" * 4
SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": TOKEN,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback alone
}
PLAN = (
    "sweep comsd --env hopper --preset smoke --seeds 1 --task hopper_hop task.rule=fixed,random "
    "steps=1600 checkpoint_every=100 skills=8 task.checkpoint_every=100"
)
RUNS = (
    "pretrain/hopper/steps-1600_checkpoint_every-100_skills-8-1",
    *(
        f"finetune/hopper_hop/rule-{rule}_steps-1600_checkpoint_every-100_skills-8_"
        "task.checkpoint_every-100-1"
        for rule in ("fixed", "random")
    ),
)


class Nodes:
    """The cluster; every node has a folder of its own."""

    def __init__(self, folder: Path) -> None:
        os.environ |= SETTINGS  # before Ray is imported
        kind = import_module("ray.cluster_utils").Cluster
        head = {"num_cpus": 0, "include_dashboard": False}
        self.cluster = kind(initialize_head=True, head_node_args=head)
        self.address: str = self.cluster.address
        self.folder, self.nodes = folder, dict[Path, Any]()
        self.fill()

    def fill(self) -> None:
        """Two nodes."""
        while len(self.nodes) < 2:
            own = self.folder / f"node-{time.monotonic_ns()}"
            own.mkdir()
            variables = {"COMSD_NODE_DIR": str(own)}
            self.nodes[own] = self.cluster.add_node(num_cpus=1, env_vars=variables)

    def raylet(self, node: Any) -> int:
        return node.all_processes["raylet"][0].process.pid

    def kill_busy(self) -> None:
        """-9 to every process of a node that runs a job."""
        for own, node in self.nodes.items():
            family = descendants(self.raylet(node))
            if any("comsd.jobs.child" in arguments(process) for process in family):
                for process in [self.raylet(node), *family]:
                    os.kill(process, signal.SIGKILL)
                del self.nodes[own]
                return
        raise AssertionError("no node runs a job")


def arguments(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def descendants(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    cluster = Nodes(tmp_path_factory.mktemp("nodes"))
    yield cluster
    cluster.cluster.shutdown()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the runs are when nothing happens to them, on this machine."""
    root = tmp_path_factory.mktemp("local")
    subprocess.run(
        command(*PLAN.split(), "--dir", str(root), "--jobs", "1", "--cpus", "1"), check=True
    )
    return [fingerprint(root / place) for place in RUNS]


def start(nodes: Nodes, root: Path, *options: str) -> subprocess.Popen[bytes]:
    where = ["--dir", str(root), "--on", "ray", "--address", nodes.address, *options]
    root.mkdir(exist_ok=True)
    with (root / "driver.log").open("ab") as log:
        return subprocess.Popen(command(*PLAN.split(), *where), stdout=log, stderr=log)


def wait_for(
    condition: Callable[[], bool], driver: subprocess.Popen[bytes], seconds: float
) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert driver.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)


def begun(root: Path) -> Callable[[], bool]:
    return lambda: any((root / RUNS[0] / "checkpoints").glob("0*00"))


def finish(driver: subprocess.Popen[bytes], root: Path) -> str:
    assert driver.wait(900) == 0, (root / "driver.log").read_text()
    return (root / "driver.log").read_text()


@pytest.mark.parametrize("carry", ["auto", "objects", "store"])
def test_a_node_dies(carry: str, nodes: Nodes, uninterrupted: list[str], tmp_path: Path) -> None:
    """Shared disk, none, and a store: resumed elsewhere, the same to the bit, all in DIR."""
    nodes.fill()
    root = tmp_path / "sweep"
    options = {"auto": "auto", "objects": "objects", "store": f"file://{tmp_path / 'store'}"}
    driver = start(nodes, root, "--carry", options[carry])
    place = tmp_path / "store" if carry == "store" else root
    wait_for(begun(place), driver, 300)
    nodes.kill_busy()
    said = finish(driver, root)
    assert "lost its node; it is continued" in said
    assert [fingerprint(root / place) for place in RUNS] == uninterrupted
    assert all(not any(own.iterdir()) for own in nodes.nodes)  # nothing is left on the nodes
    assert (root / "report" / "report.html").exists()


def test_the_driver_dies(nodes: Nodes, uninterrupted: list[str], tmp_path: Path) -> None:
    nodes.fill()
    root = tmp_path / "sweep"
    driver = start(nodes, root)
    wait_for(lambda: (root / RUNS[1] / "config.json").exists(), driver, 400)
    done = {file: file.stat().st_mtime_ns for file in (root / RUNS[0]).rglob("state.json")}
    driver.kill()
    driver.wait()
    finish(start(nodes, root), root)
    assert [fingerprint(root / place) for place in RUNS] == uninterrupted
    assert all(file.stat().st_mtime_ns == at for file, at in done.items())  # nothing twice


@pytest.mark.parametrize("carry", ["auto", "objects"])
def test_cancelling_saves_within_ten_seconds(carry: str, nodes: Nodes, tmp_path: Path) -> None:
    nodes.fill()
    root = tmp_path / "sweep"
    driver = start(nodes, root, "--carry", carry)
    wait_for(begun(root), driver, 300)
    before, asked = Run(root / RUNS[0]).reached, time.monotonic()
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 128 + signal.SIGINT
    took = time.monotonic() - asked
    print(f"cancelled in {took:.1f} s")
    assert took < 10
    assert Run(root / RUNS[0]).reached >= before
    assert "the rest is saved; the same command continues" in (root / "driver.log").read_text()


def test_bad_input_is_one_sentence(nodes: Nodes, tmp_path: Path) -> None:
    def ask(address: str, token: str = TOKEN) -> str:
        where = ["--dir", str(tmp_path / "new"), "--on", "ray", "--address", address]
        env = os.environ | {"RAY_AUTH_TOKEN": token}
        done = subprocess.run(
            command(*PLAN.split(), *where), capture_output=True, text=True, env=env
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "new").exists()
        return done.stderr

    assert "address is '127.0.0.1:9', which does not answer" in ask("127.0.0.1:9")
    assert "it must be HOST:PORT" in ask("head")
    assert "is not that of the cluster at" in ask(nodes.address, "f" * 64)


def test_a_cluster_of_this_machine_listens_on_loopback_alone() -> None:
    script = (
        "import json, socket, sys\n"
        "from pathlib import Path\n"
        "from comsd.jobs.ray_cluster import connect\n"
        "def open_ports():\n"
        "    lines = [l.split() for f in ('tcp', 'tcp6') for l in Path(f'/proc/net/{f}')"
        ".read_text().splitlines()[1:]]\n"
        "    return {l[1] for l in lines if l[3] == '0A'}\n"
        "before = open_ports()\n"
        "ray = connect(None)\n"
        "print(json.dumps(sorted(open_ports() - before)))\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(
        [*command()[:1], "-c", script], capture_output=True, text=True, check=True, env=kept
    )
    ports: list[str] = import_module("json").loads(done.stdout.splitlines()[-1])
    assert ports
    loopback = (
        "0100007F:",
        "00000000000000000000000001000000:",
        "0000000000000000FFFF00000100007F:",
    )
    assert all(port.startswith(loopback) for port in ports), ports


OVERHEAD = """
import subprocess, sys, time
from pathlib import Path
from comsd.jobs.executors import make_executor
from comsd.jobs.job import Job
root, address = Path(sys.argv[1]), sys.argv[2]
where = {"on": "ray", "address": address} if address else {}
executor = make_executor(cpus=1, jobs=1, **where)
(root / "logs").mkdir(parents=True)
seconds = []
for seed in range(4):
    job = Job(f"run-{seed}", "pretrain", "maze-tree", "comsd", "comsd", seed, "smoke")
    asked = time.time()
    executor.start(job, root)
    while not (ended := list(executor.poll())):
        pass
    known = time.time()
    assert job.finished(root), ended
    log = job.log(root)
    birth = subprocess.run(["stat", "-c", "%.W", str(log)], capture_output=True, text=True)
    seconds.append(float(birth.stdout) - asked + known - log.stat().st_mtime)
executor.stop()
print(sorted(seconds[1:])[1])
"""


def test_the_overhead_of_ray(nodes: Nodes, tmp_path: Path) -> None:
    """Seconds around a run: until its process starts, and until its end is known."""
    nodes.fill()
    seconds: dict[str, float] = {}
    for name, address in {"local": "", "ray": nodes.address}.items():
        asked = [*command()[:1], "-c", OVERHEAD, str(tmp_path / name), address]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        seconds[name] = float(done.stdout.splitlines()[-1])
    more = seconds["ray"] - seconds["local"]
    print(f"seconds around a run: {seconds}, more by Ray {more:.2f}, {more / 60:.1%} of a minute")
    assert more < 0.05 * 60
