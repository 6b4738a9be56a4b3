"""Simulated platforms: a deterministic world, with faults on demand."""
