"""Adapters to the outside: one package for each source, HTTP in, the features' values out."""
