"""How fast product pages are crawled: fetched, read and stored, with page readers and without."""
