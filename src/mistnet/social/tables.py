"""Tables of users, accounts, posts, feeds, ingests and search."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    false,
    text,
)

from mistnet.kit.types import IDS, BigId, RawJson, UtcTime, numbered_table, only_where, stored_table
from mistnet.social.model import Metrics

LIVE = "deleted_at IS NULL"
DUE_LOOK = "next_look_at IS NOT NULL"
UNRESOLVED = "resolved_at IS NULL"

users = stored_table(
    "users",
    Column("platform", Text, primary_key=True),
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("handle", Text),
    Column("handle_key", Text),
    Column("name", Text),
    Column("bio", Text),
    Column("location", Text),
    Column("website", Text),
    Column("avatar_url", Text),
    Column("banner_url", Text),
    Column("verified", Boolean),
    Column("verified_kind", Text),
    Column("protected", Boolean),
    Column("automated", Boolean),
    Column("followers_count", BigId),
    Column("following_count", BigId),
    Column("posts_count", BigId),
    Column("media_count", BigId),
    Column("likes_count", BigId),
    Column("created_at", UtcTime),
    Column("unavailable_reason", Text),
    Column("detail", Text, nullable=False),
    Column("raw", RawJson, nullable=False),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("last_updated_at", UtcTime, nullable=False),
    Column("profiled_at", UtcTime),
    Column("ingest_id", BigId),
    CheckConstraint("detail IN ('author', 'listed', 'profile')", name="detail_is_known"),
    Index("users_handle", "handle_key", "platform"),
    Index("users_profiled_at", "profiled_at", "platform"),  # only the key begins with the platform: none looks as good
)

user_versions = stored_table(
    "user_versions",
    Column("platform", Text, primary_key=True),
    Column("user_id", BigId, primary_key=True, autoincrement=False),
    Column("until", UtcTime, primary_key=True),
    Column("handle", Text),
    Column("handle_key", Text),
    Column("name", Text),
    Column("bio", Text),
    Column("avatar_url", Text),
    ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="user_versions_user_fkey"),
    Index("user_versions_handle", "platform", "handle_key"),
)

accounts = stored_table(
    "accounts",
    Column("platform", Text, primary_key=True),
    Column("user_id", BigId, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("state_reason", Text),
    Column("state_since", UtcTime, nullable=False),
    Column("tracked_at", UtcTime, nullable=False),
    Column("oldest_post_id", BigId),
    Column("newest_post_id", BigId),
    Column("newest_repost_id", BigId),
    Column("backfilled_at", UtcTime),
    Column("reposts_backfilled_at", UtcTime),
    Column("next_look_at", UtcTime),
    Column("last_fetched_at", UtcTime),
    Column("fetches", Integer, nullable=False, server_default=text("0")),
    Column("empty_fetches", Integer, nullable=False, server_default=text("0")),
    Column("posts_found", BigId, nullable=False, server_default=text("0")),
    Column("last_fetched_count", Integer),
    Column("last_new_count", Integer),
    Column("new_rate", Float, nullable=False, server_default=text("0")),
    Column("fetch_limit", Integer),
    Column("suspect_since", UtcTime),
    Column("suspect_looks", Integer, nullable=False, server_default=text("0")),
    ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="accounts_user_fkey"),
    CheckConstraint("state IN ('active', 'protected', 'suspended', 'vanished', 'untracked')", name="state_is_known"),
    CheckConstraint("oldest_post_id <= newest_post_id", name="boundaries_are_in_order"),
    Index("accounts_next_look_at", "next_look_at", **only_where(DUE_LOOK)),
)

IS_USER_OF_ACCOUNT: Final = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)

# How many posts of each account are stored. Triggers keep it, as millions take too long to count in a request.
account_posts = stored_table(
    "account_posts",
    Column("platform", Text, primary_key=True),
    Column("user_id", BigId, primary_key=True, autoincrement=False),
    Column("posts", BigId, nullable=False),
)

# The authors of posts just added (`step` 1) or removed (-1), to be merged into `account_posts`. Only PostgreSQL needs
# it: its writers would wait for each other's counts.
post_deltas = stored_table(
    "post_deltas",
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("platform", Text, nullable=False),
    Column("step", SmallInteger, nullable=False),
    Column("authors", IDS, nullable=False),
)

suggestions = numbered_table(
    "suggestions",
    Column("platform", Text, nullable=False),
    Column("handle", Text, nullable=False),
    Column("handle_key", Text, nullable=False),
    Column("wallet", Text),
    Column("labels", RawJson, nullable=False),
    Column("suggested_at", UtcTime, nullable=False),
    Column("deleted_at", UtcTime),
    Column("outcome", Text),
    Column("reason", Text),
    Column("user_id", BigId),
    Column("withdrawn_at", UtcTime),
    CheckConstraint("outcome IN ('accepted', 'refused')", name="outcome_is_known"),
    CheckConstraint("(deleted_at IS NULL) = (outcome IS NULL)", name="closed_ones_have_an_outcome"),
    Index("suggestions_live_handle", "platform", "handle_key", unique=True, **only_where(LIVE)),
)

posts = stored_table(
    "posts",
    Column("platform", Text, primary_key=True),
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("author_id", BigId, nullable=False),
    Column("text", Text, nullable=False),
    Column("text_clean", Text, nullable=False),
    Column("search_text", Text),
    Column("lang", Text),
    Column("url", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("conversation_id", BigId),
    Column("in_reply_to_id", BigId),
    Column("in_reply_to_user_id", BigId),
    Column("quoted_id", BigId),
    Column("reposted_id", BigId),
    Column("referenced_text", Text),
    Column("referenced_handle", Text),
    Column("referenced_media", RawJson),
    Column("media", RawJson),
    Column("links", RawJson),
    *(Column(name, BigId) for name in Metrics.__struct_fields__),
    Column("nested", Boolean, nullable=False, server_default=false()),
    Column("raw", RawJson, nullable=False),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("last_updated_at", UtcTime, nullable=False),
    Column("ingest_id", BigId),
    Column("referenced_text_clean", Text),
    ForeignKeyConstraint(["platform", "author_id"], ["users.platform", "users.id"], name="posts_author_fkey"),
    Index("posts_author", "platform", "author_id", "id"),
    Index("posts_author_time", "platform", "author_id", "created_at", "id"),
    Index("posts_conversation", "platform", "conversation_id", "id"),
    Index("posts_created_at", "created_at", "platform", "id"),
    Index("posts_first_seen_at", "first_seen_at"),
)

missing = stored_table(
    "missing",
    Column("platform", Text, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
    Column("asked_at", UtcTime, nullable=False),
    Column("times_asked", Integer, nullable=False, server_default=text("1")),
    CheckConstraint("what IN ('user', 'post')", name="what_is_known"),
)

quarantine = numbered_table(
    "quarantine",
    Column("platform", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("times_seen", Integer, nullable=False, server_default=text("1")),
    Column("resolved_at", UtcTime),
    Index("quarantine_payload", "platform", "endpoint", "digest", unique=True),
    Index("quarantine_unresolved", "id", **only_where(UNRESOLVED)),
    Index("quarantine_resolved_at", "resolved_at"),
)

WORDS: Final = "to_tsvector('simple'::regconfig, left(coalesce(search_text, text_clean), 200000))"
"""PostgreSQL's search expression, exactly as in the index posts_search: the index serves no other form of it.

The migrations create that index, and on SQLite the FTS5 table posts_search with its view and triggers.
"""

INGEST_KIND = "kind IN ('users_by_ids', 'posts_by_ids', 'followers_sync', 'followings_sync', 'posts_sync', 'webhook')"
INGEST_STATUS = "status IN ('in_progress', 'success', 'error', 'cancelled')"
OPEN_INGEST = "status = 'in_progress'"

ingest_events = numbered_table(
    "ingest_events",
    Column("platform", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("subject_id", BigId),
    Column("mode", Text),
    Column("asked_by", Text, nullable=False),
    Column("job_id", BigId),
    Column("started_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("calls", Integer, nullable=False, server_default=text("0")),
    Column("items", Integer, nullable=False, server_default=text("0")),
    Column("plausible", Boolean),
    Column("endpoint", Text),
    Column("http_status", SmallInteger),
    Column("exchange", RawJson),
    Column("problem", Text),
    CheckConstraint(INGEST_KIND, name="kind_is_known"),
    CheckConstraint(INGEST_STATUS, name="status_is_known"),
    CheckConstraint("(finished_at IS NULL) = (status = 'in_progress')", name="finished_ones_say_when"),
    Index("ingest_events_subject", "platform", "kind", "subject_id", "id"),
    Index("ingest_events_started_at", "started_at"),
    Index("ingest_events_open", "job_id", unique=True, **only_where(OPEN_INGEST)),
)

ingest_ids = stored_table(
    "ingest_ids",
    Column("ingest_id", BigId, primary_key=True, autoincrement=False),
    Column("id", BigId, primary_key=True, autoincrement=False),
    ForeignKeyConstraint(["ingest_id"], ["ingest_events.id"], name="ingest_ids_ingest_fkey", ondelete="CASCADE"),
)

FEED_STATE = "state IN ('new', 'active', 'refused', 'removed')"
LIVE_FEED = "state <> 'removed'"

feeds = numbered_table(
    "feeds",
    Column("platform", Text, nullable=False),
    Column("handle", Text, nullable=False),
    Column("handle_key", Text, nullable=False),
    Column("user_id", BigId),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("every_seconds", Float),
    Column("added_at", UtcTime, nullable=False),
    Column("removed_at", UtcTime),
    Column("newest_post_at", UtcTime),
    Column("newest_reply_at", UtcTime),
    Column("polled_at", UtcTime),
    Column("posts", BigId, nullable=False, server_default=text("0")),
    ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="feeds_user_fkey"),
    CheckConstraint(FEED_STATE, name="state_is_known"),
    Index("feeds_live", "platform", "handle_key", unique=True, **only_where(LIVE_FEED)),
)
