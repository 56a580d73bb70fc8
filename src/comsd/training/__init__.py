"""Training: how experience is gathered and used, and the loop around it."""
