"""Tables of links, crawls, products, offers and the HTTP cache."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    text,
)

from mistnet.kit.types import BigId, Money, RawJson, UtcTime, numbered_table, only_where, stored_table

LINK_KIND = "kind IN ('item', 'catalogue', 'shop', 'search', 'short', 'code', 'blocked', 'dead', 'page', 'refused')"
LINK_STATE = "state IN ('new', 'crawled', 'resolved', 'unresolved', 'blocked', 'gone', 'failed')"
PLACE = "place IN ('text', 'entity', 'attachment', 'text_attachment', 'quoted')"
CRAWL_OUTCOME = (
    "outcome IN ('offer', 'unchanged', 'doubted', 'no_price', 'resolved', 'blocked', 'gone', 'unreadable', "
    "'refused', 'failed')"
)
LEADS_ON = "leads_to IS NOT NULL"
READ = "state = 'crawled'"
IN_DOUBT = "doubt IS NOT NULL"

products = numbered_table(
    "products",
    Column("platform", Text, nullable=False),
    Column("region", Text, nullable=False, server_default=text("''")),
    Column("shop_id", Text, nullable=False, server_default=text("''")),
    Column("item_id", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("title", Text),
    Column("brand", Text),
    Column("sku", Text),
    Column("image_url", Text),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("gone_at", UtcTime),
    Column("offer_id", BigId),
    Index("products_identity", "platform", "region", "shop_id", "item_id", unique=True),
    Index("products_platform", "platform", "id"),
)

links = numbered_table(
    "links",
    Column("url_norm", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("platform", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("region", Text),
    Column("shop_id", Text),
    Column("item_id", Text),
    Column("leads_to", BigId),
    Column("product_id", BigId),
    Column("problem", Text),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("crawled_at", UtcTime),
    Column("content_hash", Text),
    ForeignKeyConstraint(["leads_to"], ["links.id"], name="links_leads_to_fkey"),
    ForeignKeyConstraint(["product_id"], ["products.id"], name="links_product_fkey"),
    CheckConstraint(LINK_KIND, name="kind_is_known"),
    CheckConstraint(LINK_STATE, name="state_is_known"),
    Index("links_url_norm", "url_norm", unique=True),
    Index("links_product", "product_id"),
    Index("links_lane_state", "lane", "state", "id"),
    Index("links_kind", "kind", "lane", "state", "id"),
    Index("links_crawled_at", "crawled_at", "id", **only_where(READ)),
    Index("links_leads_to", "leads_to", **only_where(LEADS_ON)),
)

post_links = stored_table(
    "post_links",
    Column("platform", Text, primary_key=True),
    Column("post_id", BigId, primary_key=True, autoincrement=False),
    Column("link_id", BigId, primary_key=True, autoincrement=False),
    Column("place", Text, primary_key=True),
    Column("nr", SmallInteger, nullable=False),
    Column("url", Text, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["platform", "post_id"], ["posts.platform", "posts.id"], name="post_links_post_fkey"),
    ForeignKeyConstraint(["link_id"], ["links.id"], name="post_links_link_fkey"),
    CheckConstraint(PLACE, name="place_is_known"),
    Index("post_links_link", "link_id", "platform", "post_id"),
)

offers = numbered_table(
    "offers",
    Column("product_id", BigId, nullable=False),
    Column("link_id", BigId),
    Column("observed_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("times_seen", Integer, nullable=False, server_default=text("1")),
    Column("amount", Money),
    Column("amount_max", Money),
    Column("list_amount", Money),
    Column("currency", Text),
    Column("availability", Text),
    Column("sold_count", BigId),
    Column("rating_count", BigId),
    Column("content_hash", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("confidence", Float, nullable=False),
    Column("evidence", RawJson, nullable=False),
    Column("doubt", Text),
    Column("reading", RawJson),
    Column("corrected_at", UtcTime),
    ForeignKeyConstraint(["product_id"], ["products.id"], name="offers_product_fkey"),
    ForeignKeyConstraint(["link_id"], ["links.id"], name="offers_link_fkey"),
    CheckConstraint("amount IS NULL OR currency IS NOT NULL", name="amounts_have_a_currency"),
    CheckConstraint("currency IS NULL OR length(currency) = 3", name="currency_is_iso"),
    Index("offers_product", "product_id", "observed_at", "id"),
    Index("offers_doubted", "id", **only_where(IN_DOUBT)),
)

offer_corrections = numbered_table(
    "offer_corrections",
    Column("offer_id", BigId, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("note", Text),
    Column("read_amount", Money),
    Column("read_currency", Text),
    Column("amount", Money),
    Column("currency", Text),
    Column("list_amount", Money),
    Column("availability", Text),
    ForeignKeyConstraint(["offer_id"], ["offers.id"], name="offer_corrections_offer_fkey"),
    CheckConstraint("amount IS NULL OR currency IS NOT NULL", name="corrections_have_a_currency"),
    Index("offer_corrections_offer", "offer_id", "id"),
)

crawls = numbered_table(
    "crawls",
    Column("link_id", BigId, nullable=False),
    Column("product_id", BigId),
    Column("offer_id", BigId),
    Column("job_id", BigId),
    Column("at", UtcTime, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("http_status", SmallInteger),
    Column("final_url", Text),
    Column("bytes", Integer),
    Column("duration_ms", Integer),
    Column("content_hash", Text),
    Column("problem", Text),
    Column("body", LargeBinary),
    ForeignKeyConstraint(["link_id"], ["links.id"], name="crawls_link_fkey"),
    ForeignKeyConstraint(["product_id"], ["products.id"], name="crawls_product_fkey"),
    ForeignKeyConstraint(["offer_id"], ["offers.id"], name="crawls_offer_fkey"),
    CheckConstraint(CRAWL_OUTCOME, name="outcome_is_known"),
    Index("crawls_link", "link_id", "id"),
    Index("crawls_at", "at"),
)

cached_answers = stored_table(
    "cached_answers",
    Column("key", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("stored_at", UtcTime, nullable=False),
    Column("fresh_until", UtcTime, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("headers", RawJson, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("cached_answers_stored_at", "stored_at"),
    Index("cached_answers_source", "source", "fresh_until"),
)

hosts = stored_table(
    "hosts",
    Column("host", Text, primary_key=True),
    Column("next_at", UtcTime, nullable=False),
    Column("delay_seconds", Float),
)

product_words = stored_table(
    "product_words",
    Column("product_id", BigId, primary_key=True, autoincrement=False),
    Column("word", Text, primary_key=True),
    Column("lane", Text, nullable=False),
    ForeignKeyConstraint(["product_id"], ["products.id"], name="product_words_product_fkey"),
    Index("product_words_word", "lane", "word", "product_id"),
)
