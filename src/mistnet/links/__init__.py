"""From text to URLs to canonical product names. Pure."""
