"""Items, price points, valuations, price watches, exchange rates, and lineage from posts to prices."""
