"""The queue benchmark: one module per side, each run in processes of its own."""
