// What Python wrote into the page: a JSON header, and its arrays in one compressed block.

export type Numbers = Float32Array | Float64Array | Uint8Array;

export interface Packed<T extends Numbers = Numbers> {
  data: T;
  shape: number[];
}

export type Argument = null | number | boolean | string | { node: number } | Packed<Float32Array> | Argument[];

export interface PolicyGraph {
  nodes: { op: string; args: Argument[] }[];
  output: number;
}

export interface Part {
  field: string;
  index: number[];
  transform: "log1p" | "arcsinh" | "sin" | "cos" | null;
  clip: [number, number] | null; // before the transform
}

type Rounded = { field: string; values: Packed<Float64Array> }[];

export interface ModelSpec {
  xml: string;
  files: { name: string; bytes: Packed<Uint8Array> }[]; // of meshes
  numbers: Rounded; // what the text rounds
  options: Rounded;
  flags: Record<string, number>;
  timestep: number;
  mean_inertia: number;
}

export interface RobotSpec {
  kind: "robot";
  model: ModelSpec;
  order: "dm_control" | "mj_rnePostConstraint" | "mj_forward" | ""; // or what follows the substeps
  substeps: number;
  recipe: Part[];
  low: Packed<Float32Array>;
  scale: Packed<Float32Array>;
  root: number;
  planar: boolean;
  starts: Record<string, Packed<Float64Array>>; // qpos, qvel, act, qacc_warmstart: (starts, .)
}

export interface MazeSpec {
  kind: "maze";
  cells: [number, number][];
  next: number[][]; // by cell: the one up, right, down, left, -1 for a wall, and itself
  walls: [number, number][][];
  start: number; // cell
  reach: number;
  pull_back: number;
  starts: Record<string, Packed<Float64Array>>; // position: (starts, 2)
}

export interface Measure {
  key: string;
  label: string;
  unit: string;
}

export interface Checks {
  obs: Packed<Float32Array>;
  skill: Packed<Float32Array>;
  action: Packed<Float32Array>;
  before: Record<string, Packed<Float64Array>>;
  after: Record<string, Packed<Float64Array>>;
  after_obs: Packed<Float32Array>;
}

export interface ControllerSpec {
  policy: PolicyGraph; // of an observation and no skill; its output is the skill
  hold: number; // control steps of a choice
  discrete: boolean; // chooses among the skills of the map
  choices: Packed<Float32Array>; // (choices, dim), of the recorded roll-out
  checks: { obs: Packed<Float32Array>; skill: Packed<Float32Array> };
}

/** What a task made of the skills: its entries come first among the names and skills. */
export interface Adaptation {
  heading: string;
  about: string;
  notes: string[];
  own: number; // how many entries
  recorded_only: number | null; // the entry of a policy that the page does not have
  opening: number[]; // entries shown first
  controller: ControllerSpec | null; // who acts in entry 0
}

export interface RunData {
  title: { method: string; env: string; seed: number; step: number; run: string };
  versions: { comsd: string; mujoco: string; torch: string };
  space: { kind: "box" | "sphere" | "one-hot" | "none"; dim: number };
  dt: number; // seconds per control step
  horizon: number;
  ends: string; // what happens when an episode would end
  policy: PolicyGraph;
  world: RobotSpec | MazeSpec;
  names: string[]; // of the exported skills
  skills: Packed<Float32Array>; // (skills, dim)
  flags: number[]; // of each skill, in [0, 1]
  measures: Measure[];
  axes: [string, string]; // shown first
  values: Packed<Float32Array>; // (measures, skills, starts)
  effects: number[]; // by dimension: how much behaviour changes; empty where it has no meaning
  recording: {
    codes: Packed<Uint8Array>; // (2, skills, numbers, time): differences in time, by byte
    low: Packed<Float32Array>; // (skills, numbers)
    step: Packed<Float32Array>;
    lengths: number[]; // by skill, the start included
  };
  checks: Checks;
  adaptation?: Adaptation; // of adapted runs
}

function bytesOf(id: string): Uint8Array<ArrayBuffer> {
  const text = document.getElementById(id)!.textContent!.trim();
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** The content of a compressed block of the page. */
export async function unpack(id: string): Promise<ArrayBuffer> {
  const stream = new Blob([bytesOf(id)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

const KINDS = { f4: Float32Array, f8: Float64Array, u1: Uint8Array };

export async function readRun(): Promise<RunData> {
  const header = JSON.parse(document.getElementById("run")!.textContent!);
  const block = await unpack("arrays");
  const arrays: Packed[] = header.arrays.map(
    ([kind, shape, offset]: [keyof typeof KINDS, number[], number]) => {
      const size = shape.reduce((a, b) => a * b, 1);
      return { data: new KINDS[kind](block, offset, size), shape };
    },
  );
  const fill = (node: any): any => {
    if (Array.isArray(node)) return node.map(fill);
    if (node === null || typeof node !== "object") return node;
    if ("array" in node) return arrays[node.array];
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, fill(value)]));
  };
  return fill(header.run);
}

/** One row of a matrix, as a view. */
export function row<T extends Numbers>(matrix: Packed<T>, i: number): T {
  const size = matrix.data.length / matrix.shape[0];
  return matrix.data.subarray(i * size, (i + 1) * size) as T;
}

/** The entries that are skills. */
export function skillEntries(run: RunData): number[] {
  return run.names.map((_, i) => i).slice(run.adaptation?.own ?? 0);
}

/** Is there a choice among the entries only, as a discrete controller has it? */
export function discrete(run: RunData): boolean {
  return run.adaptation?.controller?.discrete ?? false;
}

/** How many there are, where they have no scale from one to the other. */
export function separateSkills(run: RunData): number {
  if (discrete(run)) return skillEntries(run).length;
  return { "one-hot": run.space.dim, none: 1, box: 0, sphere: 0 }[run.space.kind];
}

/** The nearest of the entries. */
export function nearestEntry(run: RunData, skill: Float32Array): number {
  const distance = (i: number) => row(run.skills, i).reduce((sum, x, d) => sum + (x - skill[d]) ** 2, 0);
  return skillEntries(run).reduce((a, b) => (distance(b) < distance(a) ? b : a));
}

/** The recorded roll-out of a skill: a row of numbers for each time, the start first. */
export function recorded(run: RunData, skill: number): Float32Array[] {
  const { codes, low, step, lengths } = run.recording;
  const [, skills, numbers, time] = codes.shape;
  const high = skills * numbers * time; // where the second byte of all begins
  const rows = Array.from({ length: time }, () => new Float32Array(numbers));
  for (let n = 0; n < numbers; n++) {
    const at = (skill * numbers + n) * time;
    let value = 0;
    for (let t = 0; t < time; t++) {
      value = (value + codes.data[at + t] + 256 * codes.data[high + at + t]) & 0xffff;
      rows[t][n] = low.data[skill * numbers + n] + step.data[skill * numbers + n] * value;
    }
  }
  return rows.slice(0, lengths[skill]);
}
