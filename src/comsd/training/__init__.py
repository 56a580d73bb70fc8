"""Training loops and the roll-outs that evaluations share with them."""
