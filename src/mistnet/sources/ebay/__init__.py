"""eBay: what is for sale, and what was sold."""
