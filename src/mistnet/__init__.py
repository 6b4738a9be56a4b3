"""mistnet collects social accounts durably."""

__version__ = "0.1.0"
