"""INSERT that can say what happens to rows that are there already (ON CONFLICT), in the words of the database."""

from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite

Insert: TypeAlias = postgresql.Insert | sqlite.Insert


def insert_of(dialect: str) -> Callable[[Table], Insert]:
    return postgresql.insert if dialect == "postgresql" else sqlite.insert
