// The page against Python: the policy on recorded states, one control step from recorded states.

import type { Controller } from "./controller";
import { row, type RunData } from "./data";
import type { Policy } from "./policy";
import type { Simulation } from "./world";

export const LIMIT = 1e-5;

export interface SelfTest {
  action: number; // largest difference of an action
  step: number; // of a position or velocity after one control step
  observation: number; // of the observation after it, in units of 1 + its size
  choice: number; // of a controller's skill
  passed: boolean;
}

export function selfTest(run: RunData, policy: Policy, controller: Controller | null, simulation: Simulation): SelfTest {
  const { checks } = run;
  const worst = { action: 0, step: 0, observation: 0, choice: 0 };
  const compare = (key: keyof typeof worst, ours: ArrayLike<number>, theirs: ArrayLike<number>, relative = false) => {
    if (ours.length !== theirs.length) worst[key] = Infinity;
    for (let i = 0; i < theirs.length; i++) {
      const difference = Math.abs(ours[i] - theirs[i]) / (relative ? 1 + Math.abs(theirs[i]) : 1);
      worst[key] = Math.max(worst[key], Number.isFinite(difference) ? difference : Infinity);
    }
  };
  for (let i = 0; i < checks.obs.shape[0]; i++) {
    const action = row(checks.action, i);
    compare("action", policy.act(row(checks.obs, i), row(checks.skill, i)), action);
    const at = (state: typeof checks.before) =>
      Object.fromEntries(Object.entries(state).map(([name, values]) => [name, row(values, i)]));
    simulation.restore(at(checks.before));
    simulation.step(action);
    const ours = simulation.state();
    for (const [name, values] of Object.entries(at(checks.after))) compare("step", ours[name], values);
    compare("observation", simulation.observe(), row(checks.after_obs, i), true);
  }
  const choices = controller?.spec.checks;
  for (let i = 0; i < (choices?.obs.shape[0] ?? 0); i++) {
    compare("choice", controller!.choose(row(choices!.obs, i)), row(choices!.skill, i));
  }
  const passed = worst.action <= LIMIT && worst.step <= LIMIT && worst.choice <= LIMIT;
  return { ...worst, passed };
}
