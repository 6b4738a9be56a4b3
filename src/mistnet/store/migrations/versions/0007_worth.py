"""What things are worth: items, price points, valuations, rates, watches; views for whoever looks with SQL."""

import sqlalchemy as sa
from alembic import op

from mistnet.store.types import BigId, Money, RawJson, UtcTime

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _items()
    _item_looks()
    _price_points()
    _price_point_versions()
    _valuations()
    _valuation_history()
    _currency_rates()
    _price_watches()


def _items() -> None:
    op.create_table(
        "items",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("ref", sa.Text, nullable=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("attributes", RawJson, nullable=False),
        sa.Column("exclude", RawJson, nullable=False),
        sa.Column("sources", RawJson, nullable=False),
        sa.Column("urls", RawJson, nullable=False),
        sa.Column("currency", sa.Text, nullable=True),
        sa.Column("every_hours", sa.Float, nullable=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("added_at", UtcTime, nullable=False),
        sa.Column("changed_at", UtcTime, nullable=False),
        sa.CheckConstraint("state IN ('active', 'paused', 'removed')", name=op.f("items_state_is_known")),
        sa.CheckConstraint("currency IS NULL OR length(currency) = 3", name=op.f("items_currency_is_iso")),
        sa.CheckConstraint("every_hours IS NULL OR every_hours > 0", name=op.f("items_some_time_passes")),
        sa.PrimaryKeyConstraint("id", name=op.f("items_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "items_followed",
        "items",
        ["id"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "items_ref",
        "items",
        ["ref"],
        unique=True,
        sqlite_where=sa.text("ref IS NOT NULL AND state <> 'removed'"),
        postgresql_where=sa.text("ref IS NOT NULL AND state <> 'removed'"),
    )


def _item_looks() -> None:
    op.create_table(
        "item_looks",
        sa.Column("item_id", BigId, autoincrement=False, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("looked_at", UtcTime, nullable=False),
        sa.Column("listings", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("points", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("found_at", UtcTime, nullable=True),
        sa.Column("problem", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="item_looks_item_fkey"),
        sa.PrimaryKeyConstraint("item_id", "source", name=op.f("item_looks_pkey")),
    )
    op.create_index("item_looks_looked_at", "item_looks", ["looked_at"])


def _price_points() -> None:
    op.create_table(
        "price_points",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("item_id", BigId, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("dedupe_key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("amount", Money, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("condition", sa.Text, nullable=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text, nullable=True),
        sa.Column("bid_count", sa.Integer, nullable=True),
        sa.Column("match_strength", sa.Float, nullable=False),
        sa.Column("observed_at", UtcTime, nullable=False),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("times_seen", sa.Integer, server_default=sa.text("1"), nullable=False),
        sa.Column("product_id", BigId, nullable=True),
        sa.Column("offer_id", BigId, nullable=True),
        sa.Column("doubt", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="price_points_item_fkey"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="price_points_product_fkey"),
        sa.ForeignKeyConstraint(["offer_id"], ["offers.id"], name="price_points_offer_fkey"),
        sa.CheckConstraint("kind IN ('sold', 'ask', 'bid')", name=op.f("price_points_kind_is_known")),
        sa.CheckConstraint("length(currency) = 3", name=op.f("price_points_currency_is_iso")),
        sa.CheckConstraint("kind <> 'bid' OR bid_count >= 1", name=op.f("price_points_a_bid_was_made")),
        sa.CheckConstraint("match_strength BETWEEN 0 AND 1", name=op.f("price_points_strength_is_a_share")),
        sa.PrimaryKeyConstraint("id", name=op.f("price_points_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("price_points_identity", "price_points", ["item_id", "source", "dedupe_key"], unique=True)


def _price_point_versions() -> None:
    op.create_table(
        "price_point_versions",
        sa.Column("point_id", BigId, autoincrement=False, nullable=False),
        sa.Column("nr", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("amount", Money, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("match_strength", sa.Float, nullable=False),
        sa.Column("observed_at", UtcTime, nullable=False),
        sa.Column("replaced_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["point_id"], ["price_points.id"], name="price_point_versions_point_fkey"),
        sa.PrimaryKeyConstraint("point_id", "nr", name=op.f("price_point_versions_pkey")),
    )


def _valuations() -> None:
    op.create_table(
        "valuations",
        sa.Column("item_id", BigId, autoincrement=False, nullable=False),
        sa.Column("estimate", Money, nullable=False),
        sa.Column("low", Money, nullable=False),
        sa.Column("high", Money, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("points", sa.Integer, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("newest_at", UtcTime, nullable=False),
        sa.Column("carriers", RawJson, nullable=False),
        sa.Column("left_out", RawJson, nullable=False),
        sa.Column("valued_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="valuations_item_fkey"),
        sa.PrimaryKeyConstraint("item_id", name=op.f("valuations_pkey")),
    )


def _valuation_history() -> None:
    op.create_table(
        "valuation_history",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("item_id", BigId, nullable=False),
        sa.Column("estimate", Money, nullable=False),
        sa.Column("low", Money, nullable=False),
        sa.Column("high", Money, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("points", sa.Integer, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("newest_at", UtcTime, nullable=False),
        sa.Column("carriers", RawJson, nullable=False),
        sa.Column("left_out", RawJson, nullable=False),
        sa.Column("valued_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="valuation_history_item_fkey"),
        sa.PrimaryKeyConstraint("id", name=op.f("valuation_history_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("valuation_history_item", "valuation_history", ["item_id", "id"])


def _currency_rates() -> None:
    op.create_table(
        "currency_rates",
        sa.Column("base", sa.Text, nullable=False),
        sa.Column("quote", sa.Text, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("rate", Money, nullable=False),
        sa.Column("origin", sa.Text, nullable=True),
        sa.Column("told_at", UtcTime, nullable=False),
        sa.CheckConstraint(
            "length(base) = 3 AND length(quote) = 3 AND base <> quote", name=op.f("currency_rates_currencies_are_iso")
        ),
        sa.PrimaryKeyConstraint("base", "quote", "day", name=op.f("currency_rates_pkey")),
    )


def _price_watches() -> None:
    op.create_table(
        "price_watches",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("item_id", BigId, nullable=True),
        sa.Column("product_id", BigId, nullable=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("percent", sa.Float, nullable=True),
        sa.Column("target", Money, nullable=True),
        sa.Column("currency", sa.Text, nullable=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("added_at", UtcTime, nullable=False),
        sa.Column("amount", Money, nullable=True),
        sa.Column("amount_currency", sa.Text, nullable=True),
        sa.Column("availability", sa.Text, nullable=True),
        sa.Column("known_at", UtcTime, nullable=True),
        sa.Column("suspected", RawJson, nullable=True),
        sa.Column("suspected_at", UtcTime, nullable=True),
        sa.Column("told_at", UtcTime, nullable=True),
        sa.Column("events", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="price_watches_item_fkey"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="price_watches_product_fkey"),
        sa.CheckConstraint(
            "(item_id IS NULL) <> (product_id IS NULL)", name=op.f("price_watches_one_thing_is_watched")
        ),
        sa.CheckConstraint("kind IN ('changed', 'below', 'back_in_stock')", name=op.f("price_watches_kind_is_known")),
        sa.CheckConstraint("state IN ('active', 'removed')", name=op.f("price_watches_state_is_known")),
        sa.CheckConstraint(
            "(kind = 'changed') = (percent IS NOT NULL)", name=op.f("price_watches_a_change_has_a_size")
        ),
        sa.CheckConstraint(
            "(kind = 'below') = (target IS NOT NULL AND currency IS NOT NULL)",
            name=op.f("price_watches_a_target_is_an_amount"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("price_watches_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "price_watches_item",
        "price_watches",
        ["item_id"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "price_watches_product",
        "price_watches",
        ["product_id"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
