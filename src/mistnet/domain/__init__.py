"""Values, errors and ports. No input or output: the standard library and msgspec only."""
