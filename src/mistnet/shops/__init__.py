"""Links, page extraction, crawling, products and offers."""
