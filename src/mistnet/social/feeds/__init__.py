"""Feeds: Threads accounts that are read again and again."""
