"""Segment rules and set algebra. Pure."""
