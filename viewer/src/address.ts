// What is seen, in the address of the page: numbers and one letter, and nothing else is read from it.
//
//   #skills=3;17;0.5,0.25,...;c&start=1
//
// An integer is an exported skill, played as recorded; numbers with commas are a skill, played live;
// c is the controller, live.

type Skill = number | Float32Array | "c";

export interface Seen {
  skills: Skill[];
  start: number;
}

export function writeAddress({ skills, start }: Seen): string {
  const one = (skill: Skill) =>
    typeof skill !== "object" ? String(skill) : Array.from(skill, (x) => String(+x.toFixed(3))).join(",");
  return `#skills=${skills.map(one).join(";")}&start=${start}`;
}

/** Null if it is anything but what fits. */
export function readAddress(
  hash: string,
  { dim, exported, starts, controlled }: { dim: number; exported: number; starts: number; controlled: boolean },
): Seen | null {
  const match = /^#skills=([-0-9.,;c]{1,20000})&start=([0-9]{1,4})$/.exec(hash);
  if (!match) return null;
  const start = Number(match[2]);
  const skills = match[1].split(";").map((text): Skill => {
    if (text === "c") return text;
    const numbers = text.split(",").map((part) => (part === "" ? NaN : Number(part)));
    return numbers.length === 1 && dim !== 1 && Number.isInteger(numbers[0])
      ? numbers[0]
      : Float32Array.from(numbers);
  });
  const inSpace = (skill: Float32Array) => skill.length === dim && skill.every((x) => Math.abs(x) <= 1);
  const fits = (skill: Skill) =>
    skill === "c" ? controlled : typeof skill === "number" ? skill >= 0 && skill < exported : inSpace(skill);
  const whole = skills.length <= 9 && start < starts && skills.every(fits);
  return whole ? { skills, start } : null;
}
