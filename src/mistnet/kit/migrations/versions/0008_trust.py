"""Suspect accounts, withdrawn suggestions, fingerprints of keys, the ingest behind a row, and posts by time."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, UtcTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("ingest_id", BigId, nullable=True))
    op.add_column("posts", sa.Column("ingest_id", BigId, nullable=True))
    op.add_column("posts", sa.Column("referenced_text_clean", sa.Text, nullable=True))
    op.add_column("accounts", sa.Column("suspect_since", UtcTime, nullable=True))
    op.add_column("accounts", sa.Column("suspect_looks", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.add_column("suggestions", sa.Column("withdrawn_at", UtcTime, nullable=True))
    known = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("source_keys")}
    if "fingerprint" not in known:  # hydrating placeholders needs it before this migration can run
        op.add_column("source_keys", sa.Column("fingerprint", sa.Text, nullable=True))
    op.create_table(
        "item_links",
        sa.Column("link_id", BigId, autoincrement=False, nullable=False),
        sa.Column("item_id", BigId, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["link_id"], ["links.id"], name="item_links_link_fkey"),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="item_links_item_fkey"),
        sa.PrimaryKeyConstraint("link_id", "item_id", name=op.f("item_links_pkey")),
    )
    op.create_index("item_links_item", "item_links", ["item_id"])
    op.create_index("price_points_product", "price_points", ["product_id", "item_id"])
    op.create_index("posts_created_at", "posts", ["created_at", "platform", "id"])
    op.create_index("posts_author_time", "posts", ["platform", "author_id", "created_at", "id"])
