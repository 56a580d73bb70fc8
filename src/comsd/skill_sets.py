"""The skills that are looked at, by name: sweeps through the skill space, in a fixed order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from comsd.errors import InputError
from comsd.skills import Box, OneHot, SkillSpace, Sphere

SWEEP_SIZE = 11  # skills of the ordered sweeps, as in the paper, or all of a space with fewer
RANDOM_SKILLS = 12
IDENTIFIED = 32  # skills to identify, or all of a space with fewer
FLAGS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # where activity along the flag is measured
SWEEPS = {
    "constant": "box: c (1, ..., 1), c = 0 to 1, the paper's; sphere: a circle; one-hot: first 11",
    "flag": "box: the first coordinate swept, the others 0.5",
    "random": "random skills, the same for every run; none if constant has all",
}


def random_skills(space: SkillSpace, n: int = RANDOM_SKILLS) -> Tensor:
    """The same for every run; of a finite space none twice."""
    n = min(n, space.dim) if isinstance(space, OneHot) else n
    return space.sample_balanced(n, np.random.default_rng(0))


def skill_sweeps(space: SkillSpace, n_random: int = RANDOM_SKILLS) -> dict[str, Tensor]:
    """Skills (n, Z) by the name of their sweep; one sweep where that has all there are."""
    result = {"constant": space.grid(SWEEP_SIZE)}
    if is_whole(space, result["constant"]):
        return result
    if isinstance(space, Box):
        result["flag"] = space.flags(SWEEP_SIZE)
    return result | {"random": random_skills(space, n_random)}


def is_whole(space: SkillSpace, skills: Tensor) -> bool:
    """Are these all the skills of a finite space?"""
    return isinstance(space, OneHot) and len(skills) == space.dim


def sweep_title(space: SkillSpace, sweep: str, skills: Tensor) -> str:
    """What pictures call a sweep."""
    whole = sweep == "constant" and is_whole(space, skills)
    return f"all {len(skills)} skills" if whole else f"{sweep} sweep"


def flag_grid(space: SkillSpace, n_random: int = RANDOM_SKILLS) -> Tensor | None:
    """(flags, skills, Z): random skills, each at every flag; None where there is no flag."""
    if not isinstance(space, Box):
        return None
    skills = random_skills(space, n_random).expand(len(FLAGS), -1, -1).clone()
    skills[:, :, 0] = torch.tensor(FLAGS)[:, None]
    return skills


def identified_skills(space: SkillSpace, seed: int) -> Tensor:
    if isinstance(space, OneHot):
        return space.grid(IDENTIFIED)
    return space.sample(IDENTIFIED, np.random.default_rng(seed))


def labels(space: SkillSpace, sweep: str, skills: Tensor) -> list[str]:
    """A short name for each skill of a sweep."""
    if isinstance(space, OneHot):
        return [f"skill {int(i)}" for i in space.index(skills)]
    if sweep == "random":
        return [f"random {i}" for i in range(1, len(skills) + 1)]
    if isinstance(space, Sphere):
        return [f"angle {360 * i / len(skills):.0f}°" for i in range(len(skills))]
    name = "z1" if sweep == "flag" else "c"
    return [f"{name} = {z:.2g}" for z in skills[:, 0].tolist()]


def named_skills(space: SkillSpace) -> dict[str, Tensor]:
    """Those of all sweeps, and of a finite space all, (Z,) by name."""
    every = {"constant": space.grid(space.dim)} if isinstance(space, OneHot) else None
    found: dict[str, Tensor] = {}
    for sweep, skills in (every or skill_sweeps(space)).items():
        found |= dict(zip(labels(space, sweep, skills), skills, strict=True))
    return found


def find_skill(space: SkillSpace, text: str) -> Tensor:
    """A skill (Z,) by its name, with or without spaces, or as the numbers of its vector."""
    known = named_skills(space)
    for name, skill in known.items():
        if bare(text) in (bare(name), bare(name).removeprefix("skill")):
            return skill
    try:
        skill = torch.tensor([float(word) for word in text.split(",")])
    except ValueError:
        skill = torch.zeros(0)
    if len(skill) != space.dim or not space.contains(skill):
        raise InputError(
            f"skill is {text!r}; allowed: {', '.join(known)}, or the {space.dim} numbers of a skill"
        )
    return skill


def bare(name: str) -> str:
    return name.replace(" ", "").replace("°", "").lower()
