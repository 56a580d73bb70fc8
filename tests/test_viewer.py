"""The page of `comsd explore` as a person meets it: from disk, in Chromium, without a network."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
from playwright.sync_api import Browser, sync_playwright

import comsd
from chromium import ARGUMENTS, Opened
from comsd.resolve import resolve
from comsd.runs import Run
from comsd.training.trainer import TrainingState
from comsd.user_files import register_env_file

pytestmark = pytest.mark.viewer

WALKER = Path(__file__).parents[1] / "results" / "walker" / "comsd-1"
Pages = Callable[[str], Path]
Open = Callable[..., Opened]
EXACT = 1e-5
RUNS: dict[str, dict[str, Any]] = {  # every robot, agent and kind of skill space; untrained
    "quadruped": {"method": "comsd", "env": "quadruped", "agent": "sac", "skills": 8},
    "hopper": {"method": "metra", "env": "hopper", "skills": 3},
    "cheetah": {"method": "diayn", "env": "cheetah", "agent": "ppo", "skills": 4},
    "maze": {"method": "comsd", "env": "maze-tree", "skills": 6},
    "gym": {"method": "comsd", "env": "gym:HalfCheetah-v5", "skills": 4},
    "sled": {"method": "metra", "env": "Sled", "skills": 2},  # meshes, and observations it declares
}
ADAPTED: dict[str, tuple[str, dict[str, Any]]] = {  # the method of the skills, and what is learned
    "discrete": ("comsd", {"adapt": {"controller": "discrete"}}),
    "continuous": ("comsd", {"adapt": {"hold": 4}}),
    "sphere": ("metra", {"agent": "sac"}),
    "one-hot": ("diayn", {}),
    "tuned": ("comsd", {}),
    "scratch": ("", {}),
}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of a run, written once."""
    register_env_file(Path(__file__).parents[1] / "examples" / "sled.py")
    folder = tmp_path_factory.mktemp("pages")

    def page(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            run, steps = WALKER, None
            if name != "walker":
                steps = 60
                run = (adapt if name in ADAPTED else untrained)(folder / name).path
            comsd.explore(run, path, skills=8, starts=2, steps=steps)
        return path

    return page


def untrained(path: Path) -> Run:
    settings = dict(RUNS[path.name])
    method, env = settings.pop("method"), settings.pop("env")
    made = Run.create(path, resolve(method, env, "smoke", **settings))
    made.save(made.trainer(), TrainingState())
    return made


def adapt(path: Path) -> Run:
    method, settings = ADAPTED[path.name]
    short: dict[str, Any] = {"preset": "smoke", "steps": 300, "evaluate_every": 10**6}
    skills = path.parent / f"skills-{method}"
    if method and not skills.exists():
        comsd.pretrain(method, env="hopper", skills=3, run=skills, **short)
    learned: dict[str, Any] = {"task": "hopper_hop", "run": path, **short, **settings}
    if path.name in ("tuned", "scratch"):
        return comsd.finetune(skills if method else None, **learned)
    return comsd.combine(skills, **learned)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian's package `chromium`)")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def open_(path: Path, address: str = "", width: int = 1280, height: int = 800) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height}, accept_downloads=True
        )
        contexts.append(context)
        opened = Opened(context.new_page(), path.as_uri() + address)
        opened.wait("window.explorer?.counts.firstFrame || document.querySelector('#trust.bad')")
        return opened

    yield open_
    for context in contexts:
        context.close()


def moved(opened: Opened, player: int = 0) -> list[float]:
    return opened.js(f"explorer.players[{player}].simulation.place()")


@pytest.mark.parametrize("name", ["walker", *RUNS, *ADAPTED])
def test_policy_physics_and_observations_are_those_of_python(
    name: str, pages: Pages, open_page: Open
) -> None:
    opened = open_page(pages(name), "#skills=0&start=0")
    test = opened.js("explorer.test")
    assert test["action"] <= EXACT
    assert test["choice"] <= EXACT
    assert test["step"] <= EXACT
    assert test["observation"] <= EXACT
    assert test["passed"]
    assert "agrees with Python" in opened.text("trust")
    opened.js("explorer.players[0].goLive()")
    before = moved(opened)
    steps = opened.js("explorer.counts.steps")
    opened.wait(f"explorer.counts.steps > {steps} + 20")
    assert np.all(np.isfinite(moved(opened)))
    assert moved(opened) != before
    assert not opened.said
    assert opened.requests == [opened.page.url.partition("#")[0]]


def with_changed_weights(page: Path, copy: Path, controller: bool = False) -> Path:
    """Some weights of the first layer, of the policy or the controller, are other numbers."""
    text = page.read_text()
    header = re.search(r'id="run">(.*?)</script>', text, re.DOTALL)
    block = re.search(r'id="arrays">(.*?)</script>', text, re.DOTALL)
    assert header
    assert block
    described = json.loads(header[1])
    run = described["run"]
    graph = (run["adaptation"]["controller"] if controller else run)["policy"]
    linear = next(n for n in graph["nodes"] if n["op"] == "linear")
    _, _, offset = described["arrays"][linear["args"][1]["array"]]
    data = bytearray(gzip.decompress(base64.b64decode(block[1])))
    weights = np.frombuffer(data, np.float32, 4, offset)
    data[offset : offset + 16] = (weights + 0.5).tobytes()
    changed = base64.b64encode(gzip.compress(data)).decode()
    copy.write_text(text[: block.start(1)] + changed + text[block.end(1) :])
    return copy


def test_changed_weights_are_noticed(pages: Pages, open_page: Open, tmp_path: Path) -> None:
    opened = open_page(with_changed_weights(pages("walker"), tmp_path / "changed.html"))
    assert opened.js("explorer.test.action") > EXACT
    assert "do not trust" in opened.text("trust")


def test_changed_weights_of_a_controller_are_noticed(
    pages: Pages, open_page: Open, tmp_path: Path
) -> None:
    changed = with_changed_weights(pages("continuous"), tmp_path / "changed.html", controller=True)
    opened = open_page(changed, "#skills=0&start=0")
    assert opened.js("explorer.test.action") <= EXACT < opened.js("explorer.test.choice")
    assert "do not trust" in opened.text("trust")


def test_a_controller_switches_candidates_live(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("discrete"))
    names = opened.js("explorer.run.names")
    assert names[0] == "controller"
    assert "controller" in opened.text("map")
    assert opened.js("explorer.players.map((player) => player.name)[0]") == "controller"
    assert "recorded" in opened.text("tiles")
    opened.page.keyboard.press("1")  # alone
    opened.page.locator("#control").click()
    assert opened.js("explorer.players[0].live")
    assert "agrees with Python" in opened.text("trust")
    steps = opened.js("explorer.players[0].step")
    opened.wait(f"explorer.players[0].step > {steps}")
    seen, colours = opened.js("""(() => {
        explorer.playing = false;
        const find = (path) => document.querySelectorAll(path);
        const [[canvas], [shown]] = [find(".strip canvas"), find(".strip .now")];
        const seen = [];
        for (let i = 0; i < 10; i++) {
            explorer.advance(explorer.controller.spec.hold * explorer.run.dt);
            explorer.draw();
            const { candidate } = explorer.players[0];
            seen.push([candidate, shown.textContent, find("#map .acting").length]);
        }
        const line = canvas.getContext("2d").getImageData(0, 5, canvas.width, 1).data;
        const pixels = Array.from({ length: canvas.width }, (_, i) => line.slice(4 * i, 4 * i + 3));
        return [seen, new Set(pixels.map(String)).size];
    })()""")
    assert [shown for _, shown, _ in seen] == [names[candidate] for candidate, _, _ in seen]
    assert {marked for _, _, marked in seen} == {1}
    chosen = {candidate for candidate, _, _ in seen}
    assert len(chosen) > 1
    assert colours > len(chosen)  # and white
    assert opened.page.locator("#sliders button[aria-pressed='true']").count() == 1
    assert opened.page.url.endswith("#skills=c&start=0")
    again = open_page(pages("discrete"), "#skills=c&start=1")
    assert again.js("explorer.players[0].live && explorer.players[0].controlled")
    again.page.locator("#sliders button").first.click()
    assert not again.js("explorer.players[0].controlled")
    assert "candidate 0" in again.text("tiles")
    assert not opened.said + again.said


@pytest.mark.parametrize("name", ["discrete", "continuous"])
def test_first_choices_are_those_of_python(name: str, pages: Pages, open_page: Open) -> None:
    opened = open_page(pages(name), "#skills=c&start=0")
    ours, theirs = opened.js("""(() => {
        explorer.playing = false;
        const [player] = explorer.players;
        const { hold, choices } = explorer.controller.spec;
        player.restart();
        const chosen = [];
        for (let step = 0; step < 4 * hold; step++) {
            player.advance();
            if (step % hold === hold - 1) chosen.push([...player.skill]);
        }
        const n = player.skill.length;
        return [chosen, chosen.map((_, i) => [...choices.data.slice(i * n, (i + 1) * n)])];
    })()""")
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_a_recorded_controller_goes_on_live_in_time(pages: Pages, open_page: Open) -> None:
    """In the middle of a choice, which lasts to its end."""
    opened = open_page(pages("discrete"), "#skills=0&start=0")
    changes = opened.js("""(() => {
        explorer.playing = false;
        const [player] = explorer.players;
        player.restart();
        for (let i = 0; i < 13; i++) player.advance();
        player.push([1, 0, 0]);
        let chosen = 0;
        const { policy } = explorer.controller;
        const act = policy.act.bind(policy);
        policy.act = (...given) => (chosen++, act(...given));
        const after = [];
        for (let i = 0; i < 18; i++) {
            player.advance();
            after.push(chosen);
        }
        return after;
    })()""")
    assert changes == [0] * 7 + [1] * 10 + [2]  # before steps 20 and 30


def test_what_was_before_tuning_stays_recorded(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("tuned"))
    assert opened.js("explorer.players.map((player) => player.name)") == [
        "tuned skill",
        "before tuning",
    ]
    assert opened.js("explorer.selected") == 0
    opened.js("explorer.selected = 1")
    opened.page.keyboard.press("ArrowRight")
    opened.page.locator("#start").select_option("1")
    assert opened.js("explorer.players.map((player) => player.live)") == [True, False]
    assert "can only be played as recorded" in opened.text("status")
    opened.page.locator("#z1").fill("0.5")  # the tuned policy, from where it is
    assert opened.js("explorer.players[1].live")
    assert not opened.said


def test_a_slider_goes_live_and_says_so(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("walker"), "#skills=2&start=0")
    assert "recorded" in opened.text("tiles")
    assert "Python, MuJoCo" in opened.text("status")
    slider = opened.page.locator("#z1")
    slider.fill("0.9")
    assert opened.js("explorer.players[0].live")
    assert opened.js("explorer.players[0].skill[0]") == pytest.approx(0.9)
    assert "Live: MuJoCo 3." in opened.text("status")
    assert "live" in opened.text("tiles")
    assert re.search(r"#skills=0\.9,[0-9.,]+&start=0$", opened.page.url)  # to be sent to somebody
    again = open_page(pages("walker"), "#" + opened.page.url.partition("#")[2])
    assert again.js("explorer.players[0].skill[0]") == pytest.approx(0.9)
    assert not opened.said


@pytest.mark.parametrize(
    "address",
    [
        "#skills=1e3&start=0",
        "#skills=99&start=0",
        "#skills=<img>&start=0",
        "#x",
        "#skills=c&start=0",
    ],
)
def test_an_address_of_anything_else_is_ignored(
    address: str, pages: Pages, open_page: Open
) -> None:
    opened = open_page(pages("maze"), address)
    assert opened.js("explorer.players.length") == 4
    assert not opened.said


def test_a_click_on_the_map_plays_what_was_measured(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("walker"), "#skills=0&start=0")
    opened.page.locator("#random").click()
    assert opened.js("explorer.players[0].live")
    opened.page.locator("#map circle.point[data-skill='5']").click(force=True)
    assert not opened.js("explorer.players[0].live")
    assert opened.js("explorer.players[0].exported") == 5
    assert "#skills=5&" in opened.page.url
    places = opened.js(
        "[...document.querySelectorAll('#map circle.point')].map((point) => point.cx.baseVal.value)"
    )
    opened.page.locator("#map").focus()
    opened.page.keyboard.press("ArrowRight" if places[5] < max(places) - 1 else "ArrowLeft")
    opened.page.keyboard.press("Enter")
    assert opened.js("explorer.players[0].exported") != 5
    assert "±" in opened.text("hint")  # over several starts
    opened.page.locator("#axis-y").select_option("height")
    assert "height" in opened.page.locator("#map").inner_text()


@pytest.mark.skipif(os.getloadavg()[0] > 2 * (os.cpu_count() or 1), reason="a busy machine")
def test_four_robots_keep_time(pages: Pages, open_page: Open) -> None:
    """The best of a few tries: other processes take their share of the machine in bursts."""
    first_frame = "explorer.counts.firstFrame <= 3000"  # milliseconds
    opened = open_page(pages("walker"))
    for _ in range(2):
        opened = opened if opened.js(first_frame) else open_page(pages("walker"))
    assert opened.js(first_frame)
    assert opened.js("explorer.players.length") == 4
    opened.js("explorer.players.forEach((player) => player.goLive())")
    opened.wait("explorer.counts.frames > 20")
    rate = """(async () => {
        const [steps, time] = [explorer.counts.steps, performance.now()];
        await new Promise((resolve) => setTimeout(resolve, 3000));
        return (1000 * (explorer.counts.steps - steps)) / (performance.now() - time);
    })()"""
    assert any(opened.js(rate) >= 30 for _ in range(5))  # of 40 control steps per second
    assert not opened.said


def test_the_camera_keeps_up_where_frames_are_few(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("walker"), "#skills=0&start=0")
    lag = """(() => {
        explorer.playing = false;
        explorer.restart();
        explorer.draw();
        const [body] = explorer.view.bodies;
        const began = body.place.clone();
        for (let frame = 0; frame < 4; frame++) {
            explorer.advance(0.5);
            explorer.draw();
        }
        return [body.follow.distanceTo(body.place), body.place.distanceTo(began)];
    })()"""
    behind, moved_by = opened.js(lag)
    assert moved_by > 0.5  # it fell
    assert behind < 0.05 * moved_by


def test_robots_have_shadows_without_a_graphics_card(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("walker"), "#skills=0&start=0")
    flat = """(() => {
        const { shadow, meshes } = explorer.view.bodies[0];
        return [shadow.visible, shadow.children.length - meshes.length,
            ...shadow.children.map(({ matrix }) => matrix.elements[14])];
    })()"""
    visible, missing, *heights = opened.js(flat)
    assert (visible, missing) == (True, 0)
    np.testing.assert_allclose(heights, 0.003, atol=1e-6)  # on the floor


def test_colours_are_explained(pages: Pages, open_page: Open) -> None:
    assert opened_legend(open_page(pages("walker"))) == "flag 0 1"
    assert opened_legend(open_page(pages("hopper"))) == "z1 \u22121 1"
    assert not open_page(pages("maze")).page.locator("#legend").is_visible()  # a hue for each


def opened_legend(opened: Opened) -> str:
    return " ".join(opened.text("legend").split())


def test_half_way_between_two_skills(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("walker"), "#skills=0&start=0")
    opened.js("""for (const [id, value] of [["mix-a", 1], ["mix-b", 4], ["mix-t", 0.5]])
        document.getElementById(id).value = String(value)""")
    opened.js("document.getElementById('mix-t').dispatchEvent(new Event('input'))")
    skills = opened.js(
        "[1, 4].map((i) => [...explorer.run.skills.data.slice(64 * i, 64 * i + 64)])"
    )
    middle = [(a + b) / 2 for a, b in zip(*skills, strict=True)]
    assert opened.js("[...explorer.players[0].skill]") == pytest.approx(middle, abs=1e-6)
    assert opened.js("explorer.players[0].live")
    assert not opened.said


def test_keys_push_pause_and_add(pages: Pages, open_page: Open) -> None:
    opened = open_page(pages("hopper"), "#skills=0&start=0")
    opened.page.keyboard.press("9")
    assert opened.js("explorer.players.length") == 9
    opened.page.keyboard.press("2")
    opened.page.keyboard.press("ArrowRight")
    assert opened.js("explorer.players[0].live")
    opened.page.keyboard.press(" ")
    assert opened.text("play") == "Play"
    steps = opened.js("explorer.counts.steps")
    opened.page.wait_for_timeout(200)
    assert opened.js("explorer.counts.steps") == steps
    opened.page.keyboard.press("r")
    assert opened.js("explorer.players[0].step") == 0
    assert not opened.said


def test_a_clip_has_every_frame(pages: Pages, open_page: Open, tmp_path: Path) -> None:
    opened = open_page(pages("walker"), "#skills=3;4&start=0", width=700, height=600)
    opened.page.locator("#seconds").select_option("3")
    opened.js("""(() => {  // as on a slow machine
        const { view } = explorer;
        const draw = view.draw.bind(view);
        view.draw = (...given) => {
            if (explorer.recording) view.renderer.setPixelRatio(0.5);
            draw(...given);
        };
    })()""")
    with opened.page.expect_download(timeout=60_000) as saving:
        opened.page.locator("#clip").click()
    path = tmp_path / "clip.mp4"
    saving.value.save_as(path)
    frames = iio.imread(path, plugin="FFMPEG")
    assert len(frames) == 90
    assert np.ptp(frames[0]) > 100  # a picture
    assert np.abs(frames[0].astype(int) - frames[-1]).mean() > 0.5  # that moves
    assert frames[-1][-40:].mean() > 100  # and fills the frame, however few pixels were drawn


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_nothing_is_wider_than_the_window(
    width: int, height: int, pages: Pages, open_page: Open
) -> None:
    opened = open_page(pages("maze"), width=width, height=height)
    assert opened.js("document.documentElement.scrollWidth") <= width


def test_the_policy_of_the_page_forbids_requests_and_other_scripts(
    pages: Pages, open_page: Open
) -> None:
    opened = open_page(pages("maze"))
    asked = "fetch('data:text/plain,x').then(() => 'answered', () => 'refused')"
    assert opened.js(asked) == "refused"
    opened.js(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'x=1'}))"
    )
    assert opened.js("typeof x") == "undefined"
