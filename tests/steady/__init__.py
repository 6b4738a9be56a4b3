"""A service that runs for a day in a simulated world, and whether what it takes stays the same."""
