"""The methods, one file each, next to its paper's equations."""
