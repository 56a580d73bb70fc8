// A point in a maze, as in comsd.envs.maze.

import { row, type MazeSpec } from "./data";
import type { Point, Simulation } from "./world";

const UP = 0, RIGHT = 1, DOWN = 2, LEFT = 3, STAY = 4;

export class MazeSimulation implements Simulation {
  position: [number, number] = [0, 0];
  private cell = 0;
  private pushed: [number, number] | null = null;

  constructor(
    readonly spec: MazeSpec,
    public random: () => number = Math.random,
  ) {}

  close(): void {}

  reset(start: number): void {
    const [x, y] = row(this.spec.starts.position, start);
    this.position = [x, y];
    this.cell = this.spec.start;
    this.pushed = null;
  }

  restore(state: Record<string, Float64Array>): void {
    this.pose(Float32Array.from(state.position));
    this.position = [state.position[0], state.position[1]];
    this.cell = state.cell[0];
  }

  state(): Record<string, Float64Array> {
    return { position: Float64Array.from(this.position), cell: Float64Array.of(this.cell) };
  }

  pose(numbers: Float32Array): void {
    this.position = [numbers[0], numbers[1]];
    const distance = ([x, y]: [number, number]) => Math.hypot(x - numbers[0], y - numbers[1]);
    const nearest = this.spec.cells.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    this.cell = this.spec.cells.indexOf(nearest);
  }

  observe(): Float32Array {
    return Float32Array.from(this.position);
  }

  /** Each axis crosses at most one edge, the one that is reached first first. */
  step(action: Float32Array): void {
    const { cells, next, reach, pull_back: pullBack } = this.spec;
    const delta = [0, 1].map((i) => reach * Math.max(-1, Math.min(1, action[i] + (this.pushed?.[i] ?? 0))));
    this.pushed = null;
    const centre = cells[this.cell];
    const target = delta.map((d, i) => this.position[i] + d);
    const towards = delta.map((d) => (d < 0 || Object.is(d, -0) ? -0.5 : 0.5));
    const edge = towards.map((t, i) => centre[i] + t);
    const crosses = target.map((t, i) => Math.abs(t - centre[i]) > 0.5);
    const when = delta.map((d, i) => (crosses[i] ? (edge[i] - this.position[i]) / d : Infinity));
    const side = delta.map((d, i) => (crosses[i] ? (d > 0 ? [RIGHT, UP][i] : [LEFT, DOWN][i]) : STAY));
    const order = when[1] < when[0] ? [1, 0] : [0, 1];
    const blocked = [false, false];
    for (const axis of order) {
      const behind = next[this.cell][side[axis]];
      blocked[axis] = behind < 0;
      if (behind >= 0) this.cell = behind;
    }
    for (const i of [0, 1]) {
      const back = 1e-6 + pullBack * this.random();
      this.position[i] = blocked[i] ? edge[i] - 2 * towards[i] * back : target[i];
    }
  }

  place(): Point {
    return [this.position[0], this.position[1], 0];
  }

  push(force: Point): void {
    this.pushed = [force[0], force[1] + force[2]];
  }
}
