// What is seen, in the address of the page: numbers only, and nothing else is read from it.
//
//   #skills=3;17;0.5,0.25,...&start=1
//
// An integer is an exported skill, played as recorded; numbers with commas are a skill, played live.

export interface Seen {
  skills: (number | Float32Array)[];
  start: number;
}

export function writeAddress({ skills, start }: Seen): string {
  const one = (skill: number | Float32Array) =>
    typeof skill === "number" ? String(skill) : Array.from(skill, (x) => String(+x.toFixed(3))).join(",");
  return `#skills=${skills.map(one).join(";")}&start=${start}`;
}

/** Null if it is anything but numbers that fit. */
export function readAddress(hash: string, dim: number, exported: number, starts: number): Seen | null {
  const match = /^#skills=([-0-9.,;]{1,20000})&start=([0-9]{1,4})$/.exec(hash);
  if (!match) return null;
  const start = Number(match[2]);
  const skills = match[1].split(";").map((text) => {
    const numbers = text.split(",").map((part) => (part === "" ? NaN : Number(part)));
    return numbers.length === 1 && dim !== 1 && Number.isInteger(numbers[0])
      ? numbers[0]
      : Float32Array.from(numbers);
  });
  const fits = (skill: number | Float32Array) =>
    typeof skill === "number"
      ? skill >= 0 && skill < exported
      : skill.length === dim && skill.every((x) => Math.abs(x) <= 1);
  const whole = skills.length <= 9 && start < starts && skills.every(fits);
  return whole ? { skills, start } : null;
}
