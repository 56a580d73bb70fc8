// The page: loads the run and the physics, then plays.

import { describe, find, status } from "./about";
import { readAddress, writeAddress } from "./address";
import { download, recordClip } from "./clip";
import { colourOf, GREY, INK } from "./colour";
import { Controller } from "./controller";
import { discrete, nearestEntry, readRun, row, separateSkills, skillEntries, type RunData } from "./data";
import { tiles } from "./layout";
import { SkillMap } from "./map";
import { MazeSimulation } from "./maze";
import { MazeView } from "./mazeview";
import { loadPhysics } from "./physics";
import { Player, REMEMBERED } from "./player";
import { Policy } from "./policy";
import { RobotWorld } from "./robot";
import { RobotView } from "./robotview";
import { selfTest, type SelfTest } from "./selftest";
import { normalise, randomSkill, Sliders } from "./sliders";
import { drawStrip } from "./strip";
import type { Grip, Shown, View } from "./view";
import type { Point, Simulation } from "./world";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const MOST = 9; // side by side
const CATCH_UP = 60; // control steps in one frame, at most

class Explorer {
  readonly counts = { steps: 0, frames: 0, firstFrame: 0, clipFrames: 0 };
  players: Player[] = [];
  selected = 0;
  playing = true;
  private speed = 1;
  private debt = 0; // seconds that the simulation is behind
  private last = 0;
  private recording = false;
  private labels: HTMLElement[] = [];
  private map: SkillMap;
  private sliders: Sliders;
  private told = ""; // what the players were last said to do
  private hold: { grip: Grip; index: number; x: number; y: number } | null = null;

  constructor(
    readonly run: RunData,
    readonly policy: Policy,
    readonly test: SelfTest,
    private view: View,
    private simulation: () => Simulation,
    readonly controller: Controller | null = null,
  ) {
    const { run: data } = this;
    this.map = new SkillMap(find("map"), data, find("axis-x"), find("axis-y"), {
      colour: (entry) => this.entryColour(entry),
      chosen: (skill, beside) => this.choose(skill, beside),
      hint: (text) => (find("hint").textContent = text),
    });
    this.sliders = new Sliders(data, find("sliders"), find("others"), (skill, name) => this.use(skill, name));
    describe(this.run, this.test);
    this.wire();
    this.resize();
    this.open();
    requestAnimationFrame((now) => this.frame(now));
  }

  private colour(flag: number): string {
    return colourOf(flag, separateSkills(this.run));
  }

  private entryColour(entry: number): string {
    if (entry === this.run.adaptation?.recorded_only) return GREY;
    return this.controller && entry === 0 ? INK : this.colour(this.run.flags[entry]);
  }

  private playerColour(player: Player): string {
    return player.recordedOnly ? GREY : this.colour(player.flag);
  }

  private get starts(): number {
    return this.run.values.shape[2];
  }

  // --- what is played ---------------------------------------------------------------------------

  /** What the address says, or some skills from one end of the first axis to the other. */
  private open(): void {
    const exported = this.run.names.length;
    const fits = { dim: this.run.space.dim, exported, starts: this.starts, controlled: this.controller !== null };
    const seen = readAddress(location.hash, fits);
    this.keep(0);
    this.selected = 0;
    if (seen) {
      find<HTMLSelectElement>("start").value = String(seen.start);
      for (const skill of seen.skills) {
        const player = this.add();
        player.start = seen.start;
        if (skill === "c") player.control();
        else if (typeof skill === "number") player.play(skill);
        else if (discrete(this.run)) this.actAs(player, nearestEntry(this.run, skill)); // numbers are rounded
        else player.use(skill, "from the address");
      }
    } else {
      const count = Math.min(exported, innerWidth < 700 ? 1 : 4);
      const first = this.run.adaptation?.opening.slice(0, count) ?? this.spread(count);
      for (const skill of first) this.add().play(skill);
    }
    this.arranged();
  }

  private actAs(player: Player, entry: number): void {
    player.use(Float32Array.from(row(this.run.skills, entry)), this.run.names[entry]);
  }

  /** Exported skills at even distances along the first measure. */
  private spread(count: number): number[] {
    const key = this.run.axes[0];
    const order = skillEntries(this.run).sort((a, b) => this.map.summary(key, a).mean - this.map.summary(key, b).mean);
    if (count === 1) return [order[order.length - 1]];
    return Array.from({ length: count }, (_, i) => order[Math.round((i * (order.length - 1)) / (count - 1))]);
  }

  private add(): Player {
    const player = new Player(this.run, this.policy, this.simulation(), this.controller);
    player.start = Number(find<HTMLSelectElement>("start").value) || 0;
    this.players.push(player);
    return player;
  }

  /** The first players; the others go, and whoever is held is let go. */
  private keep(count: number): void {
    this.hold = null;
    for (const player of this.players.splice(count)) player.simulation.close();
  }

  private setCount(count: number): void {
    count = Math.max(1, Math.min(MOST, count));
    const fresh = this.spread(MOST).filter((s) => !this.players.some((p) => p.exported === s));
    while (this.players.length < count) this.add().play(fresh.pop() ?? 0);
    this.keep(count);
    this.selected = Math.min(this.selected, count - 1);
    this.arranged();
  }

  /** A click on the map: the roll-out that was measured. */
  private choose(skill: number, beside = false): void {
    if (beside && this.players.length < MOST) {
      this.add();
      this.selected = this.players.length - 1;
    }
    this.players[this.selected].play(skill);
    this.arranged();
    find("hint").textContent = this.map.describe(skill);
  }

  /** Another skill for the chosen robot, live from where it is. */
  private use(skill: Float32Array, name: string): void {
    const player = this.players[this.selected];
    player.use(skill, name);
    this.changed();
  }

  /** The controller takes the chosen robot, live from where it is. */
  private control(): void {
    if (!this.controller) return;
    this.players[this.selected].control();
    this.changed();
  }

  private restart(live = false): void {
    const start = Number(find<HTMLSelectElement>("start").value) || 0;
    for (const player of this.players) {
      player.start = start;
      if (live) player.goLive();
      player.past = [];
      player.restart();
    }
    this.debt = 0;
    this.arranged();
  }

  private push(force: Point): void {
    this.players[this.selected].push(force);
    this.changed();
  }

  /** The number or the places of players changed. */
  private arranged(): void {
    this.players.forEach((player, i) => this.view.jumped(i, player));
    const box = find("tiles");
    box.replaceChildren();
    this.labels = this.layout().map((tile, i) => {
      const element = document.createElement("div");
      element.className = "tile";
      const [x, y, w, h] = [tile.x, tile.y, tile.width, tile.height].map((n) => `${n}px`);
      Object.assign(element.style, { left: x, top: y, width: w, height: h });
      const label = document.createElement("div");
      label.className = "label";
      const name = document.createElement("span");
      name.className = "name";
      const dot = document.createElement("span");
      dot.className = "dot";
      const [text, mode, figures] = ["text", "mode", "figures"].map((part) => {
        const span = document.createElement("span");
        span.className = part;
        return span;
      });
      name.append(dot, text);
      label.append(name, mode, figures);
      element.append(label);
      if (this.controller) element.append(this.strip(tile.width));
      element.dataset.index = String(i);
      box.append(element);
      return element;
    });
    find("count").textContent = String(this.players.length);
    this.changed();
  }

  /** For the choices of a controller. */
  private strip(width: number): HTMLElement {
    const [strip, caption, now, canvas] = ["div", "span", "b", "canvas"].map((tag) => document.createElement(tag));
    [strip.className, now.className] = ["strip", "now"];
    caption.textContent = `skills of the last ${REMEMBERED} s`;
    Object.assign(canvas, { width: Math.round(width), height: 16 });
    strip.append(caption, now, canvas);
    return strip;
  }

  /** Whose skills a controller chooses, when it has chosen. */
  private follow(): void {
    if (!this.controller) return;
    const choices = this.players.map((player) => (player.controlled ? player.flag : "")).join();
    if (choices !== this.told) this.tell();
    this.told = choices;
  }

  /** Which skill acts where. */
  private tell(): void {
    const several = this.players.length > 1;
    this.players.forEach((player, i) => {
      const part = (name: string) => this.labels[i].querySelector(`.${name}`) as HTMLElement;
      this.labels[i].classList.toggle("chosen", several && i === this.selected);
      part("dot").style.background = this.playerColour(player);
      part("text").textContent = several ? `${i + 1}  ${player.name}` : player.name;
      part("mode").textContent = player.live ? "live" : "recorded";
      part("mode").classList.toggle("live", player.live);
      if (this.controller) part("strip").hidden = !player.controlled;
      if (player.candidate !== null) part("now").textContent = this.run.names[player.candidate];
    });
    const chosen = this.players[this.selected];
    this.sliders.show(chosen.skill);
    find("control").setAttribute("aria-pressed", String(chosen.controlled && chosen.live));
    this.map.show(
      this.players.map((player) => (player.exported !== null && !player.live ? player.exported : null)),
      this.players.map((player) => player.candidate).filter((entry) => entry !== null),
    );
  }

  /** What is said about the players. */
  private changed(): void {
    this.tell();
    const several = this.players.length > 1;
    find("skill-title").textContent = several ? `Skill of ${this.run.world.kind === "robot" ? "robot" : "agent"} ${this.selected + 1}` : "Skill";
    find("play").textContent = this.playing ? "Pause" : "Play";
    find("status").textContent = status(this.run, this.players);
    const address = writeAddress({
      skills: this.players.map((p) => (p.exported !== null && !p.live ? p.exported : p.controlled ? "c" : p.skill)),
      start: Number(find<HTMLSelectElement>("start").value) || 0,
    });
    if (address !== location.hash) history.replaceState(null, "", address);
  }

  // --- time -------------------------------------------------------------------------------------

  private layout() {
    const view = find("view");
    const rectangles = tiles(this.players.length, view.clientWidth, view.clientHeight);
    if (this.view instanceof RobotView) this.view.aspects = rectangles.map((r) => r.width / r.height);
    return rectangles;
  }

  private resize(): void {
    const view = find("view");
    this.view.resize(view.clientWidth, view.clientHeight, Math.min(devicePixelRatio, 2));
    if (this.players.length) this.arranged();
  }

  private advance(seconds: number): void {
    this.debt += seconds * this.speed;
    let steps = Math.floor(this.debt / this.run.dt + 1e-9);
    if (steps > CATCH_UP * Math.max(1, this.speed)) {
      steps = CATCH_UP * Math.max(1, this.speed);
      this.debt = steps * this.run.dt; // too slow a machine: time is stretched
    }
    this.debt = Math.max(0, this.debt - steps * this.run.dt);
    for (let n = 0; n < steps; n++) {
      if (this.hold) {
        const { grip, index, x, y } = this.hold;
        const { force, body } = grip.pull(x, y);
        this.players[index].push(force, body);
      }
      this.players.forEach((player, i) => {
        const before = player.step;
        player.advance();
        if (player.step < before) this.view.jumped(i, player);
        else this.view.stepped(i, player);
      });
      this.counts.steps++;
    }
  }

  private draw(): Shown[] {
    const rectangles = this.layout();
    const shown = this.players.map((player, i) => ({ player, colour: this.playerColour(player), tile: rectangles[i] }));
    this.view.draw(shown, Math.min(1, this.debt / this.run.dt));
    this.follow();
    this.players.forEach((player, i) => {
      const canvas = player.controlled ? this.labels[i].querySelector("canvas")! : null;
      if (canvas) drawStrip(canvas, player.flags, REMEMBERED / this.run.dt, (flag) => this.colour(flag));
    });
    return shown;
  }

  private frame(now: number): void {
    requestAnimationFrame((next) => this.frame(next));
    const elapsed = Math.min((now - this.last) / 1000, 1);
    this.last = now;
    if (this.recording) return;
    if (this.playing) this.advance(elapsed);
    this.draw();
    if (this.counts.frames++ % 10 === 0) {
      this.players.forEach((player, i) => {
        const seconds = `${(player.step * this.run.dt).toFixed(1)} s`;
        const speed = this.run.world.kind === "robot" ? `, ${player.speed().toFixed(1).replace("-0.0", "0.0")} m/s` : "";
        this.labels[i].querySelector(".figures")!.textContent = seconds + speed;
      });
    }
    if (!this.counts.firstFrame) this.counts.firstFrame = performance.now();
  }

  async saveClip(seconds: number): Promise<void> {
    const button = find<HTMLButtonElement>("clip");
    const source = this.view.canvas;
    const canvas = document.createElement("canvas");
    canvas.width = source.width - (source.width % 2);
    canvas.height = source.height - (source.height % 2);
    const pen = canvas.getContext("2d")!;
    const ratio = source.width / source.clientWidth;
    this.recording = true;
    button.disabled = true;
    try {
      const draw = (step: number) => {
        this.advance(step);
        const shown = this.draw();
        pen.drawImage(source, 0, 0);
        pen.textBaseline = "top";
        pen.font = `600 ${13 * ratio}px system-ui, sans-serif`;
        shown.forEach(({ player, colour, tile }, i) => {
          const [x, y] = [(tile.x + 12) * ratio, (tile.y + 12) * ratio];
          pen.fillStyle = colour;
          pen.fillRect(x, y, 11 * ratio, 11 * ratio);
          pen.fillStyle = "#18212f";
          pen.fillText(`${player.title}, ${player.live ? "live" : "recorded"}`, x + 17 * ratio, y - ratio);
          const strip = player.controlled && this.labels[i].querySelector("canvas");
          if (strip) pen.drawImage(strip, x, (tile.y + tile.height - 24) * ratio, (tile.width - 24) * ratio, 12 * ratio);
        });
        const { title } = this.run;
        pen.fillStyle = "#5b6675";
        pen.textAlign = "right";
        pen.fillText(`${title.method}, ${title.env}, seed ${title.seed}`, canvas.width - 10 * ratio, canvas.height - 22 * ratio);
        pen.textAlign = "left";
      };
      const clip = await recordClip(canvas, seconds, draw, (share) => (button.textContent = `${Math.round(100 * share)} %`));
      this.counts.clipFrames = clip.frames;
      const name = `${this.run.title.method}-${this.run.title.env}-${this.run.title.seed}.mp4`;
      download(clip.blob, name.replace(/[^\w.-]+/g, "-"));
      find("status").textContent = `Saved ${name}: ${clip.frames} frames.`;
    } catch (error) {
      find("status").textContent = `No clip: ${(error as Error).message}.`;
    } finally {
      this.recording = false;
      button.disabled = false;
      button.textContent = "Save clip";
    }
  }

  // --- hands ------------------------------------------------------------------------------------

  private wire(): void {
    const click = (id: string, action: () => void) => find(id).addEventListener("click", action);
    const speed = find<HTMLSelectElement>("speed");
    for (const s of SPEEDS) speed.append(new Option(`${s} ×`, String(s), s === 1, s === 1));
    speed.addEventListener("change", () => (this.speed = Number(speed.value)));
    const start = find<HTMLSelectElement>("start");
    for (let i = 0; i < this.starts; i++) start.append(new Option(String(i + 1), String(i)));
    start.addEventListener("change", () => this.restart(true));
    click("play", () => this.toggle());
    click("restart", () => this.restart());
    click("fewer", () => this.setCount(this.players.length - 1));
    click("more", () => this.setCount(this.players.length + 1));
    click("push-left", () => this.push([-2.5, 0, 0.4]));
    click("push-right", () => this.push([2.5, 0, 0.4]));
    click("control", () => this.control());
    click("random", () => this.use(randomSkill(this.run), "drawn at random"));
    click("clip", () => void this.saveClip(Number(find<HTMLSelectElement>("seconds").value)));
    this.wireMix();
    this.wirePointer();
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", () => this.resize());
    addEventListener("hashchange", () => this.open());
  }

  private wireMix(): void {
    const [a, b] = [find<HTMLSelectElement>("mix-a"), find<HTMLSelectElement>("mix-b")];
    const t = find<HTMLInputElement>("mix-t");
    for (const select of [a, b]) {
      for (const i of skillEntries(this.run)) select.append(new Option(this.run.names[i], String(i)));
    }
    const ends = this.spread(2);
    [a.value, b.value] = [String(ends[0]), String(ends[ends.length - 1])];
    const mix = () => {
      const [from, to] = [row(this.run.skills, Number(a.value)), row(this.run.skills, Number(b.value))];
      const share = Number(t.value);
      const skill = from.map((x, i) => x + (to[i] - x) * share);
      if (this.run.space.kind === "sphere") normalise(skill);
      this.use(skill, `${Math.round(100 * share)} % from ${this.run.names[Number(a.value)]} to ${this.run.names[Number(b.value)]}`);
    };
    for (const control of [t, a, b]) control.addEventListener("input", mix);
  }

  private toggle(): void {
    this.playing = !this.playing;
    this.changed();
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
    if ((event.key === " " || event.key === "Enter") && /^(BUTTON|SUMMARY)$/.test(target.tagName)) return;
    const speed = find<HTMLSelectElement>("speed");
    const actions: Record<string, () => unknown> = {
      " ": () => this.toggle(),
      r: () => this.restart(),
      n: () => find("random").hidden || this.use(randomSkill(this.run), "drawn at random"),
      c: () => this.control(),
      ArrowLeft: () => this.push([-2.5, 0, 0.4]),
      ArrowRight: () => this.push([2.5, 0, 0.4]),
      "[": () => (speed.selectedIndex = Math.max(0, speed.selectedIndex - 1)),
      "]": () => (speed.selectedIndex = Math.min(SPEEDS.length - 1, speed.selectedIndex + 1)),
    };
    if (/^[1-9]$/.test(event.key)) this.setCount(Number(event.key));
    else if (event.key in actions) {
      actions[event.key]();
      this.speed = Number(speed.value);
    } else return;
    event.preventDefault();
  }

  private wirePointer(): void {
    const view = find("view");
    let from: [number, number] | null = null;
    const inTile = (event: PointerEvent, index: number): [number, number] => {
      const box = view.getBoundingClientRect();
      const tile = this.layout()[index];
      return [
        (2 * (event.clientX - box.left - tile.x)) / tile.width - 1,
        1 - (2 * (event.clientY - box.top - tile.y)) / tile.height,
      ];
    };
    view.addEventListener("pointerdown", (event) => {
      const box = view.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      const index = this.layout().findIndex((r) => x >= r.x && x < r.x + r.width && y >= r.y && y < r.y + r.height);
      if (index < 0) return;
      this.selected = index;
      this.changed();
      view.setPointerCapture(event.pointerId);
      const [tx, ty] = inTile(event, index);
      const grip = this.view.grip(index, tx, ty);
      if (grip) this.hold = { grip, index, x: tx, y: ty };
      else from = [event.clientX, event.clientY];
    });
    view.addEventListener("pointermove", (event) => {
      if (this.hold) {
        const wasLive = this.players[this.hold.index].live;
        [this.hold.x, this.hold.y] = inTile(event, this.hold.index);
        if (!wasLive && this.playing) this.players[this.hold.index].goLive();
        if (!wasLive) this.changed();
      } else if (from) {
        this.view.turn((event.clientX - from[0]) * 0.008, (event.clientY - from[1]) * 0.006);
        from = [event.clientX, event.clientY];
      }
    });
    const release = () => {
      this.hold = null;
      from = null;
      this.changed();
    };
    view.addEventListener("pointerup", release);
    view.addEventListener("pointercancel", release);
    view.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.view.zoom(Math.exp(event.deltaY * 0.001));
      },
      { passive: false },
    );
  }
}

async function begin(): Promise<void> {
  const run = await readRun();
  const policy = new Policy(run.policy);
  const canvas = find<HTMLCanvasElement>("canvas");
  let view: View;
  let simulation: () => Simulation;
  let check: Simulation;
  if (run.world.kind === "robot") {
    const world = new RobotWorld(await loadPhysics(), run.world);
    view = new RobotView(canvas, world);
    simulation = () => world.simulation();
    check = world.simulation();
  } else {
    const { world } = run;
    view = new MazeView(canvas, world);
    simulation = () => new MazeSimulation(world);
    check = new MazeSimulation(world, () => 0.5);
  }
  const controller = run.adaptation?.controller ? new Controller(run.adaptation.controller) : null;
  const test = selfTest(run, policy, controller, check);
  check.close();
  const explorer = new Explorer(run, policy, test, view, simulation, controller);
  find("message").textContent = "";
  Object.assign(window, { explorer }); // for the console, and for tests
}

begin().catch((error: Error) => {
  find("message").textContent = `This page cannot start here: ${error.message}`;
  find("trust").textContent = "not running";
  throw error;
});
