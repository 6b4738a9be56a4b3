"""Reads and writes of items, price points and valuations."""
