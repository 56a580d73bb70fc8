// One agent on the stage: a recorded roll-out, or the policy live.

import type { Controller } from "./controller";
import { discrete, nearestEntry, recorded, row, type RunData } from "./data";
import type { Policy } from "./policy";
import type { Point, Simulation } from "./world";

const TRAIL = 600; // control steps
export const REMEMBERED = 10; // seconds of a controller's choices

export class Player {
  live = false;
  controlled = false; // its skill is the controller's choice
  exported: number | null = null; // which entry of the map
  skill: Float32Array;
  flag = 0;
  name = "";
  step = 0;
  start = 0;
  trail: Point[] = [];
  past: Point[][] = []; // earlier trails, of mazes
  flags: number[] = []; // of the controller's choices, step by step
  private frames: Float32Array[] = [];
  private left = 0; // steps until the controller chooses again

  constructor(
    readonly run: RunData,
    readonly policy: Policy,
    readonly simulation: Simulation,
    readonly controller: Controller | null = null,
  ) {
    this.skill = new Float32Array(run.space.dim);
  }

  /** The roll-out that was measured. */
  play(exported: number): void {
    this.exported = exported;
    this.controlled = this.controller !== null && exported === 0;
    this.skill = Float32Array.from(row(this.run.skills, exported));
    this.name = this.run.names[exported];
    this.flag = this.run.flags[exported];
    this.frames = recorded(this.run, exported);
    this.live = false;
    this.past = [];
    this.restart();
  }

  /** A skill that goes on live from where the agent is. */
  use(skill: Float32Array, name: string): void {
    this.exported = null;
    this.goLive();
    this.controlled = false;
    this.name = name;
    this.take(skill);
  }

  /** The controller goes on from where the agent is. */
  control(): void {
    if (!this.controlled) this.exported = null;
    this.goLive();
    if (!this.controlled) [this.left, this.flags] = [0, []];
    this.controlled = true;
    this.exported = 0;
    this.name = this.run.names[0];
  }

  /** The candidate that a discrete controller has chosen. */
  get candidate(): number | null {
    return this.controlled && discrete(this.run) ? nearestEntry(this.run, this.skill) : null;
  }

  /** Its name, and what the controller has chosen. */
  get title(): string {
    return this.candidate === null ? this.name : `${this.name}: ${this.run.names[this.candidate]}`;
  }

  /** Is it a roll-out by a policy that the page does not have? */
  get recordedOnly(): boolean {
    return this.exported !== null && this.exported === this.run.adaptation?.recorded_only;
  }

  private take(skill: Float32Array): void {
    this.skill = skill;
    this.flag = flagOf(this.run, skill);
  }

  private chooseSkill(): void {
    const { controller } = this;
    if (!this.live) this.take(controller!.recorded(this.step));
    else if (this.left === 0) this.take(controller!.choose(this.simulation.observe()));
    if (this.live) this.left = (this.left || controller!.spec.hold) - 1;
    this.flags.push(this.flag);
    if (this.flags.length > REMEMBERED / this.run.dt) this.flags.shift();
  }

  goLive(): void {
    if (this.live || this.recordedOnly) return;
    this.live = true;
    this.left = this.controller?.untilChoice(this.step) ?? 0;
    if (this.frames.length) {
      const t = Math.min(this.step, this.frames.length - 1);
      if (t > 0) this.simulation.pose(this.frames[t], this.frames[t - 1]);
      else this.simulation.reset(this.start);
    } else this.simulation.reset(this.start);
  }

  restart(): void {
    this.step = 0;
    if (this.trail.length > 1 && this.run.world.kind === "maze") this.past = [...this.past.slice(-7), this.trail];
    [this.trail, this.flags, this.left] = [[], [], 0];
    if (this.controlled && !this.live) this.take(this.controller!.recorded(0));
    this.simulation.reset(this.live ? this.start : 0);
    this.leaveTrail();
  }

  /** One control step; episodes of mazes and recordings begin again when they end. */
  advance(): void {
    const end = this.live ? this.run.horizon : this.frames.length - 1;
    if (this.step >= end && (!this.live || this.run.world.kind === "maze")) return this.restart();
    if (this.controlled) this.chooseSkill();
    this.step++;
    if (this.live) this.simulation.step(this.policy.act(this.simulation.observe(), this.skill));
    else this.simulation.pose(this.frames[this.step]);
    this.leaveTrail();
  }

  push(force: Point, body?: number): void {
    this.goLive();
    if (this.live) this.simulation.push(force, body);
  }

  private leaveTrail(): void {
    this.trail.push(this.simulation.place());
    if (this.trail.length > TRAIL) this.trail.shift();
  }

  /** Metres per second over the last second. */
  speed(): number {
    const steps = Math.min(this.trail.length - 1, Math.round(1 / this.run.dt));
    if (steps < 1) return 0;
    const [a, b] = [this.trail[this.trail.length - 1 - steps], this.trail[this.trail.length - 1]];
    const distance = (this.run.world as { planar?: boolean }).planar ? b[0] - a[0] : Math.hypot(b[0] - a[0], b[1] - a[1]);
    return distance / (steps * this.run.dt);
  }
}

/** In [0, 1]: what orders the skills. */
export function flagOf(run: RunData, skill: Float32Array): number {
  if (discrete(run)) return run.flags[nearestEntry(run, skill)];
  if (run.space.kind === "none") return 0;
  if (run.space.kind === "box") return skill[0];
  if (run.space.kind === "sphere") return (skill[0] + 1) / 2;
  return skill.indexOf(Math.max(...skill)) / Math.max(1, run.space.dim - 1);
}
