"""Reinforcement-learning agents: policy and critic or value, and how they learn from rewards."""
