"""The `mistnet demo` command."""
