"""Tables of runs, ticks, alerts, tokens and sessions."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    Text,
    text,
)

from mistnet.kit.types import BigId, UtcTime, numbered_table, only_where, stored_table

UNFINISHED = "status IN ('pending', 'running')"
OPEN = "closed_at IS NULL"
STATUS = "status IN ('pending', 'running', 'completed', 'failed')"
SCOPE = "scope IN ('read', 'operate', 'admin')"

runs = stored_table(
    "runs",
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("post_limit", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    CheckConstraint(STATUS, name="status_is_known"),
    CheckConstraint(f"(finished_at IS NULL) = ({UNFINISHED})", name="finished_ones_say_when"),
    Index("runs_unfinished", "kind", unique=True, **only_where(UNFINISHED)),
    Index("runs_created_at", "created_at"),
)

run_accounts = stored_table(
    "run_accounts",
    Column("run_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("handle", Text, nullable=False),
    Column("user_id", BigId),
    Column("status", Text, nullable=False),
    Column("total", Integer, nullable=False, server_default=text("0")),
    Column("new", Integer, nullable=False, server_default=text("0")),
    Column("skipped", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("reason", Text),
    Column("updated_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], name="run_accounts_run_fkey", ondelete="CASCADE"),
    CheckConstraint(STATUS, name="status_is_known"),
)

run_posts = stored_table(
    "run_posts",
    Column("run_id", Text, primary_key=True),
    Column("platform", Text, primary_key=True),
    Column("post_id", BigId, primary_key=True, autoincrement=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], name="run_posts_run_fkey", ondelete="CASCADE"),
)

ticks = stored_table(
    "ticks",
    Column("group_name", Text, primary_key=True),
    Column("tick_at", UtcTime, primary_key=True),
    Column("made_at", UtcTime, nullable=False),
    Column("holder", Text, nullable=False),
    Column("fence", BigId, nullable=False),
    Column("accounts", Integer, nullable=False),
    Column("jobs", Integer, nullable=False),
    Column("missed", Integer, nullable=False),
    Index("ticks_made_at", "made_at"),
)

alerts = numbered_table(
    "alerts",
    Column("rule", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("opened_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("closed_at", UtcTime),
    Column("accepted_at", UtcTime),
    Column("accepted_by", Text),
    CheckConstraint("severity IN ('warning', 'critical')", name="severity_is_known"),
    Index("alerts_open", "rule", "subject", unique=True, **only_where(OPEN)),
    Index("alerts_opened_at", "opened_at"),
)

api_tokens = numbered_table(
    "api_tokens",
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("last_used_at", UtcTime),
    Column("revoked_at", UtcTime),
    CheckConstraint(SCOPE, name="scope_is_known"),
    Index("api_tokens_digest", "digest", unique=True),
)

sessions = stored_table(
    "sessions",
    Column("digest", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("token_id", BigId),
    Column("csrf", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["token_id"], ["api_tokens.id"], name="sessions_token_fkey", ondelete="CASCADE"),
    CheckConstraint(SCOPE, name="scope_is_known"),
    Index("sessions_expires_at", "expires_at"),
)
