"""Routes of the JSON API."""
