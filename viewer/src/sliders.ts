// The numbers of a skill: those that matter most in sight, the rest folded away.

import { colourOf } from "./colour";
import { discrete, row, separateSkills, skillEntries, type RunData } from "./data";

const SHOWN = 6; // dimensions beside the flag

interface Chip {
  skill: Float32Array;
  name: string;
  label: string;
  flag: number;
}

export class Sliders {
  private inputs = new Map<number, HTMLInputElement>();
  private chips: { button: HTMLButtonElement; skill: Float32Array }[] = [];
  private skill: Float32Array;

  constructor(
    private run: RunData,
    private box: HTMLElement,
    private others: HTMLDetailsElement,
    private changed: (skill: Float32Array, name: string) => void,
  ) {
    this.skill = new Float32Array(run.space.dim);
    if (discrete(run)) this.makeChips(skillEntries(run).map((i) => this.entryChip(i)));
    else if (run.space.kind === "one-hot") this.makeChips(Array.from(this.skill, (_, i) => this.oneHotChip(i)));
    else this.makeSliders();
  }

  private makeSliders(): void {
    const { effects, space } = this.run;
    const order = Array.from({ length: space.dim }, (_, i) => i).sort((a, b) => effects[b] - effects[a]);
    const shown = order.length ? [0, ...order.filter((d) => d !== 0).slice(0, SHOWN)] : [];
    for (const d of shown) this.box.append(this.slider(d));
    const rest = order.filter((d) => !shown.includes(d));
    this.others.hidden = rest.length === 0;
    const [summary, list] = this.others.children;
    summary.textContent = `${rest.length} more dimensions, which change less`;
    for (const d of rest) list.append(this.slider(d));
  }

  private slider(d: number): HTMLElement {
    const row = document.createElement("div");
    row.className = "slider";
    const input = document.createElement("input");
    const [label, output, effect] = [document.createElement("label"), document.createElement("output"), document.createElement("span")];
    Object.assign(input, { type: "range", min: this.run.space.kind === "sphere" ? "-1" : "0", max: "1", step: "0.01", id: `z${d + 1}` });
    label.htmlFor = input.id;
    label.textContent = d === 0 && this.run.space.kind === "box" ? "z1, the flag" : `z${d + 1}`;
    effect.className = "effect";
    effect.style.width = `${(100 * (this.run.effects[d] ?? 0)) / Math.max(...this.run.effects, 1e-9)}%`;
    effect.title = "how much behaviour changes from one end to the other, measured";
    input.addEventListener("input", () => {
      const skill = Float32Array.from(this.skill);
      skill[d] = Number(input.value);
      if (this.run.space.kind === "sphere") normalise(skill);
      this.changed(skill, `z${d + 1} moved`);
    });
    label.append(effect);
    row.append(label, input, output);
    this.inputs.set(d, input);
    return row;
  }

  private oneHotChip(i: number): Chip {
    const skill = new Float32Array(this.run.space.dim);
    skill[i] = 1;
    return { skill, name: `skill ${i}`, label: `live ${i}`, flag: i / Math.max(1, skill.length - 1) };
  }

  private entryChip(entry: number): Chip {
    const name = this.run.names[entry];
    return { skill: row(this.run.skills, entry), name, label: name.split(" ").pop()!, flag: this.run.flags[entry] };
  }

  private makeChips(chips: Chip[]): void {
    this.box.classList.add("chips");
    this.others.hidden = true;
    this.chips = chips.map(({ skill, name, label, flag }) => {
      const [button, dot] = [document.createElement("button"), document.createElement("i")];
      dot.style.background = colourOf(flag, separateSkills(this.run));
      button.append(dot, label);
      button.title = `act live with ${name}`;
      button.addEventListener("click", () => this.changed(Float32Array.from(skill), name));
      this.box.append(button);
      return { button, skill };
    });
  }

  show(skill: Float32Array): void {
    this.skill = skill;
    for (const [d, input] of this.inputs) {
      if (Math.abs(Number(input.value) - skill[d]) > 0.005) input.value = String(skill[d]);
      (input.nextElementSibling as HTMLOutputElement).textContent = skill[d].toFixed(2);
    }
    for (const chip of this.chips) {
      chip.button.setAttribute("aria-pressed", String(chip.skill.every((x, d) => x === skill[d])));
    }
  }
}

export function normalise(skill: Float32Array): void {
  const length = Math.hypot(...skill) || 1;
  skill.forEach((x, i) => (skill[i] = x / length));
}

/** A draw from the space's prior. */
export function randomSkill(run: RunData): Float32Array {
  const { kind, dim } = run.space;
  const skill = new Float32Array(dim);
  if (kind === "box") return skill.map(() => Math.random());
  if (kind === "one-hot") {
    skill[Math.floor(Math.random() * dim)] = 1;
    return skill;
  }
  const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  const drawn = skill.map(normal);
  normalise(drawn);
  return drawn;
}
