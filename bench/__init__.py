"""Measurements of mistnet beside its peers and beside the bare database."""
