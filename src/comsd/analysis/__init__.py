"""What the skills of a robot's run look like: tables, figures, strips of poses, video."""

from comsd.analysis.measures import Analysis, SkillFigures, analyse_robot

__all__ = ["Analysis", "SkillFigures", "analyse_robot"]
