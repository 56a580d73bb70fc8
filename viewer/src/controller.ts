// The controller of a combined run: which skill acts, chosen anew every few steps.

import { row, type ControllerSpec } from "./data";
import { Policy } from "./policy";

const NO_SKILL = new Float32Array(0);

export class Controller {
  private policy: Policy;

  constructor(readonly spec: ControllerSpec) {
    this.policy = new Policy(spec.policy);
  }

  /** The skill of its choice. */
  choose(obs: Float32Array): Float32Array {
    return Float32Array.from(this.policy.act(obs, NO_SKILL));
  }

  /** The skill that acted in a step of the recorded roll-out. */
  recorded(step: number): Float32Array {
    const { choices, hold } = this.spec;
    return row(choices, Math.min(Math.floor(step / hold), choices.shape[0] - 1));
  }

  /** Control steps until the next choice, after so many. */
  untilChoice(steps: number): number {
    const { hold } = this.spec;
    return (hold - (steps % hold)) % hold;
  }
}
