"""One client per source: HTTP in, domain values out."""
