"""Every user was told of by upstream: no row without the time of its last telling. Users are found by their key."""

import re

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import UtcTime
from mistnet.social.errors import PlaceholdersLeft

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COLUMN = re.compile(r"(\blast_updated_at\b\"?\s+\w+(?:\s*\(\s*\d+\s*\))?)")


def upgrade() -> None:
    """Nothing to do for databases that began with this rule. Others must have been hydrated first."""
    connection = op.get_bind()
    left = connection.execute(sa.text("SELECT count(*) FROM users WHERE last_updated_at IS NULL")).scalar_one()
    if left:
        raise PlaceholdersLeft(left)
    (column,) = (each for each in sa.inspect(connection).get_columns("users") if each["name"] == "last_updated_at")
    if column["nullable"]:
        _require(connection)
    for name in ("handle_key", "profiled_at"):
        index = f"users_{name.removesuffix('_key')}"
        op.drop_index(index, "users")
        op.create_index(index, "users", [name, "platform"], unique=False)


def _require(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        op.alter_column("users", "last_updated_at", existing_type=UtcTime(), nullable=False)
        return
    asked = sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'users'")
    declared = str(connection.execute(asked).scalar_one())
    if connection.dialect.driver == "libsql":
        _require_on_a_server(connection, declared)
    else:
        _require_in_place(connection, declared)


def _require_on_a_server(connection: sa.Connection, declared: str) -> None:
    """A libSQL server lets nobody rewrite its schema, and has a statement for this that SQLite lacks."""
    (column,) = COLUMN.findall(declared)
    connection.exec_driver_sql(f"ALTER TABLE users ALTER COLUMN last_updated_at TO {column} NOT NULL")


def _require_in_place(connection: sa.Connection, declared: str) -> None:
    """SQLite cannot alter a column, and a copy of the table would tear every reference to it.

    What is stored stays as it is, so the declaration alone is changed, the way SQLite's manual has it.
    """
    version = connection.execute(sa.text("PRAGMA schema_version")).scalar_one()
    connection.execute(sa.text("PRAGMA writable_schema = ON"))
    connection.execute(
        sa.text("UPDATE sqlite_master SET sql = :sql WHERE type = 'table' AND name = 'users'"),
        {"sql": COLUMN.sub(r"\1 NOT NULL", declared, count=1)},
    )
    connection.execute(sa.text(f"PRAGMA schema_version = {version + 1}"))
    connection.execute(sa.text("PRAGMA writable_schema = OFF"))
