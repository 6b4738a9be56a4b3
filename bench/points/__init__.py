"""How fast price points are written and items valued, beside bare upserts and a plain median."""
