"""What things are worth: items, price points, valuations, rates, watches; views for whoever looks with SQL."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, Money, RawJson, UtcTime
from mistnet.shops.extraction.titles import title_words
from mistnet.shops.model import Shop

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
    _odd_listings()
    _product_words()
    _price_watches()
    _indexes()
    _views()


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
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("added_at", UtcTime, nullable=False),
        sa.Column("changed_at", UtcTime, nullable=False),
        sa.Column("next_look_at", UtcTime, nullable=False),
        sa.CheckConstraint("state IN ('active', 'paused', 'removed')", name=op.f("items_state_is_known")),
        sa.CheckConstraint("currency IS NULL OR length(currency) = 3", name=op.f("items_currency_is_iso")),
        sa.CheckConstraint("every_hours IS NULL OR every_hours > 0", name=op.f("items_some_time_passes")),
        sa.PrimaryKeyConstraint("id", name=op.f("items_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("items_state", "items", ["state", "id"])
    op.create_index(
        "items_due",
        "items",
        ["next_look_at", "id"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "items_wish",
        "items",
        ["digest"],
        unique=True,
        sqlite_where=sa.text("ref IS NULL AND state <> 'removed'"),
        postgresql_where=sa.text("ref IS NULL AND state <> 'removed'"),
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
        sa.CheckConstraint("kind <> 'bid' OR coalesce(bid_count, 0) >= 1", name=op.f("price_points_a_bid_was_made")),
        sa.CheckConstraint("match_strength BETWEEN 0 AND 1", name=op.f("price_points_strength_is_a_share")),
        sa.PrimaryKeyConstraint("id", name=op.f("price_points_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("price_points_identity", "price_points", ["item_id", "source", "dedupe_key"], unique=True)
    op.create_index("price_points_item", "price_points", ["item_id", "id"])


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
        sa.Column("points_left_out", sa.Integer, nullable=False),
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
        sa.Column("points_left_out", sa.Integer, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("newest_at", UtcTime, nullable=False),
        sa.Column("carriers", RawJson, nullable=False),
        sa.Column("left_out", RawJson, nullable=False),
        sa.Column("valued_at", UtcTime, nullable=False),
        sa.Column("ended_at", UtcTime, nullable=True),
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
        sa.CheckConstraint("length(day) = 10", name=op.f("currency_rates_day_is_a_date")),
        sa.PrimaryKeyConstraint("base", "quote", "day", name=op.f("currency_rates_pkey")),
    )
    op.create_index("currency_rates_quote", "currency_rates", ["quote", "base", "day"])


def _odd_listings() -> None:
    op.create_table(
        "odd_listings",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("item_id", BigId, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("times_seen", sa.Integer, server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="odd_listings_item_fkey"),
        sa.PrimaryKeyConstraint("id", name=op.f("odd_listings_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("odd_listings_identity", "odd_listings", ["source", "digest"], unique=True)


def _product_words() -> None:
    op.create_table(
        "product_words",
        sa.Column("product_id", BigId, autoincrement=False, nullable=False),
        sa.Column("word", sa.Text, nullable=False),
        sa.Column("lane", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="product_words_product_fkey"),
        sa.PrimaryKeyConstraint("product_id", "word", name=op.f("product_words_pkey")),
    )
    op.create_index("product_words_word", "product_words", ["lane", "word", "product_id"])
    _fill_product_words()


def _fill_product_words() -> None:
    """Products found before have their words too."""
    connection, last = op.get_bind(), 0
    asked = sa.text("SELECT id, platform, title FROM products WHERE id > :last ORDER BY id LIMIT 1000")
    adding = sa.text("INSERT INTO product_words (product_id, word, lane) VALUES (:product_id, :word, :lane)")
    while rows := connection.execute(asked, {"last": last}).all():
        last = rows[-1].id
        words = [
            {"product_id": row.id, "word": word, "lane": Shop(row.platform).lane}
            for row in rows
            for word in title_words(row.title or "")
        ]
        if words:
            connection.execute(adding, words)


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
        sa.Column("automatic", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("added_at", UtcTime, nullable=False),
        sa.Column("amount", Money, nullable=True),
        sa.Column("amount_currency", sa.Text, nullable=True),
        sa.Column("availability", sa.Text, nullable=True),
        sa.Column("known_at", UtcTime, nullable=True),
        sa.Column("rests_on", RawJson, nullable=True),
        sa.Column("suspected", RawJson, nullable=True),
        sa.Column("suspected_at", UtcTime, nullable=True),
        sa.Column("problem", sa.Text, nullable=True),
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
        "price_watches_active",
        "price_watches",
        ["id"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "price_watches_item",
        "price_watches",
        ["item_id", "id"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "price_watches_product",
        "price_watches",
        ["product_id", "id"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )


def _indexes() -> None:
    op.create_index("jobs_created", "jobs", ["created_at", "id"])
    op.create_index("job_history_created", "job_history", ["created_at", "id"])
    op.create_index("cached_answers_source", "cached_answers", ["source", "fresh_until"])


NOW = {"postgresql": "now()", "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')"}
LATER = {"postgresql": "greatest", "sqlite": "max"}
NO_TIME = {"postgresql": "CAST(NULL AS timestamptz)", "sqlite": "NULL"}
SECONDS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM now() - {at}) AS double precision)",
    "sqlite": "(julianday('now') - julianday({at})) * 86400.0",
}


def _views() -> None:
    connection = op.get_bind()
    dialect = connection.dialect.name
    now, later, no_time = NOW[dialect], LATER[dialect], NO_TIME[dialect]
    taken = "coalesce(j.started_at, j.created_at)"
    heartbeat = f"{later}({taken}, coalesce(w.seen_at, {taken}))"
    for view in (
        (
            "CREATE VIEW recent_jobs AS "
            "SELECT j.id, j.kind, j.key, j.lane, j.state AS status, j.worker AS locked_by, "
            f"CASE WHEN j.state = 'running' THEN {later}({taken}, coalesce((SELECT w.seen_at FROM workers w "
            f"WHERE w.name = j.worker), {taken})) END AS heartbeat_at, "
            "j.created_at, j.started_at, CASE WHEN j.state IN ('failed', 'dead') THEN j.run_at END "
            "AS completed_at, "
            "CASE WHEN j.state = 'retryable' THEN j.run_at END AS next_retry_at, j.attempts, "
            "j.last_error AS error_message FROM jobs j "
            "UNION ALL "
            "SELECT h.id, h.kind, h.key, h.lane, h.state AS status, h.worker AS locked_by, "
            f"{no_time} AS heartbeat_at, h.created_at, h.started_at, "
            "CASE WHEN h.state IN ('succeeded', 'cancelled') THEN h.finished_at END AS completed_at, "
            f"{no_time} AS next_retry_at, h.attempts, (SELECT e.error FROM job_errors e WHERE e.job_id = h.id "
            "ORDER BY e.fence DESC LIMIT 1) AS error_message FROM job_history h"
        ),
        (
            "CREATE VIEW source_health AS "
            "SELECT s.name, s.paused_at IS NULL AS enabled, s.failure_streak, s.last_success_at, s.last_failure_at, "
            f"s.last_failure, CASE WHEN s.opened_until > {now} THEN s.opened_until END AS paused_until, "
            f"s.pause_reason, CASE WHEN s.paused_at IS NOT NULL THEN 'paused' WHEN s.opened_until > {now} "
            "THEN 'breaker open' WHEN s.opened_until IS NOT NULL THEN 'half-open' ELSE 'serving' END AS state "
            "FROM sources s"
        ),
        (
            "CREATE VIEW stuck_jobs AS "
            "SELECT j.id, j.kind, j.lane, j.state AS status, j.worker AS locked_by, "
            f"{heartbeat} AS heartbeat_at, j.lease_until, {SECONDS[dialect].format(at=heartbeat)} "
            "AS seconds_since_heartbeat FROM jobs j LEFT JOIN workers w ON w.name = j.worker "
            f"WHERE j.state = 'running' AND j.lease_until <= {now}"
        ),
    ):
        connection.exec_driver_sql(view)
