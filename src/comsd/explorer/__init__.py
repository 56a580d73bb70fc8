"""The skill explorer: one HTML file in which the robot lives."""

from comsd.explorer.page import write_page

__all__ = ["write_page"]
