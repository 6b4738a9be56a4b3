"""Price watches: when to report that a price changed."""
