"""What is collected and from whom: users, accounts, posts, gaps, quarantine, sources, calls; text search."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, RawJson, UtcTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

POSTGRESQL_SEARCH = (
    (
        "CREATE INDEX posts_search ON posts USING gin "
        "(to_tsvector('simple'::regconfig, left(coalesce(search_text, text_clean), 200000)))"
    ),
)
SQLITE_SEARCH = (
    (
        "CREATE VIEW posts_words AS SELECT CASE platform WHEN 'x' THEN id ELSE -id END AS row_number, "
        "coalesce(search_text, text_clean) AS words FROM posts"
    ),
    (
        "CREATE VIRTUAL TABLE posts_search USING fts5(words, content='posts_words', content_rowid='row_number', "
        "tokenize='unicode61 remove_diacritics 2')"
    ),
    (
        "CREATE TRIGGER posts_search_added AFTER INSERT ON posts BEGIN "
        "INSERT INTO posts_search (rowid, words) VALUES (CASE NEW.platform WHEN 'x' THEN NEW.id ELSE -NEW.id END, "
        "coalesce(NEW.search_text, NEW.text_clean)); END"
    ),
    (
        "CREATE TRIGGER posts_search_changed AFTER UPDATE OF text_clean, search_text ON posts "
        "WHEN coalesce(OLD.search_text, OLD.text_clean) IS NOT coalesce(NEW.search_text, NEW.text_clean) BEGIN "
        "INSERT INTO posts_search (posts_search, rowid, words) VALUES ('delete', "
        "CASE OLD.platform WHEN 'x' THEN OLD.id ELSE -OLD.id END, coalesce(OLD.search_text, OLD.text_clean)); "
        "INSERT INTO posts_search (rowid, words) VALUES (CASE NEW.platform WHEN 'x' THEN NEW.id ELSE -NEW.id END, "
        "coalesce(NEW.search_text, NEW.text_clean)); END"
    ),
)
LZ4 = "SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)"


def upgrade() -> None:
    _users()
    _user_versions()
    _accounts()
    _suggestions()
    _posts()
    _missing()
    _quarantine()
    _sources()
    _source_keys()
    _calls()
    _search()


def _search() -> None:
    connection = op.get_bind()
    postgresql = connection.dialect.name == "postgresql"
    for statement in POSTGRESQL_SEARCH if postgresql else SQLITE_SEARCH:
        connection.exec_driver_sql(statement)
    if postgresql and connection.exec_driver_sql(LZ4).scalar():
        for table in ("posts", "users"):
            connection.exec_driver_sql(f"ALTER TABLE {table} ALTER COLUMN raw SET COMPRESSION lz4")


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("id", BigId, autoincrement=False, nullable=False),
        sa.Column("handle", sa.Text, nullable=True),
        sa.Column("handle_key", sa.Text, nullable=True),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("bio", sa.Text, nullable=True),
        sa.Column("location", sa.Text, nullable=True),
        sa.Column("website", sa.Text, nullable=True),
        sa.Column("avatar_url", sa.Text, nullable=True),
        sa.Column("banner_url", sa.Text, nullable=True),
        sa.Column("verified", sa.Boolean, nullable=True),
        sa.Column("verified_kind", sa.Text, nullable=True),
        sa.Column("protected", sa.Boolean, nullable=True),
        sa.Column("automated", sa.Boolean, nullable=True),
        sa.Column("followers_count", BigId, nullable=True),
        sa.Column("following_count", BigId, nullable=True),
        sa.Column("posts_count", BigId, nullable=True),
        sa.Column("media_count", BigId, nullable=True),
        sa.Column("likes_count", BigId, nullable=True),
        sa.Column("created_at", UtcTime, nullable=True),
        sa.Column("unavailable_reason", sa.Text, nullable=True),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("raw", RawJson, nullable=False),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("last_updated_at", UtcTime, nullable=False),
        sa.Column("profiled_at", UtcTime, nullable=True),
        sa.CheckConstraint("platform IN ('x', 'threads')", name=op.f("users_platform_is_known")),
        sa.CheckConstraint("detail IN ('author', 'listed', 'profile')", name=op.f("users_detail_is_known")),
        sa.PrimaryKeyConstraint("platform", "id", name=op.f("users_pkey")),
    )
    op.create_index("users_handle", "users", ["platform", "handle_key"], unique=False)
    op.create_index("users_profiled_at", "users", ["platform", "profiled_at"], unique=False)


def _user_versions() -> None:
    op.create_table(
        "user_versions",
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("user_id", BigId, autoincrement=False, nullable=False),
        sa.Column("until", UtcTime, nullable=False),
        sa.Column("handle", sa.Text, nullable=True),
        sa.Column("handle_key", sa.Text, nullable=True),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("bio", sa.Text, nullable=True),
        sa.Column("avatar_url", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(
            ["platform", "user_id"], ["users.platform", "users.id"], name="user_versions_user_fkey"
        ),
        sa.PrimaryKeyConstraint("platform", "user_id", "until", name=op.f("user_versions_pkey")),
    )
    op.create_index("user_versions_handle", "user_versions", ["platform", "handle_key"], unique=False)


def _accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("user_id", BigId, autoincrement=False, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("state_reason", sa.Text, nullable=True),
        sa.Column("state_since", UtcTime, nullable=False),
        sa.Column("tracked_at", UtcTime, nullable=False),
        sa.Column("oldest_post_id", BigId, nullable=True),
        sa.Column("newest_post_id", BigId, nullable=True),
        sa.Column("newest_repost_id", BigId, nullable=True),
        sa.Column("backfilled_at", UtcTime, nullable=True),
        sa.Column("reposts_backfilled_at", UtcTime, nullable=True),
        sa.Column("next_look_at", UtcTime, nullable=True),
        sa.Column("last_fetched_at", UtcTime, nullable=True),
        sa.Column("fetches", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("empty_fetches", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("posts_found", BigId, server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="accounts_user_fkey"),
        sa.CheckConstraint(
            "state IN ('active', 'protected', 'suspended', 'vanished', 'untracked')",
            name=op.f("accounts_state_is_known"),
        ),
        sa.CheckConstraint("oldest_post_id <= newest_post_id", name=op.f("accounts_boundaries_are_in_order")),
        sa.PrimaryKeyConstraint("platform", "user_id", name=op.f("accounts_pkey")),
    )
    op.create_index(
        "accounts_next_look_at",
        "accounts",
        ["next_look_at"],
        unique=False,
        postgresql_where=sa.text("next_look_at IS NOT NULL"),
        sqlite_where=sa.text("next_look_at IS NOT NULL"),
    )


def _suggestions() -> None:
    op.create_table(
        "suggestions",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("handle", sa.Text, nullable=False),
        sa.Column("handle_key", sa.Text, nullable=False),
        sa.Column("wallet", sa.Text, nullable=True),
        sa.Column("labels", RawJson, nullable=False),
        sa.Column("suggested_at", UtcTime, nullable=False),
        sa.Column("deleted_at", UtcTime, nullable=True),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.Column("reason", sa.Text, nullable=True),
        sa.Column("user_id", BigId, nullable=True),
        sa.CheckConstraint("platform IN ('x', 'threads')", name=op.f("suggestions_platform_is_known")),
        sa.CheckConstraint("outcome IN ('accepted', 'refused')", name=op.f("suggestions_outcome_is_known")),
        sa.CheckConstraint(
            "(deleted_at IS NULL) = (outcome IS NULL)", name=op.f("suggestions_closed_ones_have_an_outcome")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("suggestions_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "suggestions_live_handle",
        "suggestions",
        ["platform", "handle_key"],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
        sqlite_where=sa.text("deleted_at IS NULL"),
    )


def _posts() -> None:
    op.create_table(
        "posts",
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("id", BigId, autoincrement=False, nullable=False),
        sa.Column("author_id", BigId, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("text_clean", sa.Text, nullable=False),
        sa.Column("search_text", sa.Text, nullable=True),
        sa.Column("lang", sa.Text, nullable=True),
        sa.Column("url", sa.Text, nullable=True),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("conversation_id", BigId, nullable=True),
        sa.Column("in_reply_to_id", BigId, nullable=True),
        sa.Column("in_reply_to_user_id", BigId, nullable=True),
        sa.Column("quoted_id", BigId, nullable=True),
        sa.Column("reposted_id", BigId, nullable=True),
        sa.Column("referenced_text", sa.Text, nullable=True),
        sa.Column("referenced_handle", sa.Text, nullable=True),
        sa.Column("referenced_media", RawJson, nullable=True),
        sa.Column("media", RawJson, nullable=True),
        sa.Column("links", RawJson, nullable=True),
        sa.Column("likes", BigId, nullable=True),
        sa.Column("replies", BigId, nullable=True),
        sa.Column("reposts", BigId, nullable=True),
        sa.Column("quotes", BigId, nullable=True),
        sa.Column("bookmarks", BigId, nullable=True),
        sa.Column("views", BigId, nullable=True),
        sa.Column("nested", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("raw", RawJson, nullable=False),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("last_updated_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["platform", "author_id"], ["users.platform", "users.id"], name="posts_author_fkey"),
        sa.CheckConstraint("platform IN ('x', 'threads')", name=op.f("posts_platform_is_known")),
        sa.PrimaryKeyConstraint("platform", "id", name=op.f("posts_pkey")),
    )
    op.create_index("posts_author", "posts", ["platform", "author_id", "id"], unique=False)
    op.create_index("posts_conversation", "posts", ["platform", "conversation_id", "id"], unique=False)


def _missing() -> None:
    op.create_table(
        "missing",
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("id", BigId, autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("asked_at", UtcTime, nullable=False),
        sa.Column("times_asked", sa.Integer, server_default=sa.text("1"), nullable=False),
        sa.CheckConstraint("platform IN ('x', 'threads')", name=op.f("missing_platform_is_known")),
        sa.CheckConstraint("what IN ('user', 'post')", name=op.f("missing_what_is_known")),
        sa.PrimaryKeyConstraint("platform", "what", "id", name=op.f("missing_pkey")),
    )


def _quarantine() -> None:
    op.create_table(
        "quarantine",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("times_seen", sa.Integer, server_default=sa.text("1"), nullable=False),
        sa.Column("resolved_at", UtcTime, nullable=True),
        sa.CheckConstraint("platform IN ('x', 'threads')", name=op.f("quarantine_platform_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("quarantine_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("quarantine_payload", "quarantine", ["platform", "endpoint", "digest"], unique=True)
    op.create_index(
        "quarantine_unresolved",
        "quarantine",
        ["id"],
        unique=False,
        postgresql_where=sa.text("resolved_at IS NULL"),
        sqlite_where=sa.text("resolved_at IS NULL"),
    )


def _sources() -> None:
    op.create_table(
        "sources",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("paused_at", UtcTime, nullable=True),
        sa.Column("paused_by", sa.Text, nullable=True),
        sa.Column("pause_reason", sa.Text, nullable=True),
        sa.Column("failure_streak", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("opened_until", UtcTime, nullable=True),
        sa.Column("probe_until", UtcTime, nullable=True),
        sa.Column("last_success_at", UtcTime, nullable=True),
        sa.Column("last_failure_at", UtcTime, nullable=True),
        sa.Column("last_failure", sa.Text, nullable=True),
        sa.Column("day", sa.Text, nullable=True),
        sa.Column("day_credits", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("month_credits", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("day_cap", BigId, nullable=True),
        sa.Column("month_cap", BigId, nullable=True),
        sa.CheckConstraint("(paused_at IS NULL) = (paused_by IS NULL)", name=op.f("sources_a_pause_has_its_cause")),
        sa.PrimaryKeyConstraint("name", name=op.f("sources_pkey")),
    )


def _source_keys() -> None:
    op.create_table(
        "source_keys",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("rate_per_minute", sa.Float, nullable=True),
        sa.Column("slowdown", sa.Float, server_default=sa.text("1"), nullable=False),
        sa.Column("slowed_at", UtcTime, nullable=True),
        sa.Column("next_at", UtcTime, nullable=True),
        sa.Column("paused_at", UtcTime, nullable=True),
        sa.Column("pause_reason", sa.Text, nullable=True),
        sa.Column("balance", BigId, nullable=True),
        sa.Column("balance_at", UtcTime, nullable=True),
        sa.ForeignKeyConstraint(["source"], ["sources.name"], name="source_keys_source_fkey"),
        sa.PrimaryKeyConstraint("source", "label", name=op.f("source_keys_pkey")),
    )


def _calls() -> None:
    op.create_table(
        "calls",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("key_label", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=True),
        sa.Column("items", sa.Integer, nullable=False),
        sa.Column("credits", sa.Integer, nullable=False),
        sa.Column("job_id", BigId, nullable=True),
        sa.Column("account_id", BigId, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("calls_pkey")),
    )
    op.create_index("calls_at", "calls", ["at"], unique=False)
