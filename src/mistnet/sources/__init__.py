"""Adapters to external services: one package per source, HTTP in, the features' values out."""
