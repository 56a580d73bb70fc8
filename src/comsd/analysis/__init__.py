"""The skills of a robot one by one: tables, figures, strips of poses, video."""

from comsd.analysis.robots import Analysis, SkillFigures, analyse_robot

__all__ = ["Analysis", "SkillFigures", "analyse_robot"]
