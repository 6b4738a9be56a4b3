"""X, through TwitterAPI.io."""
