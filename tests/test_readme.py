"""Every command and example of the README, run as written but for the length of training."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from comsd.cli import main
from comsd.envs.rendering import first_working
from comsd.training.checks import has_bf16

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SHORTER = {"lite": "smoke", "paper": "smoke", "100000": "400"}
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = [argv.split()[1] for argv in COMMANDS if argv.startswith("make ")]
    assert {"demo", "test"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    commands = [c.removeprefix(".venv/bin/") for c in COMMANDS if "comsd " in c]
    assert len(commands) >= 6
    for command in commands:
        words: list[str] = command.split()[1:]
        argv = [SHORTER.get(word, word) for word in words]
        if argv[0] == "pretrain" and "--preset" not in argv:
            argv += ["--preset", "smoke"]
        if "bf16" in argv and not has_bf16(torch.device("cpu")):
            continue
        if "--pixels" in argv and first_working() is None:
            continue
        main(argv)


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 'preset="lite"' in example
    code = compile(example.replace('preset="lite"', 'preset="smoke"'), "README.md", "exec")
    exec(code, {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
