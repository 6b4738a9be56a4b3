"""The engine's tables: jobs, their history and errors, dead letters, paused kinds, workers."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    SmallInteger,
    Text,
    false,
    text,
)

from mistnet.kit.types import BigId, RawJson, UtcTime, numbered_table, only_where, stored_table

LIVE_KEY = "key IS NOT NULL AND state IN ('pending', 'queued', 'running', 'retryable')"
WAITING = "state IN ('pending', 'retryable') AND NOT parked"
LEASED = "state = 'running'"
GAP = "state IN ('failed', 'dead')"
QUEUED = "state = 'queued'"

# Rows here live for seconds, so dead ones must go at once, or every claim would wade through them.
BUSY_TABLE = {
    "autovacuum_vacuum_scale_factor": "0.0",
    "autovacuum_vacuum_threshold": "2000",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_analyze_scale_factor": "0.2",
}

jobs = numbered_table(
    "jobs",
    Column("kind", Text, nullable=False),
    Column("key", Text),
    Column("lane", Text, nullable=False),
    Column("class", SmallInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("args", JSON, nullable=False),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("max_attempts", SmallInteger, nullable=False),
    Column("fence", BigId, nullable=False, server_default=text("0")),
    Column("run_at", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("started_at", UtcTime),
    Column("worker", Text),
    Column("lease_until", UtcTime),
    Column("parked", Boolean, nullable=False, server_default=false()),
    Column("alone", Boolean, nullable=False, server_default=false()),
    Column("wait_reason", Text),
    Column("last_error", Text),
    CheckConstraint("state IN ('pending', 'queued', 'running', 'retryable', 'failed', 'dead')", name="state_is_known"),
    CheckConstraint(
        "(state = 'running') = (worker IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)",
        name="only_running_jobs_are_leased",
    ),
    CheckConstraint("attempts >= 0 AND attempts <= max_attempts", name="attempts_within_limit"),
    CheckConstraint("NOT parked OR state = 'pending'", name="only_pending_jobs_are_parked"),
    CheckConstraint("class BETWEEN 1 AND 9", name="class_is_known"),
    Index("jobs_live_key", "kind", "key", unique=True, **only_where(LIVE_KEY)),
    Index("jobs_due", "kind", "lane", "run_at", "id", **only_where(WAITING)),
    Index("jobs_leased", "lease_until", **only_where(LEASED)),
    Index("jobs_parked", "kind", "run_at", "id", **only_where("parked")),
    Index("jobs_gaps", "kind", "id", **only_where(GAP)),
    Index("jobs_queued", "lane", "started_at", "id", **only_where(QUEUED)),
    Index("jobs_created", "created_at", "id"),
    postgresql_with=BUSY_TABLE,
)

job_history = stored_table(
    "job_history",
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("key", Text),
    Column("lane", Text, nullable=False),
    Column("class", SmallInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("args", JSON, nullable=False),
    Column("attempts", SmallInteger, nullable=False),
    Column("fence", BigId, nullable=False),
    Column("run_at", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime, nullable=False),
    Column("worker", Text),
    CheckConstraint("state IN ('succeeded', 'cancelled')", name="state_is_known"),
    Index("job_history_finished_at", "finished_at", postgresql_using="brin"),
    Index("job_history_created", "created_at", "id"),
)

job_errors = stored_table(
    "job_errors",
    Column("job_id", BigId, primary_key=True, autoincrement=False),
    Column("fence", BigId, primary_key=True, autoincrement=False),
    Column("at", UtcTime, nullable=False),
    Column("worker", Text, nullable=False),
    Column("error", Text, nullable=False),
    Index("job_errors_at", "at"),
)

dead_letters = stored_table(
    "dead_letters",
    Column("job_id", BigId, primary_key=True, autoincrement=False),
    Column("fence", BigId, nullable=False),
    Column("at", UtcTime, nullable=False),
)

paused_kinds = stored_table(
    "paused_kinds",
    Column("kind", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("paused_at", UtcTime, nullable=False),
)

workers = stored_table(
    "workers",
    Column("name", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("lanes", Text, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("draining", Boolean, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
)
WAITS = "fanned_out_at IS NULL"

leaders = stored_table(
    "leaders",
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("fence", BigId, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("lease_until", UtcTime, nullable=False),
)

events = numbered_table(
    "events",
    Column("channel", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("payload", RawJson, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("fanned_out_at", UtcTime),
    CheckConstraint("channel IN ('data', 'alerts')", name="channel_is_known"),
    Index("events_to_fan_out", "id", **only_where(WAITS)),
    Index("events_created_at", "created_at"),
)

deliveries = numbered_table(
    "deliveries",
    Column("subscriber", Text, nullable=False),
    Column("event_id", BigId, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    ForeignKeyConstraint(["event_id"], ["events.id"], name="deliveries_event_fkey", ondelete="CASCADE"),
    Index("deliveries_subscriber", "subscriber", "id"),
    Index("deliveries_event", "event_id"),
)
