"""A third social source, added from outside: see docs/adding-a-source.md."""
