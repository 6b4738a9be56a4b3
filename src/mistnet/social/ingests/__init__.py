"""Ingests: explicit requests to a source, and what each returned."""
