"""Reads and writes of links, crawls, products and offers."""
