"""The skill explorer: one HTML file in which the robot lives."""

from comsd.explorer.measures import MOST_EXPLORED
from comsd.explorer.page import write_page

__all__ = ["MOST_EXPLORED", "write_page"]
