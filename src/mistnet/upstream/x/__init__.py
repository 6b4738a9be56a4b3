"""TwitterAPI.io: HTTP in, domain values out."""
