"""Who follows whom, ingests, segments."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, RawJson, UtcTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _ingest_events()
    _ingest_ids()
    _follows()
    _follow_events()
    _segments()
    _segment_inputs()
    _segment_snapshots()
    _segment_members()
    _segment_events()


def _ingest_events() -> None:
    op.create_table(
        "ingest_events",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("subject_id", BigId, nullable=True),
        sa.Column("mode", sa.Text, nullable=True),
        sa.Column("asked_by", sa.Text, nullable=False),
        sa.Column("job_id", BigId, nullable=True),
        sa.Column("started_at", UtcTime, nullable=False),
        sa.Column("finished_at", UtcTime, nullable=True),
        sa.Column("calls", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("items", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("plausible", sa.Boolean, nullable=True),
        sa.Column("endpoint", sa.Text, nullable=True),
        sa.Column("http_status", sa.SmallInteger, nullable=True),
        sa.Column("exchange", RawJson, nullable=True),
        sa.Column("problem", sa.Text, nullable=True),
        sa.CheckConstraint("platform IN ('x', 'threads')", name=op.f("ingest_events_platform_is_known")),
        sa.CheckConstraint(
            "kind IN ('users_by_ids', 'posts_by_ids', 'followers_sync', 'followings_sync', 'posts_sync', 'webhook')",
            name=op.f("ingest_events_kind_is_known"),
        ),
        sa.CheckConstraint(
            "status IN ('in_progress', 'success', 'error', 'cancelled')", name=op.f("ingest_events_status_is_known")
        ),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (status = 'in_progress')", name=op.f("ingest_events_finished_ones_say_when")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("ingest_events_pkey")),
        sqlite_autoincrement=True,
    )
    still_open = sa.text("status = 'in_progress'")
    op.create_index(
        "ingest_events_open",
        "ingest_events",
        ["job_id"],
        unique=True,
        sqlite_where=still_open,
        postgresql_where=still_open,
    )
    op.create_index("ingest_events_started_at", "ingest_events", ["started_at"])
    op.create_index("ingest_events_subject", "ingest_events", ["platform", "kind", "subject_id", "id"])


def _ingest_ids() -> None:
    op.create_table(
        "ingest_ids",
        sa.Column("ingest_id", BigId, autoincrement=False, nullable=False),
        sa.Column("id", BigId, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["ingest_id"], ["ingest_events.id"], name="ingest_ids_ingest_fkey", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("ingest_id", "id", name=op.f("ingest_ids_pkey")),
    )


def _follows() -> None:
    op.create_table(
        "follows",
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("follower_id", BigId, autoincrement=False, nullable=False),
        sa.Column("followed_id", BigId, autoincrement=False, nullable=False),
        sa.Column("first_seen_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("seen_in", BigId, nullable=False),
        sa.Column("missed_in", BigId, nullable=True),
        sa.Column("ended_at", UtcTime, nullable=True),
        sa.ForeignKeyConstraint(
            ["platform", "follower_id"], ["users.platform", "users.id"], name="follows_follower_fkey"
        ),
        sa.ForeignKeyConstraint(
            ["platform", "followed_id"], ["users.platform", "users.id"], name="follows_followed_fkey"
        ),
        sa.CheckConstraint("follower_id <> followed_id", name=op.f("follows_nobody_follows_himself")),
        sa.PrimaryKeyConstraint("platform", "follower_id", "followed_id", name=op.f("follows_pkey")),
    )
    op.create_index("follows_followed", "follows", ["platform", "followed_id", "follower_id"])


def _follow_events() -> None:
    op.create_table(
        "follow_events",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("follower_id", BigId, nullable=False),
        sa.Column("followed_id", BigId, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("ingest_id", BigId, nullable=True),
        sa.ForeignKeyConstraint(
            ["platform", "follower_id", "followed_id"],
            ["follows.platform", "follows.follower_id", "follows.followed_id"],
            name="follow_events_edge_fkey",
        ),
        sa.CheckConstraint("kind IN ('followed', 'unfollowed')", name=op.f("follow_events_kind_is_known")),
        sa.CheckConstraint(
            "cause IN ('seen', 'pushed', 'unfollowed', 'suspended', 'vanished')",
            name=op.f("follow_events_cause_is_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("follow_events_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("follow_events_followed", "follow_events", ["platform", "followed_id", "id"])
    op.create_index("follow_events_follower", "follow_events", ["platform", "follower_id", "id"])


def _segments() -> None:
    op.create_table(
        "segments",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("rule", RawJson, nullable=False),
        sa.Column("enabled", sa.Boolean, server_default=sa.true(), nullable=False),
        sa.Column("every_seconds", sa.Float, nullable=True),
        sa.Column("fresh_seconds", sa.Float, nullable=True),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("changed_at", UtcTime, nullable=False),
        sa.Column("materialized_at", UtcTime, nullable=True),
        sa.Column("next_at", UtcTime, nullable=True),
        sa.CheckConstraint("what IN ('users', 'posts')", name=op.f("segments_what_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("segments_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("segments_name", "segments", ["name"], unique=True)
    op.create_index("segments_next_at", "segments", ["next_at"])


def _segment_inputs() -> None:
    op.create_table(
        "segment_inputs",
        sa.Column("segment_id", BigId, autoincrement=False, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("user_id", BigId, autoincrement=False, nullable=False),
        sa.Column("added_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(
            ["segment_id"], ["segments.id"], name="segment_inputs_segment_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["platform", "user_id"], ["users.platform", "users.id"], name="segment_inputs_user_fkey"
        ),
        sa.PrimaryKeyConstraint("segment_id", "platform", "user_id", name=op.f("segment_inputs_pkey")),
    )


def _segment_snapshots() -> None:
    op.create_table(
        "segment_snapshots",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("segment_id", BigId, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("members", sa.Integer, nullable=False),
        sa.Column("entered", sa.Integer, nullable=False),
        sa.Column("departed", sa.Integer, nullable=False),
        sa.Column("ingests", RawJson, nullable=False),
        sa.ForeignKeyConstraint(
            ["segment_id"], ["segments.id"], name="segment_snapshots_segment_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("segment_snapshots_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("segment_snapshots_segment", "segment_snapshots", ["segment_id", "at"])


def _segment_members() -> None:
    op.create_table(
        "segment_members",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("segment_id", BigId, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("user_id", BigId, nullable=True),
        sa.Column("post_id", BigId, nullable=True),
        sa.Column("since", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(
            ["segment_id"], ["segments.id"], name="segment_members_segment_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["platform", "user_id"], ["users.platform", "users.id"], name="segment_members_user_fkey"
        ),
        sa.ForeignKeyConstraint(
            ["platform", "post_id"], ["posts.platform", "posts.id"], name="segment_members_post_fkey"
        ),
        sa.CheckConstraint("(user_id IS NULL) <> (post_id IS NULL)", name=op.f("segment_members_a_user_or_a_post")),
        sa.PrimaryKeyConstraint("id", name=op.f("segment_members_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("segment_members_order", "segment_members", ["segment_id", "id"])
    op.create_index(
        "segment_members_post",
        "segment_members",
        ["segment_id", "platform", "post_id"],
        unique=True,
        postgresql_where=sa.text("post_id IS NOT NULL"),
        sqlite_where=sa.text("post_id IS NOT NULL"),
    )
    op.create_index(
        "segment_members_user",
        "segment_members",
        ["segment_id", "platform", "user_id"],
        unique=True,
        postgresql_where=sa.text("user_id IS NOT NULL"),
        sqlite_where=sa.text("user_id IS NOT NULL"),
    )


def _segment_events() -> None:
    op.create_table(
        "segment_events",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("segment_id", BigId, nullable=False),
        sa.Column("snapshot_id", BigId, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("user_id", BigId, nullable=True),
        sa.Column("post_id", BigId, nullable=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["segment_snapshots.id"], name="segment_events_snapshot_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["platform", "user_id"], ["users.platform", "users.id"], name="segment_events_user_fkey"
        ),
        sa.ForeignKeyConstraint(
            ["platform", "post_id"], ["posts.platform", "posts.id"], name="segment_events_post_fkey"
        ),
        sa.CheckConstraint("(user_id IS NULL) <> (post_id IS NULL)", name=op.f("segment_events_a_user_or_a_post")),
        sa.CheckConstraint("kind IN ('entered', 'left')", name=op.f("segment_events_kind_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("segment_events_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("segment_events_segment", "segment_events", ["segment_id", "id"])
    op.create_index(
        "segment_events_post",
        "segment_events",
        ["segment_id", "platform", "post_id", "id"],
        postgresql_where=sa.text("post_id IS NOT NULL"),
        sqlite_where=sa.text("post_id IS NOT NULL"),
    )
    op.create_index(
        "segment_events_user",
        "segment_events",
        ["segment_id", "platform", "user_id", "id"],
        postgresql_where=sa.text("user_id IS NOT NULL"),
        sqlite_where=sa.text("user_id IS NOT NULL"),
    )
