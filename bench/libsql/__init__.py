"""Rows written to a libSQL server: through our driver, and by bare requests."""
