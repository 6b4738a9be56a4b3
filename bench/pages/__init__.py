"""How fast pages and the API's lists are with a million posts stored."""
