"""Platforms are open: no constraint lists them, and full-text rows are numbered by a table of their own."""

import re

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLES = ("users", "suggestions", "posts", "missing", "quarantine", "ingest_events", "feeds")
_CONSTRAINT = re.compile(r",\s*CONSTRAINT \w+_platform_is_known CHECK \(platform IN \('x', 'threads'\)\)")


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        for table in TABLES:
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT {table}_platform_is_known")
        return
    for dropped in (
        "TRIGGER posts_search_added",
        "TRIGGER posts_search_changed",
        "TABLE posts_search",
        "VIEW posts_words",
    ):
        connection.exec_driver_sql(f"DROP {dropped}")
    # Other tables refer to these: references are checked at the end, when every row is back in its place.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    connection.exec_driver_sql("CREATE TABLE ingest_ids_copy AS SELECT * FROM ingest_ids")
    for table in TABLES:
        _rebuild(connection, table)
    # Dropping ingest_events has deleted the ids with them.
    connection.exec_driver_sql("INSERT INTO ingest_ids SELECT * FROM ingest_ids_copy")
    connection.exec_driver_sql("DROP TABLE ingest_ids_copy")
    for statement in SEARCH:
        connection.exec_driver_sql(statement)


def _rebuild(connection: sa.Connection, table: str) -> None:
    """SQLite cannot drop a constraint, and libSQL's server does not let its schema be rewritten: rebuild the table."""
    find = sa.text("SELECT sql FROM sqlite_master WHERE tbl_name = :name AND sql IS NOT NULL ORDER BY type = 'index'")
    declared, *indexes = connection.execute(find, {"name": table}).scalars()
    find = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
    sequence = connection.execute(find, {"name": table}).scalar()
    connection.exec_driver_sql(f"CREATE TABLE {table}_copy AS SELECT * FROM {table}")
    connection.exec_driver_sql(f"DROP TABLE {table}")
    connection.exec_driver_sql(_CONSTRAINT.sub("", declared))
    if connection.exec_driver_sql(f"SELECT 1 FROM {table}_copy LIMIT 1").first():
        connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM {table}_copy")
    connection.exec_driver_sql(f"DROP TABLE {table}_copy")
    for index in indexes:
        connection.exec_driver_sql(index)
    if sequence is not None:
        # An id that was given once is never given again, not even that of a deleted row.
        values = {"name": table, "sequence": sequence}
        connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        connection.execute(sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :sequence)"), values)


SEARCH = (
    """
CREATE TABLE posts_search_rows (
    row_number INTEGER NOT NULL PRIMARY KEY,
    platform TEXT NOT NULL,
    post_id INTEGER NOT NULL,
    CONSTRAINT posts_search_rows_post UNIQUE (platform, post_id)
)
""",
    "INSERT INTO posts_search_rows (platform, post_id) SELECT platform, id FROM posts",
    """
CREATE VIEW posts_words AS
SELECT r.row_number, coalesce(p.search_text, p.text_clean) AS words
FROM posts_search_rows r
JOIN posts p ON p.platform = r.platform AND p.id = r.post_id
""",
    """
CREATE VIRTUAL TABLE posts_search USING fts5(words, content='posts_words', content_rowid='row_number',
    tokenize='unicode61 remove_diacritics 2')
""",
    "INSERT INTO posts_search (posts_search) VALUES ('rebuild')",
    """
CREATE TRIGGER posts_search_added AFTER INSERT ON posts BEGIN
    INSERT INTO posts_search_rows (platform, post_id) VALUES (NEW.platform, NEW.id);
    INSERT INTO posts_search (rowid, words)
    SELECT r.row_number, coalesce(NEW.search_text, NEW.text_clean)
    FROM posts_search_rows r
    WHERE r.platform = NEW.platform AND r.post_id = NEW.id;
END
""",
    """
CREATE TRIGGER posts_search_changed AFTER UPDATE OF text_clean, search_text ON posts
WHEN coalesce(OLD.search_text, OLD.text_clean) IS NOT coalesce(NEW.search_text, NEW.text_clean) BEGIN
    INSERT INTO posts_search (posts_search, rowid, words)
    SELECT 'delete', r.row_number, coalesce(OLD.search_text, OLD.text_clean)
    FROM posts_search_rows r
    WHERE r.platform = OLD.platform AND r.post_id = OLD.id;
    INSERT INTO posts_search (rowid, words)
    SELECT r.row_number, coalesce(NEW.search_text, NEW.text_clean)
    FROM posts_search_rows r
    WHERE r.platform = NEW.platform AND r.post_id = NEW.id;
END
""",
    """
CREATE TRIGGER posts_search_removed AFTER DELETE ON posts BEGIN
    INSERT INTO posts_search (posts_search, rowid, words)
    SELECT 'delete', r.row_number, coalesce(OLD.search_text, OLD.text_clean)
    FROM posts_search_rows r
    WHERE r.platform = OLD.platform AND r.post_id = OLD.id;
    DELETE FROM posts_search_rows WHERE platform = OLD.platform AND post_id = OLD.id;
END
""",
)
"""FTS5 numbers rows by one integer, and posts have a platform and an id."""
