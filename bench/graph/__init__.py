"""How fast a million followers are synced, and how fast mutuals of a million edges are materialized."""
