"""Reads and writes of users, posts, tracked accounts and quarantine."""
