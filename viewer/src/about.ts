// What the page says of the run, of itself and of what is on the stage.

import { SCALE } from "./colour";
import { discrete, separateSkills, type RunData } from "./data";
import { version } from "./physics";
import type { Player } from "./player";
import { LIMIT, type SelfTest } from "./selftest";

export function find<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** Heading, badge, how far to trust the page, and which controls make sense. */
export function describe(run: RunData, test: SelfTest): void {
  const { title, space, adaptation } = run;
  const heading = adaptation?.heading ?? `${title.method} on ${title.env}`;
  const kinds = { box: "dimensions of the cube", sphere: "dimensions of the sphere", "one-hot": "separate skills", none: "skills" };
  const about = adaptation?.about ?? `${space.dim} ${kinds[space.kind]}`;
  find("title").textContent = heading;
  find("subtitle").textContent = `seed ${title.seed}, ${title.step.toLocaleString("en")} steps, ${about}, run ${title.run}`;
  document.title = `${heading}, seed ${title.seed}: skill explorer`;
  const figures = figuresOf(run, test);
  const badge = find("trust");
  badge.className = `badge ${test.passed ? "good" : "bad"}`;
  badge.textContent = test.passed ? "✓ agrees with Python" : "✗ differs from Python: do not trust what is live";
  badge.title = figures;
  find("about").replaceChildren(
    ...trust(run, figures).map((line) => {
      const p = document.createElement("p");
      p.textContent = line;
      return p;
    }),
  );
  find("skills").hidden = space.kind === "none";
  find("random").hidden = discrete(run) || space.kind === "none";
  find("control").hidden = !adaptation?.controller;
  find("mix").hidden = find("legend").hidden = find("sliders-hint").hidden = separateSkills(run) > 0;
  const ends = { box: ["flag 0", "1"], sphere: ["z1 −1", "1"], "one-hot": [], none: [] };
  const [low, scale, high] = Array.from(find("legend").children) as HTMLElement[];
  [low.textContent, high.textContent] = ends[space.kind];
  scale.style.background = SCALE;
  find("hint").textContent = "Mean over starts; whiskers: one standard deviation. Click a skill to play it, shift-click to add it beside the others.";
}

function figuresOf({ versions, adaptation }: RunData, { action, step, choice }: SelfTest): string {
  const parts = [
    `largest difference of an action from torch ${versions.torch}: ${action.toExponential(1)}`,
    `of positions and velocities after one control step from Python: ${step.toExponential(1)}`,
  ];
  if (adaptation?.controller) parts.push(`of the controller's choice: ${choice.toExponential(1)}`);
  return `${parts.join("; ")} (limit ${LIMIT})`;
}

function trust(run: RunData, figures: string): string[] {
  const { versions, values, world, space } = run;
  const named = space.kind === "box" && !separateSkills(run);
  return [
    `Self-test when the page opened: ${figures}.`,
    `Recorded with comsd ${versions.comsd}${world.kind === "robot" ? ` and MuJoCo ${versions.mujoco}; live physics is MuJoCo ${version}, compiled to WebAssembly` : ""}. Actions are means, without exploration noise.`,
    `Every point of the map is the mean over ${values.shape[2]} starts, its whiskers one standard deviation. A click plays the first of these roll-outs as it was recorded.`,
    world.kind === "robot"
      ? "A robot on the ground is chaotic: from about step 80 two simulations from starts a millionth apart go separate ways, in Python too. Live and recorded roll-outs of one skill agree in kind, not in every step."
      : "Live paths differ from recorded ones by the random hundredth of a cell by which walls push back.",
    run.ends,
    ...(run.adaptation?.notes ?? []),
    ...(named ? ["Names of skills: c = 0.3 is 0.3 in every dimension; z1 = 0.3 is that flag, with 0.5 in all others."] : []),
    "The page makes no request to any network.",
  ];
}

/** Where what is on the stage comes from. */
export function status(run: RunData, players: Player[]): string {
  const robot = run.world.kind === "robot";
  const recordedWith = robot ? `Python, MuJoCo ${run.versions.mujoco}` : "Python";
  const here = robot ? `MuJoCo ${version} and the run's policy, in this page` : "the run's policy, in this page";
  const only = players.filter((p) => p.recordedOnly).map((p) => ` “${p.name}” can only be played as recorded.`);
  const said = players.some((p) => p.live)
    ? `Live: ${here}. The run was measured with ${recordedWith}. Numbers on the map belong to recorded roll-outs, not to what is live.`
    : `Recorded: the roll-outs that were measured (${recordedWith}), from the first of ${run.values.shape[2]} starts. ${toGoLive(run)} ${robot ? "a robot" : "the agent"}, and it goes on live from there.`;
  return said + (only[0] ?? "");
}

function toGoLive(run: RunData): string {
  if (run.space.kind === "none") return "Push";
  if (discrete(run)) return "Choose a candidate or push";
  return separateSkills(run) ? "Choose a live skill or push" : "Move a slider or push";
}
