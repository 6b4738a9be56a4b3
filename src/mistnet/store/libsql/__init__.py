"""libSQL servers (sqld, Turso) over Hrana on HTTP: a client, a driver on it, a dialect for SQLAlchemy."""
