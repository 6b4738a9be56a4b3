"""Who follows whom, which ingests said so, and named sets of users and posts."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    text,
    true,
)

from mistnet.store.tables.metadata import metadata
from mistnet.store.tables.social import PLATFORM
from mistnet.store.types import BigId, RawJson, UtcTime

INGEST_KIND = "kind IN ('users_by_ids', 'posts_by_ids', 'followers_sync', 'followings_sync', 'posts_sync', 'webhook')"
INGEST_STATUS = "status IN ('in_progress', 'success', 'error', 'cancelled')"
OPEN_INGEST = "status = 'in_progress'"
MEMBER = "(user_id IS NULL) <> (post_id IS NULL)"
OF_USERS, OF_POSTS = "user_id IS NOT NULL", "post_id IS NOT NULL"

ingest_events = Table(
    "ingest_events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
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
    CheckConstraint(PLATFORM, name="platform_is_known"),
    CheckConstraint(INGEST_KIND, name="kind_is_known"),
    CheckConstraint(INGEST_STATUS, name="status_is_known"),
    CheckConstraint("(finished_at IS NULL) = (status = 'in_progress')", name="finished_ones_say_when"),
    Index("ingest_events_subject", "platform", "kind", "subject_id", "id"),
    Index("ingest_events_started_at", "started_at"),
    Index(
        "ingest_events_open",
        "job_id",
        unique=True,
        sqlite_where=text(OPEN_INGEST),
        postgresql_where=text(OPEN_INGEST),
    ),
    sqlite_autoincrement=True,
)

ingest_ids = Table(
    "ingest_ids",
    metadata,
    Column("ingest_id", BigId, primary_key=True, autoincrement=False),
    Column("id", BigId, primary_key=True, autoincrement=False),
    ForeignKeyConstraint(["ingest_id"], ["ingest_events.id"], name="ingest_ids_ingest_fkey", ondelete="CASCADE"),
)

follows = Table(
    "follows",
    metadata,
    Column("platform", Text, primary_key=True),
    Column("follower_id", BigId, primary_key=True, autoincrement=False),
    Column("followed_id", BigId, primary_key=True, autoincrement=False),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("seen_in", BigId, nullable=False),
    Column("missed_in", BigId),
    Column("ended_at", UtcTime),
    ForeignKeyConstraint(["platform", "follower_id"], ["users.platform", "users.id"], name="follows_follower_fkey"),
    ForeignKeyConstraint(["platform", "followed_id"], ["users.platform", "users.id"], name="follows_followed_fkey"),
    CheckConstraint("follower_id <> followed_id", name="nobody_follows_himself"),
    Index("follows_followed", "platform", "followed_id", "follower_id"),
)

follow_events = Table(
    "follow_events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("platform", Text, nullable=False),
    Column("follower_id", BigId, nullable=False),
    Column("followed_id", BigId, nullable=False),
    Column("kind", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("ingest_id", BigId),
    ForeignKeyConstraint(  # of the edge alone: its ends are stored users
        ["platform", "follower_id", "followed_id"],
        ["follows.platform", "follows.follower_id", "follows.followed_id"],
        name="follow_events_edge_fkey",
    ),
    CheckConstraint("kind IN ('followed', 'unfollowed')", name="kind_is_known"),
    CheckConstraint("cause IN ('seen', 'pushed', 'unfollowed', 'suspended', 'vanished')", name="cause_is_known"),
    Index("follow_events_followed", "platform", "followed_id", "id"),
    Index("follow_events_follower", "platform", "follower_id", "id"),
    sqlite_autoincrement=True,
)

segments = Table(
    "segments",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("rule", RawJson, nullable=False),
    Column("enabled", Boolean, nullable=False, server_default=true()),
    Column("every_seconds", Float),
    Column("fresh_seconds", Float),
    Column("created_at", UtcTime, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("materialized_at", UtcTime),
    Column("next_at", UtcTime),
    CheckConstraint("what IN ('users', 'posts')", name="what_is_known"),
    Index("segments_name", "name", unique=True),
    Index("segments_next_at", "next_at"),
    sqlite_autoincrement=True,
)

segment_inputs = Table(
    "segment_inputs",
    metadata,
    Column("segment_id", BigId, primary_key=True, autoincrement=False),
    Column("platform", Text, primary_key=True),
    Column("user_id", BigId, primary_key=True, autoincrement=False),
    Column("added_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["segment_id"], ["segments.id"], name="segment_inputs_segment_fkey", ondelete="CASCADE"),
    ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="segment_inputs_user_fkey"),
)

segment_snapshots = Table(
    "segment_snapshots",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("segment_id", BigId, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("members", Integer, nullable=False),
    Column("entered", Integer, nullable=False),
    Column("departed", Integer, nullable=False),
    Column("ingests", RawJson, nullable=False),
    ForeignKeyConstraint(["segment_id"], ["segments.id"], name="segment_snapshots_segment_fkey", ondelete="CASCADE"),
    Index("segment_snapshots_segment", "segment_id", "at"),
    sqlite_autoincrement=True,
)

segment_members = Table(
    "segment_members",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("segment_id", BigId, nullable=False),
    Column("platform", Text, nullable=False),
    Column("user_id", BigId),
    Column("post_id", BigId),
    Column("since", UtcTime, nullable=False),
    ForeignKeyConstraint(["segment_id"], ["segments.id"], name="segment_members_segment_fkey", ondelete="CASCADE"),
    ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="segment_members_user_fkey"),
    ForeignKeyConstraint(["platform", "post_id"], ["posts.platform", "posts.id"], name="segment_members_post_fkey"),
    CheckConstraint(MEMBER, name="a_user_or_a_post"),
    Index("segment_members_order", "segment_id", "id"),
    Index(
        "segment_members_user",
        "segment_id",
        "platform",
        "user_id",
        unique=True,
        postgresql_where=text(OF_USERS),
        sqlite_where=text(OF_USERS),
    ),
    Index(
        "segment_members_post",
        "segment_id",
        "platform",
        "post_id",
        unique=True,
        postgresql_where=text(OF_POSTS),
        sqlite_where=text(OF_POSTS),
    ),
    sqlite_autoincrement=True,
)

segment_events = Table(
    "segment_events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("segment_id", BigId, nullable=False),
    Column("snapshot_id", BigId, nullable=False),
    Column("platform", Text, nullable=False),
    Column("user_id", BigId),
    Column("post_id", BigId),
    Column("kind", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    ForeignKeyConstraint(  # of the snapshot alone: it has its segment
        ["snapshot_id"], ["segment_snapshots.id"], name="segment_events_snapshot_fkey", ondelete="CASCADE"
    ),
    ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="segment_events_user_fkey"),
    ForeignKeyConstraint(["platform", "post_id"], ["posts.platform", "posts.id"], name="segment_events_post_fkey"),
    CheckConstraint(MEMBER, name="a_user_or_a_post"),
    CheckConstraint("kind IN ('entered', 'left')", name="kind_is_known"),
    Index("segment_events_segment", "segment_id", "id"),
    Index("segment_events_snapshot", "snapshot_id"),
    Index(
        "segment_events_user",
        "segment_id",
        "platform",
        "user_id",
        "id",
        postgresql_where=text(OF_USERS),
        sqlite_where=text(OF_USERS),
    ),
    Index(
        "segment_events_post",
        "segment_id",
        "platform",
        "post_id",
        "id",
        postgresql_where=text(OF_POSTS),
        sqlite_where=text(OF_POSTS),
    ),
    sqlite_autoincrement=True,
)
