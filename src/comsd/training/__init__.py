"""Training: how experience is gathered and what is learned from it, step by step."""
