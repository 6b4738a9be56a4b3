"""The scheduler: which accounts are due, and which process leads."""
