"""From price text and pages to offers and valuations. Pure."""
