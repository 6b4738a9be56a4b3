"""The platforms in a box: a deterministic world, with faults on demand."""
