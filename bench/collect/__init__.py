"""The benchmark of collecting: the same accounts of one simulated world, gathered by each side."""
