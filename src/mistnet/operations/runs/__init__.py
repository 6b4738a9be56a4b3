"""Runs: the newest posts of some accounts, requested together."""
