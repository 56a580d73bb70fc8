// From the flag of a skill to its colour: blue to red, or a hue for each of separate skills.

const STOPS: [number, number, number][] = [
  [52, 84, 181],
  [36, 140, 158],
  [86, 165, 92],
  [232, 174, 60],
  [216, 84, 58],
];

/** As the background of a legend. */
export const SCALE = `linear-gradient(90deg, ${STOPS.map((stop) => `rgb(${stop.join(", ")})`).join(", ")})`;

export function colourOf(flag: number, separate = false): string {
  if (separate) return `hsl(${Math.round(300 * flag + 212) % 360} 58% 48%)`;
  const x = Math.max(0, Math.min(1, flag)) * (STOPS.length - 1);
  const i = Math.min(Math.floor(x), STOPS.length - 2);
  const mix = STOPS[i].map((a, k) => Math.round(a + (STOPS[i + 1][k] - a) * (x - i)));
  return `rgb(${mix.join(", ")})`;
}
