"""Tables of items, price points, valuations, rates and watches."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Text,
    false,
    text,
)

from mistnet.kit.types import BigId, Money, RawJson, UtcTime, numbered_table, only_where, stored_table

ITEM_STATE = "state IN ('active', 'paused', 'removed')"
PRICE_KIND = "kind IN ('sold', 'ask', 'bid')"
CURRENCY = "length(currency) = 3"
HAS_REF = "ref IS NOT NULL AND state <> 'removed'"
HAS_NO_REF = "ref IS NULL AND state <> 'removed'"
FOLLOWED = "state = 'active'"
WATCH_STATE = "state IN ('active', 'removed')"
WATCH_KIND = "kind IN ('changed', 'below', 'back_in_stock')"
WATCHED = "state = 'active'"

items = numbered_table(
    "items",
    Column("ref", Text),
    Column("title", Text, nullable=False),
    Column("attributes", RawJson, nullable=False),
    Column("exclude", RawJson, nullable=False),
    Column("sources", RawJson, nullable=False),
    Column("urls", RawJson, nullable=False),
    Column("currency", Text),
    Column("every_hours", Float),
    Column("digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("added_at", UtcTime, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("next_look_at", UtcTime, nullable=False),
    CheckConstraint(ITEM_STATE, name="state_is_known"),
    CheckConstraint("currency IS NULL OR length(currency) = 3", name="currency_is_iso"),
    CheckConstraint("every_hours IS NULL OR every_hours > 0", name="some_time_passes"),
    Index("items_ref", "ref", unique=True, **only_where(HAS_REF)),
    Index("items_wish", "digest", unique=True, **only_where(HAS_NO_REF)),
    Index("items_state", "state", "id"),
    Index("items_due", "next_look_at", "id", **only_where(FOLLOWED)),
)

item_looks = stored_table(
    "item_looks",
    Column("item_id", BigId, primary_key=True, autoincrement=False),
    Column("source", Text, primary_key=True),
    Column("looked_at", UtcTime, nullable=False),
    Column("listings", Integer, nullable=False, server_default=text("0")),
    Column("points", Integer, nullable=False, server_default=text("0")),
    Column("found_at", UtcTime),
    Column("problem", Text),
    ForeignKeyConstraint(["item_id"], ["items.id"], name="item_looks_item_fkey"),
    Index("item_looks_looked_at", "looked_at"),
)

item_links = stored_table(
    "item_links",
    Column("link_id", BigId, primary_key=True, autoincrement=False),
    Column("item_id", BigId, primary_key=True, autoincrement=False),
    ForeignKeyConstraint(["link_id"], ["links.id"], name="item_links_link_fkey"),
    ForeignKeyConstraint(["item_id"], ["items.id"], name="item_links_item_fkey"),
    Index("item_links_item", "item_id"),
)

price_points = numbered_table(
    "price_points",
    Column("item_id", BigId, nullable=False),
    Column("source", Text, nullable=False),
    Column("dedupe_key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("amount", Money, nullable=False),
    Column("currency", Text, nullable=False),
    Column("condition", Text),
    Column("title", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("external_id", Text),
    Column("bid_count", Integer),
    Column("match_strength", Float, nullable=False),
    Column("observed_at", UtcTime, nullable=False),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("times_seen", Integer, nullable=False, server_default=text("1")),
    Column("product_id", BigId),
    Column("offer_id", BigId),
    Column("doubt", Text),
    ForeignKeyConstraint(["item_id"], ["items.id"], name="price_points_item_fkey"),
    ForeignKeyConstraint(["product_id"], ["products.id"], name="price_points_product_fkey"),
    ForeignKeyConstraint(["offer_id"], ["offers.id"], name="price_points_offer_fkey"),
    CheckConstraint(PRICE_KIND, name="kind_is_known"),
    CheckConstraint(CURRENCY, name="currency_is_iso"),
    CheckConstraint("kind <> 'bid' OR coalesce(bid_count, 0) >= 1", name="a_bid_was_made"),
    CheckConstraint("match_strength BETWEEN 0 AND 1", name="strength_is_a_share"),
    Index("price_points_identity", "item_id", "source", "dedupe_key", unique=True),
    Index("price_points_item", "item_id", "id"),
    Index("price_points_product", "product_id", "item_id"),
)

price_point_versions = stored_table(
    "price_point_versions",
    Column("point_id", BigId, primary_key=True, autoincrement=False),
    Column("nr", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("amount", Money, nullable=False),
    Column("currency", Text, nullable=False),
    Column("match_strength", Float, nullable=False),
    Column("observed_at", UtcTime, nullable=False),
    Column("replaced_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["point_id"], ["price_points.id"], name="price_point_versions_point_fkey"),
)


def _valuation_columns() -> tuple[Column[object], ...]:
    """The columns of a valuation, now or in the past."""
    return (
        Column("estimate", Money, nullable=False),
        Column("low", Money, nullable=False),
        Column("high", Money, nullable=False),
        Column("currency", Text, nullable=False),
        Column("points", Integer, nullable=False),
        Column("points_left_out", Integer, nullable=False),
        Column("confidence", Float, nullable=False),
        Column("newest_at", UtcTime, nullable=False),
        Column("carriers", RawJson, nullable=False),
        Column("left_out", RawJson, nullable=False),
    )


valuations = stored_table(
    "valuations",
    Column("item_id", BigId, primary_key=True, autoincrement=False),
    *_valuation_columns(),
    Column("valued_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["item_id"], ["items.id"], name="valuations_item_fkey"),
)

valuation_history = numbered_table(
    "valuation_history",
    Column("item_id", BigId, nullable=False),
    *_valuation_columns(),
    Column("valued_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    ForeignKeyConstraint(["item_id"], ["items.id"], name="valuation_history_item_fkey"),
    Index("valuation_history_item", "item_id", "id"),
)

currency_rates = stored_table(
    "currency_rates",
    Column("base", Text, primary_key=True),
    Column("quote", Text, primary_key=True),
    # As text a day sorts and compares in the same way on every database.
    Column("day", Text, primary_key=True),
    Column("rate", Money, nullable=False),
    Column("origin", Text),
    Column("told_at", UtcTime, nullable=False),
    CheckConstraint("length(base) = 3 AND length(quote) = 3 AND base <> quote", name="currencies_are_iso"),
    CheckConstraint("length(day) = 10", name="day_is_a_date"),
    Index("currency_rates_quote", "quote", "base", "day"),
)

odd_listings = numbered_table(
    "odd_listings",
    Column("source", Text, nullable=False),
    Column("item_id", BigId, nullable=False),
    Column("digest", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("times_seen", Integer, nullable=False, server_default=text("1")),
    ForeignKeyConstraint(["item_id"], ["items.id"], name="odd_listings_item_fkey"),
    Index("odd_listings_identity", "source", "digest", unique=True),
)

price_watches = numbered_table(
    "price_watches",
    Column("item_id", BigId),
    Column("product_id", BigId),
    Column("kind", Text, nullable=False),
    Column("percent", Float),
    Column("target", Money),
    Column("currency", Text),
    Column("state", Text, nullable=False),
    Column("automatic", Boolean, nullable=False, server_default=false()),
    Column("added_at", UtcTime, nullable=False),
    Column("amount", Money),
    Column("amount_currency", Text),
    Column("availability", Text),
    Column("known_at", UtcTime),
    Column("rests_on", RawJson),
    Column("suspected", RawJson),
    Column("suspected_at", UtcTime),
    Column("problem", Text),
    Column("told_at", UtcTime),
    Column("events", Integer, nullable=False, server_default=text("0")),
    ForeignKeyConstraint(["item_id"], ["items.id"], name="price_watches_item_fkey"),
    ForeignKeyConstraint(["product_id"], ["products.id"], name="price_watches_product_fkey"),
    CheckConstraint("(item_id IS NULL) <> (product_id IS NULL)", name="one_thing_is_watched"),
    CheckConstraint(WATCH_KIND, name="kind_is_known"),
    CheckConstraint(WATCH_STATE, name="state_is_known"),
    CheckConstraint("(kind = 'changed') = (percent IS NOT NULL)", name="a_change_has_a_size"),
    CheckConstraint("(kind = 'below') = (target IS NOT NULL AND currency IS NOT NULL)", name="a_target_is_an_amount"),
    Index("price_watches_active", "id", **only_where(WATCHED)),
    Index("price_watches_item", "item_id", "id", **only_where(WATCHED)),
    Index("price_watches_product", "product_id", "id", **only_where(WATCHED)),
)
