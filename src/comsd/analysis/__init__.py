"""The skills of a run one by one: tables, figures, trajectories, strips of poses, video."""

from comsd.analysis.skills import Analysis, SkillFigures, analyse_skills

__all__ = ["Analysis", "SkillFigures", "analyse_skills"]
