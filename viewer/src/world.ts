// What robots and mazes have in common.

export type Point = [number, number, number];

/** One environment with one agent in it. */
export interface Simulation {
  /** The start of an episode. */
  reset(start: number): void;
  observe(): Float32Array;
  /** One control step. */
  step(action: Float32Array): void;
  /** Set the pose to a recorded one; with the one before it, go on live from there. */
  pose(numbers: Float32Array, before?: Float32Array): void;
  /** Set the complete state, by field. */
  restore(state: Record<string, Float64Array>): void;
  state(): Record<string, Float64Array>;
  /** Where the agent is. */
  place(): Point;
  /** For some time, a force on the agent in units of its weight, by default on its root. */
  push(force: Point, body?: number): void;
  /** Free the memory outside JavaScript, which is not collected. */
  close(): void;
}
