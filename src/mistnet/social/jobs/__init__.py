"""Job handlers that collect users and posts."""
