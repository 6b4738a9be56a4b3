"""Threads, through Meta's own API."""
