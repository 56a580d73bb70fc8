"""Sweeps: many runs that differ in settings, ranked by a metric."""
