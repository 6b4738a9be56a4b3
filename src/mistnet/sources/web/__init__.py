"""Linked pages of any shop, fetched safely and politely."""
