"""From post to product: feeds, links, crawls, products, offers."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, Money, RawJson, UtcTime

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _feeds()
    _products()
    _links()
    _post_links()
    _offers()
    _crawls()
    _cached_answers()
    _hosts()
    _dispatch()


def _feeds() -> None:
    op.create_table(
        "feeds",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("handle", sa.Text, nullable=False),
        sa.Column("handle_key", sa.Text, nullable=False),
        sa.Column("user_id", BigId, nullable=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=True),
        sa.Column("every_seconds", sa.Float, nullable=True),
        sa.Column("added_at", UtcTime, nullable=False),
        sa.Column("removed_at", UtcTime, nullable=True),
        sa.Column("newest_post_at", UtcTime, nullable=True),
        sa.Column("newest_reply_at", UtcTime, nullable=True),
        sa.Column("polled_at", UtcTime, nullable=True),
        sa.Column("posts", BigId, server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="feeds_user_fkey"),
        sa.CheckConstraint("platform IN ('x', 'threads')", name=op.f("feeds_platform_is_known")),
        sa.CheckConstraint("state IN ('new', 'active', 'refused', 'removed')", name=op.f("feeds_state_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("feeds_pkey")),
        sqlite_autoincrement=True,
    )
    live = sa.text("state <> 'removed'")
    op.create_index(
        "feeds_live", "feeds", ["platform", "handle_key"], unique=True, sqlite_where=live, postgresql_where=live
    )


def _products() -> None:
    op.create_table(
        "products",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("region", sa.Text, server_default=sa.text("''"), nullable=False),
        sa.Column("shop_id", sa.Text, server_default=sa.text("''"), nullable=False),
        sa.Column("item_id", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=True),
        sa.Column("brand", sa.Text, nullable=True),
        sa.Column("sku", sa.Text, nullable=True),
        sa.Column("image_url", sa.Text, nullable=True),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("gone_at", UtcTime, nullable=True),
        sa.Column("offer_id", BigId, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("products_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("products_identity", "products", ["platform", "region", "shop_id", "item_id"], unique=True)
    op.create_index("products_platform", "products", ["platform", "id"])


def _links() -> None:
    op.create_table(
        "links",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("url_norm", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("region", sa.Text, nullable=True),
        sa.Column("shop_id", sa.Text, nullable=True),
        sa.Column("item_id", sa.Text, nullable=True),
        sa.Column("leads_to", BigId, nullable=True),
        sa.Column("product_id", BigId, nullable=True),
        sa.Column("problem", sa.Text, nullable=True),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("crawled_at", UtcTime, nullable=True),
        sa.Column("content_hash", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(["leads_to"], ["links.id"], name="links_leads_to_fkey"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="links_product_fkey"),
        sa.CheckConstraint(
            "kind IN ('item', 'catalogue', 'shop', 'search', 'short', 'code', 'blocked', 'dead', 'page', 'refused')",
            name=op.f("links_kind_is_known"),
        ),
        sa.CheckConstraint(
            "state IN ('new', 'crawled', 'resolved', 'unresolved', 'blocked', 'gone', 'failed')",
            name=op.f("links_state_is_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("links_pkey")),
        sqlite_autoincrement=True,
    )
    leads_on = sa.text("leads_to IS NOT NULL")
    op.create_index("links_kind", "links", ["kind", "lane", "state", "id"])
    read = sa.text("state = 'crawled'")
    op.create_index("links_crawled_at", "links", ["crawled_at", "id"], sqlite_where=read, postgresql_where=read)
    op.create_index("links_lane_state", "links", ["lane", "state", "id"])
    op.create_index("links_leads_to", "links", ["leads_to"], sqlite_where=leads_on, postgresql_where=leads_on)
    op.create_index("links_product", "links", ["product_id"])
    op.create_index("links_url_norm", "links", ["url_norm"], unique=True)


def _post_links() -> None:
    op.create_table(
        "post_links",
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("post_id", BigId, autoincrement=False, nullable=False),
        sa.Column("link_id", BigId, autoincrement=False, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("nr", sa.SmallInteger, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("seen_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["platform", "post_id"], ["posts.platform", "posts.id"], name="post_links_post_fkey"),
        sa.ForeignKeyConstraint(["link_id"], ["links.id"], name="post_links_link_fkey"),
        sa.CheckConstraint(
            "place IN ('text', 'entity', 'attachment', 'text_attachment', 'quoted')",
            name=op.f("post_links_place_is_known"),
        ),
        sa.PrimaryKeyConstraint("platform", "post_id", "link_id", "place", name=op.f("post_links_pkey")),
    )
    op.create_index("post_links_link", "post_links", ["link_id", "platform", "post_id"])


def _offers() -> None:
    op.create_table(
        "offers",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("product_id", BigId, nullable=False),
        sa.Column("link_id", BigId, nullable=True),
        sa.Column("observed_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("times_seen", sa.Integer, server_default=sa.text("1"), nullable=False),
        sa.Column("amount", Money, nullable=True),
        sa.Column("amount_max", Money, nullable=True),
        sa.Column("list_amount", Money, nullable=True),
        sa.Column("currency", sa.Text, nullable=True),
        sa.Column("availability", sa.Text, nullable=True),
        sa.Column("sold_count", BigId, nullable=True),
        sa.Column("rating_count", BigId, nullable=True),
        sa.Column("content_hash", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("evidence", RawJson, nullable=False),
        sa.Column("doubt", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="offers_product_fkey"),
        sa.ForeignKeyConstraint(["link_id"], ["links.id"], name="offers_link_fkey"),
        sa.CheckConstraint("amount IS NULL OR currency IS NOT NULL", name=op.f("offers_amounts_have_a_currency")),
        sa.CheckConstraint("currency IS NULL OR length(currency) = 3", name=op.f("offers_currency_is_iso")),
        sa.PrimaryKeyConstraint("id", name=op.f("offers_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("offers_product", "offers", ["product_id", "observed_at", "id"])


def _crawls() -> None:
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
        sa.CheckConstraint(
            "outcome IN ('offer', 'unchanged', 'doubted', 'no_price', 'resolved', 'blocked', 'gone', "
            "'refused', 'failed')",
            name=op.f("crawls_outcome_is_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("crawls_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("crawls_at", "crawls", ["at"])
    op.create_index("crawls_link", "crawls", ["link_id", "id"])


def _cached_answers() -> None:
    op.create_table(
        "cached_answers",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("stored_at", UtcTime, nullable=False),
        sa.Column("fresh_until", UtcTime, nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("headers", RawJson, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("cached_answers_pkey")),
    )
    op.create_index("cached_answers_stored_at", "cached_answers", ["stored_at"])


def _hosts() -> None:
    op.create_table(
        "hosts",
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("next_at", UtcTime, nullable=False),
        sa.Column("delay_seconds", sa.Float, nullable=True),
        sa.PrimaryKeyConstraint("host", name=op.f("hosts_pkey")),
    )


def _dispatch() -> None:
    queued = sa.text("state = 'queued'")
    op.create_index("jobs_queued", "jobs", ["lane", "started_at", "id"], postgresql_where=queued, sqlite_where=queued)
    op.create_table(
        "dead_letters",
        sa.Column("job_id", BigId, autoincrement=False, nullable=False),
        sa.Column("fence", BigId, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("dead_letters_pkey")),
    )
