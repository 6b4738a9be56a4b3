"""Threads, through Meta's API."""
