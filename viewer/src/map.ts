// The map of exported skills: means over several starts, with their spread.

import type { RunData } from "./data";

const WIDTH = 370, HEIGHT = 300;
const EDGE = { left: 44, right: 10, top: 10, bottom: 34 };
const NAMESPACE = "http://www.w3.org/2000/svg";

interface Options {
  colour(skill: number): string;
  chosen(skill: number, beside: boolean): void;
  hint(text: string): void;
}

function create(name: string, attributes: Record<string, string | number>, parent: Element): SVGElement {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent.append(element);
  return element;
}

function ticks(low: number, high: number): number[] {
  const raw = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw)!;
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, i) => +(first + i * step).toPrecision(6));
}

export class SkillMap {
  private near = 0; // the skill that the keyboard has reached
  private playing: (number | null)[] = [];
  private acting: number[] = [];
  private points: SVGElement[] = [];
  private marks: SVGElement | null = null;
  private places: [number, number][] = [];

  constructor(
    private box: HTMLElement,
    private run: RunData,
    private x: HTMLSelectElement,
    private y: HTMLSelectElement,
    private options: Options,
  ) {
    for (const select of [x, y]) {
      for (const measure of run.measures) {
        const option = document.createElement("option");
        option.value = measure.key;
        option.textContent = measure.label;
        select.append(option);
      }
      select.addEventListener("change", () => this.draw());
    }
    [x.value, y.value] = run.axes;
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("blur", () => this.mark());
    this.draw();
  }

  /** Which skills the tiles play as recorded, and which act there by a controller's choice. */
  show(playing: (number | null)[], acting: number[]): void {
    [this.playing, this.acting] = [playing, acting];
    this.mark();
  }

  private values(key: string, skill: number): number[] {
    const [, skills, starts] = this.run.values.shape;
    const measure = this.run.measures.findIndex((m) => m.key === key);
    const at = (measure * skills + skill) * starts;
    return Array.from(this.run.values.data.subarray(at, at + starts));
  }

  summary(key: string, skill: number): { mean: number; sd: number } {
    const values = this.values(key, skill);
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / Math.max(1, values.length - 1);
    return { mean, sd: Math.sqrt(variance) };
  }

  private draw(): void {
    this.box.replaceChildren();
    const svg = create("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" }, this.box);
    const skills = this.run.names.map((_, i) => i);
    const data = [this.x.value, this.y.value].map((key) => skills.map((skill) => this.summary(key, skill)));
    const range = (column: { mean: number; sd: number }[]): [number, number] => {
      const low = Math.min(...column.map(({ mean, sd }) => mean - 0.5 * sd));
      const high = Math.max(...column.map(({ mean, sd }) => mean + 0.5 * sd));
      const margin = 0.06 * (high - low) || 1;
      return [low - margin, high + margin];
    };
    const [[x0, x1], [y0, y1]] = data.map(range);
    const toX = (v: number) => EDGE.left + ((v - x0) / (x1 - x0)) * (WIDTH - EDGE.left - EDGE.right);
    const toY = (v: number) => HEIGHT - EDGE.bottom - ((v - y0) / (y1 - y0)) * (HEIGHT - EDGE.top - EDGE.bottom);
    const inside = { x: (v: number) => Math.max(EDGE.left, Math.min(WIDTH - EDGE.right, v)), y: (v: number) => Math.max(EDGE.top, Math.min(HEIGHT - EDGE.bottom, v)) };
    for (const tick of ticks(x0, x1)) {
      create("line", { class: "axis", x1: toX(tick), x2: toX(tick), y1: EDGE.top, y2: HEIGHT - EDGE.bottom }, svg);
      create("text", { x: toX(tick), y: HEIGHT - EDGE.bottom + 14, "text-anchor": "middle" }, svg).textContent = String(tick);
    }
    for (const tick of ticks(y0, y1)) {
      create("line", { class: "axis", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: toY(tick), y2: toY(tick) }, svg);
      create("text", { x: EDGE.left - 5, y: toY(tick) + 4, "text-anchor": "end" }, svg).textContent = String(tick);
    }
    const [across, up] = [this.x.value, this.y.value].map((key) => this.label(key));
    create("text", { x: (WIDTH + EDGE.left) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, svg).textContent = across;
    create("text", { transform: `translate(11 ${(HEIGHT - EDGE.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg).textContent = up;
    const whiskers = create("g", {}, svg);
    this.points = [];
    const own = this.run.adaptation?.own ?? 0;
    this.places = skills.map((i) => [toX(data[0][i].mean), toY(data[1][i].mean)]);
    for (const i of [...skills.slice(own), ...skills.slice(0, own)]) {
      const [px, py] = this.places[i];
      const colour = this.options.colour(i);
      const { mean, sd } = data[0][i];
      const other = data[1][i];
      const spread = { class: "spread", stroke: colour };
      create("line", { ...spread, x1: inside.x(toX(mean - sd)), x2: inside.x(toX(mean + sd)), y1: py, y2: py }, whiskers);
      create("line", { ...spread, x1: px, x2: px, y1: inside.y(toY(other.mean - other.sd)), y2: inside.y(toY(other.mean + other.sd)) }, whiskers);
      const point = create("circle", { class: "point", cx: px, cy: py, r: i < own ? 7.5 : 5.5, fill: colour, "data-skill": i }, svg);
      point.addEventListener("click", (event) => {
        this.near = i;
        this.options.chosen(i, (event as MouseEvent).shiftKey);
      });
      point.addEventListener("pointerenter", () => this.options.hint(this.describe(i)));
      this.points[i] = point;
      if (i < own) this.name(i, svg);
    }
    this.marks = create("g", {}, svg);
    this.mark();
  }

  /** Its name beside an entry, where there is more room. */
  private name(entry: number, parent: Element): void {
    const [x, y] = this.places[entry];
    const left = x > WIDTH / 2;
    const place = { x: left ? x - 16 : x + 16, y: y + 4, "text-anchor": left ? "end" : "start" };
    create("text", { class: "name", ...place }, parent).textContent = this.run.names[entry];
  }

  private label(key: string): string {
    const { label, unit } = this.run.measures.find((m) => m.key === key)!;
    return unit ? `${label} (${unit})` : label;
  }

  describe(skill: number): string {
    const part = (key: string) => {
      const { mean, sd } = this.summary(key, skill);
      const { label, unit } = this.run.measures.find((m) => m.key === key)!;
      const shown = key.startsWith("ms") ? "" : ` ${unit}`;
      return `${label} ${mean.toPrecision(3)} ± ${sd.toPrecision(2)}${shown}`;
    };
    return `${this.run.names[skill]}: ${part(this.x.value)}, ${part(this.y.value)}`;
  }

  private mark(): void {
    if (!this.marks) return;
    this.marks.replaceChildren();
    const focused = document.activeElement === this.box;
    this.points.forEach((point, i) => point.classList.toggle("near", focused && i === this.near));
    for (const entry of this.acting) {
      const [x, y] = this.places[entry];
      create("circle", { class: "acting", cx: x, cy: y, r: 11, stroke: this.options.colour(entry) }, this.marks!);
      this.name(entry, this.marks!);
    }
    this.playing.forEach((skill, tile) => {
      if (skill === null) return;
      const [x, y] = this.places[skill];
      create("circle", { class: "ring", cx: x, cy: y, r: 8.5 }, this.marks!);
      create("text", { class: "number", x: x + 10, y: y - 7 }, this.marks!).textContent = String(tile + 1);
    });
  }

  /** Arrow keys go to the nearest skill in that direction, Enter plays it. */
  private key(event: KeyboardEvent): void {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Enter") this.options.chosen(this.near, event.shiftKey);
    else if (direction) {
      const [x, y] = this.places[this.near];
      let best = { cost: Infinity, skill: this.near };
      this.places.forEach(([px, py], skill) => {
        const along = (px - x) * direction[0] + (py - y) * direction[1];
        const aside = Math.abs((px - x) * direction[1]) + Math.abs((py - y) * direction[0]);
        const cost = along + 2 * aside;
        if (along > 0.5 && cost < best.cost) best = { cost, skill };
      });
      this.near = best.skill;
    } else return;
    event.preventDefault();
    event.stopPropagation();
    this.options.hint(this.describe(this.near));
    this.mark();
  }
}
