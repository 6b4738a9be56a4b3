"""Queries and reads of the tables for analysis."""
