"""The commands: parse, make one call into the app, print."""
