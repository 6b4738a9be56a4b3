"""Views for whoever looks at the engine with SQL: recent jobs, the health of sources, stuck jobs.

Times in them are the database's own. Each part of `recent_jobs` reads one table alone, and what it looks up it looks
up row by row, so that the newest twenty are read from two indexes however many jobs there were. For the same reason
both parts write each column in the same way: SQLite merges them only if their affinities agree.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import DDL, Boolean, Float, Integer, SmallInteger, Text, column, event, table
from sqlalchemy.schema import ExecutableDDLElement

from mistnet.store.tables.metadata import metadata
from mistnet.store.types import BigId, UtcTime

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
