"""One module per job kind: look, fetch, return an outcome."""
