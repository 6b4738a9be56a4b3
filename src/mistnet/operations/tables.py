"""Tables of runs, ticks, alerts, tokens and sessions, and the views for monitoring."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    DDL,
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
    column,
    event,
    table,
    text,
)
from sqlalchemy.schema import ExecutableDDLElement

from mistnet.kit.metadata import metadata
from mistnet.kit.types import BigId, UtcTime

UNFINISHED = "status IN ('pending', 'running')"
OPEN = "closed_at IS NULL"
STATUS = "status IN ('pending', 'running', 'completed', 'failed')"
SCOPE = "scope IN ('read', 'operate', 'admin')"

runs = Table(
    "runs",
    metadata,
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
    Index("runs_unfinished", "kind", unique=True, postgresql_where=text(UNFINISHED), sqlite_where=text(UNFINISHED)),
    Index("runs_created_at", "created_at"),
)

run_accounts = Table(
    "run_accounts",
    metadata,
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

run_posts = Table(
    "run_posts",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("platform", Text, primary_key=True),
    Column("post_id", BigId, primary_key=True, autoincrement=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], name="run_posts_run_fkey", ondelete="CASCADE"),
)

ticks = Table(
    "ticks",
    metadata,
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

alerts = Table(
    "alerts",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
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
    Index("alerts_open", "rule", "subject", unique=True, postgresql_where=text(OPEN), sqlite_where=text(OPEN)),
    Index("alerts_opened_at", "opened_at"),
    sqlite_autoincrement=True,
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("last_used_at", UtcTime),
    Column("revoked_at", UtcTime),
    CheckConstraint(SCOPE, name="scope_is_known"),
    Index("api_tokens_digest", "digest", unique=True),
    sqlite_autoincrement=True,
)

sessions = Table(
    "sessions",
    metadata,
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

NOW: Final = {"postgresql": "now()", "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')"}
TAKEN: Final = "coalesce(j.started_at, j.created_at)"
LATER: Final = {"postgresql": "greatest", "sqlite": "max"}
NO_TIME: Final = {"postgresql": "CAST(NULL AS timestamptz)", "sqlite": "NULL"}
SECONDS_SINCE: Final = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM now() - {at}) AS double precision)",
    "sqlite": "(julianday('now') - julianday({at})) * 86400.0",
}


def recent_jobs_sql(dialect: str) -> str:
    seen = f"coalesce((SELECT w.seen_at FROM workers w WHERE w.name = j.worker), {TAKEN})"
    last_error = "(SELECT e.error FROM job_errors e WHERE e.job_id = h.id ORDER BY e.fence DESC LIMIT 1)"
    return (
        "CREATE VIEW recent_jobs AS "
        "SELECT j.id, j.kind, j.key, j.lane, j.state AS status, j.worker AS locked_by, "
        f"CASE WHEN j.state = 'running' THEN {LATER[dialect]}({TAKEN}, {seen}) END AS heartbeat_at, "
        "j.created_at, j.started_at, CASE WHEN j.state IN ('failed', 'dead') THEN j.run_at END AS completed_at, "
        "CASE WHEN j.state = 'retryable' THEN j.run_at END AS next_retry_at, j.attempts, "
        "j.last_error AS error_message FROM jobs j "
        "UNION ALL "
        "SELECT h.id, h.kind, h.key, h.lane, h.state AS status, h.worker AS locked_by, "
        f"{NO_TIME[dialect]} AS heartbeat_at, h.created_at, h.started_at, "
        "CASE WHEN h.state IN ('succeeded', 'cancelled') THEN h.finished_at END AS completed_at, "
        f"{NO_TIME[dialect]} AS next_retry_at, h.attempts, {last_error} AS error_message FROM job_history h"
    )


def source_health_sql(dialect: str) -> str:
    now = NOW[dialect]
    return (
        "CREATE VIEW source_health AS "
        "SELECT s.name, s.paused_at IS NULL AS enabled, s.failure_streak, s.last_success_at, s.last_failure_at, "
        f"s.last_failure, CASE WHEN s.opened_until > {now} THEN s.opened_until END AS paused_until, s.pause_reason, "
        f"CASE WHEN s.paused_at IS NOT NULL THEN 'paused' WHEN s.opened_until > {now} THEN 'breaker open' "
        "WHEN s.opened_until IS NOT NULL THEN 'half-open' ELSE 'serving' END AS state FROM sources s"
    )


def stuck_jobs_sql(dialect: str) -> str:
    heartbeat = f"{LATER[dialect]}({TAKEN}, coalesce(w.seen_at, {TAKEN}))"
    return (
        "CREATE VIEW stuck_jobs AS "
        "SELECT j.id, j.kind, j.lane, j.state AS status, j.worker AS locked_by, "
        f"{heartbeat} AS heartbeat_at, j.lease_until, {SECONDS_SINCE[dialect].format(at=heartbeat)} "
        "AS seconds_since_heartbeat FROM jobs j LEFT JOIN workers w ON w.name = j.worker "
        f"WHERE j.state = 'running' AND j.lease_until <= {NOW[dialect]}"
    )


VIEWS: Final = {
    dialect: (recent_jobs_sql(dialect), source_health_sql(dialect), stuck_jobs_sql(dialect))
    for dialect in ("postgresql", "sqlite")
}

for _dialect, _statements in VIEWS.items():
    for _statement in _statements:
        _ddl: ExecutableDDLElement = DDL(_statement.replace("%", "%%"))  # type: ignore[no-untyped-call]  # SQLAlchemy's own gap
        event.listen(metadata, "after_create", _ddl.execute_if(dialect=_dialect))

recent_jobs = table(
    "recent_jobs",
    column("id", BigId),
    column("kind", Text),
    column("key", Text),
    column("lane", Text),
    column("status", Text),
    column("locked_by", Text),
    column("heartbeat_at", UtcTime),
    column("created_at", UtcTime),
    column("started_at", UtcTime),
    column("completed_at", UtcTime),
    column("next_retry_at", UtcTime),
    column("attempts", SmallInteger),
    column("error_message", Text),
)

source_health = table(
    "source_health",
    column("name", Text),
    column("enabled", Boolean),
    column("failure_streak", Integer),
    column("last_success_at", UtcTime),
    column("last_failure_at", UtcTime),
    column("last_failure", Text),
    column("paused_until", UtcTime),
    column("pause_reason", Text),
    column("state", Text),
)

stuck_jobs = table(
    "stuck_jobs",
    column("id", BigId),
    column("kind", Text),
    column("lane", Text),
    column("status", Text),
    column("locked_by", Text),
    column("heartbeat_at", UtcTime),
    column("lease_until", UtcTime),
    column("seconds_since_heartbeat", Float),
)
