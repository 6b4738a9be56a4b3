"""The API's routes, by what they are about."""
