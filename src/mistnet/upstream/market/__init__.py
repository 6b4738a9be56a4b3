"""Places that tell what things cost: eBay's own interface, shops described by a file, and answers remembered."""
