"""What a price was chosen from, and prices that were corrected by hand."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, Money, RawJson, UtcTime

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("offers", sa.Column("reading", RawJson))
    op.add_column("offers", sa.Column("corrected_at", UtcTime))
    in_doubt = sa.text("doubt IS NOT NULL")
    op.create_index("offers_doubted", "offers", ["id"], sqlite_where=in_doubt, postgresql_where=in_doubt)
    op.create_table(
        "offer_corrections",
        sa.Column("id", BigId, primary_key=True, autoincrement=True),
        sa.Column("offer_id", BigId, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("note", sa.Text),
        sa.Column("read_amount", Money),
        sa.Column("read_currency", sa.Text),
        sa.Column("amount", Money),
        sa.Column("currency", sa.Text),
        sa.Column("list_amount", Money),
        sa.Column("availability", sa.Text),
        sa.ForeignKeyConstraint(["offer_id"], ["offers.id"], name="offer_corrections_offer_fkey"),
        sa.CheckConstraint("amount IS NULL OR currency IS NOT NULL", name="corrections_have_a_currency"),
        sqlite_autoincrement=True,
    )
    op.create_index("offer_corrections_offer", "offer_corrections", ["offer_id", "id"])
