"""The agents: act for a skill, learn from the reward a method gives."""
