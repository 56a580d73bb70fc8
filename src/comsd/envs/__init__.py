"""Environments: mazes, robots, tasks of robots."""
