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

const FEW = 10; // that hues alone tell apart

export const INK = "#18212f"; // of a controller, who has all skills
export const GREY = "#8a94a3"; // of what was before

/** separate: how many there are without a scale between them; of many, every other one is darker. */
export function colourOf(flag: number, separate = 0): string {
  if (separate) {
    const lightness = separate <= FEW ? 48 : Math.round(flag * (separate - 1)) % 2 ? 60 : 40;
    return `hsl(${Math.round(300 * flag + 212) % 360}, 58%, ${lightness}%)`;
  }
  const x = Math.max(0, Math.min(1, flag)) * (STOPS.length - 1);
  const i = Math.min(Math.floor(x), STOPS.length - 2);
  const mix = STOPS[i].map((a, k) => Math.round(a + (STOPS[i + 1][k] - a) * (x - i)));
  return `rgb(${mix.join(", ")})`;
}
