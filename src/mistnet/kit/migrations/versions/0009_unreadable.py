"""Visits whose page cannot be read have an outcome of their own."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, UtcTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_KNOWN = (
    "outcome IN ('offer', 'unchanged', 'doubted', 'no_price', 'resolved', 'blocked', 'gone', 'unreadable', "
    "'refused', 'failed')"
)
_CONSTRAINT = "crawls_outcome_is_known"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f(_CONSTRAINT), "crawls", type_="check")
        op.create_check_constraint(op.f(_CONSTRAINT), "crawls", _KNOWN)
    else:
        _copy()


def _copy() -> None:
    """SQLite cannot change a constraint: the rows move to a new table."""
    op.execute(sa.text("ALTER TABLE crawls RENAME TO crawls_before"))
    op.drop_index("crawls_link", "crawls_before")
    op.drop_index("crawls_at", "crawls_before")
    op.create_table(
        "crawls",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("link_id", BigId, nullable=False),
        sa.Column("product_id", BigId, nullable=True),
        sa.Column("offer_id", BigId, nullable=True),
        sa.Column("job_id", BigId, nullable=True),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("http_status", sa.SmallInteger, nullable=True),
        sa.Column("final_url", sa.Text, nullable=True),
        sa.Column("bytes", sa.Integer, nullable=True),
        sa.Column("duration_ms", sa.Integer, nullable=True),
        sa.Column("content_hash", sa.Text, nullable=True),
        sa.Column("problem", sa.Text, nullable=True),
        sa.Column("body", sa.LargeBinary, nullable=True),
        sa.ForeignKeyConstraint(["link_id"], ["links.id"], name="crawls_link_fkey"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="crawls_product_fkey"),
        sa.ForeignKeyConstraint(["offer_id"], ["offers.id"], name="crawls_offer_fkey"),
        sa.CheckConstraint(_KNOWN, name=op.f(_CONSTRAINT)),
        sa.PrimaryKeyConstraint("id", name=op.f("crawls_pkey")),
        sqlite_autoincrement=True,
    )
    if op.get_bind().execute(sa.text("SELECT 1 FROM crawls_before LIMIT 1")).first():
        # Only then: to copy no rows would begin the count of ids, and an empty database would not look like one.
        op.execute(sa.text("INSERT INTO crawls SELECT * FROM crawls_before ORDER BY id"))
    op.drop_table("crawls_before")
    op.create_index("crawls_at", "crawls", ["at"])
    op.create_index("crawls_link", "crawls", ["link_id", "id"])
