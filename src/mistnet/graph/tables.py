"""Tables of follows and segments."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    Text,
    true,
)

from mistnet.kit.types import BigId, RawJson, UtcTime, numbered_table, only_where, stored_table

MEMBER = "(user_id IS NULL) <> (post_id IS NULL)"
OF_USERS, OF_POSTS = "user_id IS NOT NULL", "post_id IS NOT NULL"

follows = stored_table(
    "follows",
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

follow_events = numbered_table(
    "follow_events",
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
)

segments = numbered_table(
    "segments",
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
)

segment_inputs = stored_table(
    "segment_inputs",
    Column("segment_id", BigId, primary_key=True, autoincrement=False),
    Column("platform", Text, primary_key=True),
    Column("user_id", BigId, primary_key=True, autoincrement=False),
    Column("added_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["segment_id"], ["segments.id"], name="segment_inputs_segment_fkey", ondelete="CASCADE"),
    ForeignKeyConstraint(["platform", "user_id"], ["users.platform", "users.id"], name="segment_inputs_user_fkey"),
)

segment_snapshots = numbered_table(
    "segment_snapshots",
    Column("segment_id", BigId, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("members", Integer, nullable=False),
    Column("entered", Integer, nullable=False),
    Column("departed", Integer, nullable=False),
    Column("ingests", RawJson, nullable=False),
    ForeignKeyConstraint(["segment_id"], ["segments.id"], name="segment_snapshots_segment_fkey", ondelete="CASCADE"),
    Index("segment_snapshots_segment", "segment_id", "at"),
)

segment_members = numbered_table(
    "segment_members",
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
    Index("segment_members_user", "segment_id", "platform", "user_id", unique=True, **only_where(OF_USERS)),
    Index("segment_members_post", "segment_id", "platform", "post_id", unique=True, **only_where(OF_POSTS)),
)

segment_events = numbered_table(
    "segment_events",
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
    Index("segment_events_user", "segment_id", "platform", "user_id", "id", **only_where(OF_USERS)),
    Index("segment_events_post", "segment_id", "platform", "post_id", "id", **only_where(OF_POSTS)),
)
