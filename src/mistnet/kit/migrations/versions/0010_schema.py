"""The whole schema, from one SQL file per dialect.

It keeps the number of the last of the ten migrations that were joined into it: a database which they made is current.
"""

import re
from pathlib import Path

from alembic import op

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None

_COMMENTS_AND_BLANK_LINES = re.compile(r"^(--.*)?\n", re.MULTILINE)
_END_OF_STATEMENT = re.compile(r";\n(?! |END)")


def upgrade() -> None:
    """One statement at a time: PostgreSQL's driver takes no more."""
    connection = op.get_bind()
    script = Path(__file__).with_name(f"0010_schema.{connection.dialect.name}.sql").read_text(encoding="utf-8")
    for statement in _END_OF_STATEMENT.split(_COMMENTS_AND_BLANK_LINES.sub("", script)):
        if statement:
            connection.exec_driver_sql(statement)
