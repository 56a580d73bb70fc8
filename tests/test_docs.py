"""The example of docs/add-a-method.md, taken from the page, keeps the contract."""

from __future__ import annotations

import re
import shlex
import sys
import types
from pathlib import Path

import pytest
import torch

from comsd.cli import main
from comsd.runs.run import Run
from conftest import OBS, make_batch, make_space

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("kind", ["one-hot", "box", "sphere"])
def test_the_example_method_works(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "add-a-method.md").read_text()
    source = next(
        b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class RND(" in b
    )
    module = types.ModuleType("rnd")
    monkeypatch.setitem(sys.modules, "rnd", module)
    exec(compile(source, "add-a-method.md", "exec"), module.__dict__)
    space = make_space(kind)
    method = module.RND(module.RNDConfig(hidden=16), space, OBS)
    batch = make_batch(space, 64)
    optimizer = method.optimizer()
    first = method.loss(batch, method.embed(batch))[0].item()
    for _ in range(50):
        method.representation_step(batch, optimizer)
    assert method.loss(batch, method.embed(batch))[0].item() < first
    reward = method.intrinsic_reward(batch).reward
    assert reward.shape == (64,)
    assert bool(torch.isfinite(reward).all())


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


SCALING = (DOCS / "scaling.md").read_text()


@pytest.mark.parametrize(
    "command", re.findall(r"^comsd (?:sweep|reproduce) .*$", SCALING, re.MULTILINE)
)
def test_the_commands_of_the_page_on_scaling_make_a_plan(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = [w if w not in ("lite", "paper") else "smoke" for w in shlex.split(command)[1:]]
    argv += ["--preset", "smoke"] * ("--preset" not in argv)
    main(argv if "--plan" in argv else [*argv, "--plan"])
    assert not list(tmp_path.iterdir())


def test_the_commands_of_the_second_backbone_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    section = (DOCS / "robots.md").read_text().partition("### SAC")[2]
    (block,) = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    for line in block.splitlines():
        argv = line.partition("#")[0].replace("lite", "smoke").split()[1:]
        main([*argv, "--steps", "400", "--evaluate-every", "1000"])
    assert Run("runs/sac-tuned").config.run.agent == "sac"
    assert Run("runs/sac-combined").config.run.agent == "sac"
