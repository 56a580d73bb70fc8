"""The behaviour of a run: its skills one by one, or episodes of what it has learned for a task."""

from comsd.analysis.episodes import EpisodeAnalysis, measure_episodes
from comsd.analysis.skills import Analysis, SkillFigures, analyse_skills

__all__ = ["Analysis", "EpisodeAnalysis", "SkillFigures", "analyse_skills", "measure_episodes"]
