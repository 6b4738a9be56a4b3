"""One file per job kind: look, fetch, return an outcome."""
