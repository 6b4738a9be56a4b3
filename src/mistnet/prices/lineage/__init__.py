"""Lineage: what a product cost before and after the posts that promoted it."""
