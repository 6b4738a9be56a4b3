"""Segments: rules that name sets of users or posts, and their members over time."""
