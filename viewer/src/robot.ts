// A robot: the model, the control step and the observations, as in comsd.envs.

import type { MjData, MjModel } from "@mujoco/mujoco";
import { row, type ModelSpec, type Part, type RobotSpec } from "./data";
import type { Mujoco } from "./physics";
import type { Point, Simulation } from "./world";

const TRANSFORMS = { log1p: Math.log1p, arcsinh: Math.asinh, sin: Math.sin, cos: Math.cos };
const STATE = ["qpos", "qvel", "act", "qacc_warmstart"]; // all that the next step depends on
const NO_ACTUATION = 1 << 11; // mjDSBL_ACTUATION, checked against the module below

export class RobotWorld {
  readonly model: MjModel;
  readonly mass: number;
  readonly gravity: number;
  readonly reach: number; // from the root to the end of the limbs

  constructor(
    readonly mj: Mujoco,
    readonly spec: RobotSpec,
  ) {
    this.model = build(mj, spec.model);
    const model = this.model as any;
    this.mass = model.body_mass.reduce((a: number, b: number) => a + b, 0);
    this.gravity = Math.abs(model.opt.gravity[2]) || 9.81;
    this.reach = this.measureReach();
  }

  private measureReach(): number {
    const model = this.model as any;
    const data = new this.mj.MjData(this.model);
    this.mj.mj_kinematics(this.model, data);
    const { geom_xpos: at, xpos } = data as any;
    const root = 3 * this.spec.root;
    let reach = 0;
    for (let g = 0; g < model.ngeom; g++) {
      if (model.geom_bodyid[g] === 0) continue; // of the world
      const distance = Math.hypot(at[3 * g] - xpos[root], at[3 * g + 1] - xpos[root + 1], at[3 * g + 2] - xpos[root + 2]);
      reach = Math.max(reach, distance + model.geom_rbound[g]);
    }
    data.delete();
    return reach || 1;
  }

  simulation(): RobotSimulation {
    return new RobotSimulation(this);
  }
}

function build(mj: Mujoco, spec: ModelSpec): MjModel {
  const files = new mj.MjVFS();
  for (const { name, bytes } of spec.files) files.addBuffer(name, bytes.data);
  const model = mj.MjModel.from_xml_string(spec.xml, files);
  files.delete();
  if (!model) throw new Error("MuJoCo cannot read the model");
  // A text has six digits; these are the numbers that it rounds.
  for (const [owner, rounded] of [[model, spec.numbers], [model.opt, spec.options]] as [any, ModelSpec["numbers"]][]) {
    for (const { field, values } of rounded) {
      if (owner[field]?.length !== values.data.length) throw new Error(`the model has no such ${field}`);
      owner[field].set(values.data);
    }
  }
  Object.assign(model.opt, spec.flags, { timestep: spec.timestep });
  (model as any).stat.meaninertia = spec.mean_inertia;
  return model;
}

export class RobotSimulation implements Simulation {
  readonly data: MjData;
  private size: number;
  private pushed: { body: number; force: Point; steps: number } | null = null;

  constructor(readonly world: RobotWorld) {
    this.data = new world.mj.MjData(world.model);
    this.size = world.spec.recipe.reduce((n, part) => n + part.index.length, 0);
  }

  close(): void {
    this.data.delete();
  }

  reset(start: number): void {
    const { mj, model, spec } = this.world;
    mj.mj_resetData(model, this.data);
    this.pushed = null;
    const state = Object.fromEntries(STATE.map((name) => [name, row(spec.starts[name], start)]));
    if (spec.order !== "dm_control") return this.restore(state);
    this.set(state);
    // As in Python: the first observation is that of a robot without actuation.
    const options = (model as any).opt;
    const flag = (mj as any).mjtDisableBit?.mjDSBL_ACTUATION?.value ?? NO_ACTUATION;
    options.disableflags |= flag;
    mj.mj_forward(model, this.data);
    options.disableflags &= ~flag;
  }

  restore(state: Record<string, Float64Array>): void {
    this.world.mj.mj_resetData(this.world.model, this.data);
    this.set(state);
    if (this.world.spec.order === "dm_control") return this.world.mj.mj_step1(this.world.model, this.data);
    this.world.mj.mj_forward(this.world.model, this.data);
    this.set(state); // the warm start, which this has changed
  }

  private set(state: Record<string, Float64Array>): void {
    const data = this.data as any;
    for (const name of STATE) if (state[name]?.length) data[name].set(state[name]);
  }

  state(): Record<string, Float64Array> {
    const data = this.data as any;
    return Object.fromEntries(STATE.map((name) => [name, Float64Array.from(data[name] ?? [])]));
  }

  pose(numbers: Float32Array, before?: Float32Array): void {
    const { mj, model } = this.world;
    const data = this.data as any;
    data.qpos.set(numbers);
    data.qvel.fill(0);
    if (before) {
      const dt = this.controlStep();
      const velocity = new mj.DoubleBuffer(data.qvel.length);
      mj.mj_differentiatePos(model, velocity, dt, Array.from(before), Array.from(numbers));
      data.qvel.set(velocity.GetView());
      velocity.delete();
      data.act?.fill?.(0);
      mj.mj_forward(model, this.data);
      this.finish();
    } else mj.mj_kinematics(model, this.data);
  }

  private controlStep(): number {
    return (this.world.model as any).opt.timestep * this.world.spec.substeps;
  }

  step(action: Float32Array): void {
    const { mj, model, spec } = this.world;
    const low = spec.low.data;
    const scale = spec.scale.data;
    const control = (this.data as any).ctrl;
    for (let i = 0; i < action.length; i++) {
      const direct = low[i] === -1 && scale[i] === 1;
      control[i] = direct ? action[i] : Math.fround(low[i] + Math.fround(scale[i] * Math.fround(action[i] + 1)));
    }
    this.applyPush();
    if (spec.order !== "dm_control") {
      for (let i = 0; i < spec.substeps; i++) mj.mj_step(model, this.data);
      return this.finish();
    }
    mj.mj_step2(model, this.data);
    for (let i = 1; i < spec.substeps; i++) mj.mj_step(model, this.data);
    mj.mj_step1(model, this.data);
  }

  /** What the environment calls after its substeps. */
  private finish(): void {
    const { mj, model, spec } = this.world;
    if (spec.order === "mj_rnePostConstraint" || spec.order === "mj_forward") mj[spec.order](model, this.data);
  }

  observe(): Float32Array {
    const obs = new Float32Array(this.size);
    let at = 0;
    for (const part of this.world.spec.recipe) at = this.read(part, obs, at);
    return obs;
  }

  private read(part: Part, obs: Float32Array, at: number): number {
    const field = (this.data as any)[part.field];
    const transform = part.transform && TRANSFORMS[part.transform];
    const [low, high] = part.clip ?? [-Infinity, Infinity];
    for (const i of part.index) {
      const value = Math.max(low, Math.min(high, field[i]));
      obs[at++] = transform ? transform(value) : value;
    }
    return at;
  }

  place(): Point {
    const at = 3 * this.world.spec.root;
    const xpos = (this.data as any).xpos;
    return [xpos[at], xpos[at + 1], xpos[at + 2]];
  }

  push(force: Point, body = this.world.spec.root): void {
    const steps = Math.max(1, Math.round(0.1 / this.controlStep()));
    this.pushed = { force, body, steps };
  }

  private applyPush(): void {
    const applied = (this.data as any).xfrc_applied;
    applied.fill(0);
    if (!this.pushed) return;
    const weight = this.world.mass * this.world.gravity;
    this.pushed.force.forEach((f, i) => (applied[6 * this.pushed!.body + i] = f * weight));
    if (--this.pushed.steps <= 0) this.pushed = null;
  }
}
