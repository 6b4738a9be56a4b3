"""Text search over posts: an FTS5 table kept by triggers on SQLite, an expression index on PostgreSQL."""

from __future__ import annotations

from typing import Final

from sqlalchemy import DDL, event
from sqlalchemy.schema import ExecutableDDLElement

from mistnet.store.tables.social import posts

WORDS: Final = "to_tsvector('simple'::regconfig, left(coalesce(search_text, text_clean), 200000))"
"""PostgreSQL's search expression; the index serves only questions that write it exactly so."""

POSTGRESQL: Final = (f"CREATE INDEX posts_search ON posts USING gin ({WORDS})",)

# Full-text rows are numbered by one integer, and posts are not: the other platform's count downward.
_ROW: Final = "CASE {of}platform WHEN 'x' THEN {of}id ELSE -{of}id END"
_WORDS: Final = "coalesce({of}search_text, {of}text_clean)"
_NEW, _OLD = {"of": "NEW."}, {"of": "OLD."}
_ADD: Final = f"INSERT INTO posts_search (rowid, words) VALUES ({_ROW.format(**_NEW)}, {_WORDS.format(**_NEW)})"
_TAKE: Final = (
    "INSERT INTO posts_search (posts_search, rowid, words) "
    f"VALUES ('delete', {_ROW.format(**_OLD)}, {_WORDS.format(**_OLD)})"
)

SQLITE: Final = (
    f"CREATE VIEW posts_words AS SELECT {_ROW.format(of='')} AS row_number, {_WORDS.format(of='')} AS words FROM posts",
    (
        "CREATE VIRTUAL TABLE posts_search USING fts5(words, content='posts_words', content_rowid='row_number', "
        "tokenize='unicode61 remove_diacritics 2')"
    ),
    f"CREATE TRIGGER posts_search_added AFTER INSERT ON posts BEGIN {_ADD}; END",
    (
        "CREATE TRIGGER posts_search_changed AFTER UPDATE OF text_clean, search_text ON posts "
        f"WHEN {_WORDS.format(**_OLD)} IS NOT {_WORDS.format(**_NEW)} BEGIN {_TAKE}; {_ADD}; END"
    ),
)

for _dialect, _statements in (("postgresql", POSTGRESQL), ("sqlite", SQLITE)):
    for _statement in _statements:
        _ddl: ExecutableDDLElement = DDL(_statement)  # type: ignore[no-untyped-call]  # SQLAlchemy's own gap
        event.listen(posts, "after_create", _ddl.execute_if(dialect=_dialect))
