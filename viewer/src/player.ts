// One agent on the stage: a recorded roll-out, or the policy live.

import { recorded, row, type RunData } from "./data";
import type { Policy } from "./policy";
import type { Point, Simulation } from "./world";

const TRAIL = 600; // control steps

export class Player {
  live = false;
  exported: number | null = null; // which skill of the map
  skill: Float32Array;
  flag = 0;
  name = "";
  step = 0;
  start = 0;
  trail: Point[] = [];
  past: Point[][] = []; // earlier trails, of mazes
  private frames: Float32Array[] = [];

  constructor(
    readonly run: RunData,
    readonly policy: Policy,
    readonly simulation: Simulation,
  ) {
    this.skill = new Float32Array(run.space.dim);
  }

  /** The roll-out that was measured. */
  play(exported: number): void {
    this.exported = exported;
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
    this.goLive();
    this.skill = skill;
    this.exported = null;
    this.name = name;
    this.flag = flagOf(this.run, skill);
  }

  goLive(): void {
    if (this.live) return;
    this.live = true;
    if (this.frames.length) {
      const t = Math.min(this.step, this.frames.length - 1);
      if (t > 0) this.simulation.pose(this.frames[t], this.frames[t - 1]);
      else this.simulation.reset(this.start);
    } else this.simulation.reset(this.start);
  }

  restart(): void {
    this.step = 0;
    if (this.trail.length > 1 && this.run.world.kind === "maze") this.past = [...this.past.slice(-7), this.trail];
    this.trail = [];
    this.simulation.reset(this.live ? this.start : 0);
    this.leaveTrail();
  }

  /** One control step; episodes of mazes and recordings begin again when they end. */
  advance(): void {
    const end = this.live ? this.run.horizon : this.frames.length - 1;
    if (this.step >= end && (!this.live || this.run.world.kind === "maze")) return this.restart();
    this.step++;
    if (this.live) this.simulation.step(this.policy.act(this.simulation.observe(), this.skill));
    else this.simulation.pose(this.frames[this.step]);
    this.leaveTrail();
  }

  push(force: Point, body?: number): void {
    this.goLive();
    this.simulation.push(force, body);
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
  if (run.space.kind === "box") return skill[0];
  if (run.space.kind === "sphere") return (skill[0] + 1) / 2;
  return skill.indexOf(Math.max(...skill)) / Math.max(1, run.space.dim - 1);
}
