"""Environments: mazes, robots, and a task whose actions are skills."""
