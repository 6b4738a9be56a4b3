"""The engine's tables: jobs, their history and errors, paused kinds, workers."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LIVE_KEY = sa.text("key IS NOT NULL AND state IN ('pending', 'queued', 'running', 'retryable')")
WAITING = sa.text("state IN ('pending', 'retryable') AND NOT parked")
LEASED = sa.text("state = 'running'")
PARKED = sa.text("parked")
GAP = sa.text("state IN ('failed', 'dead')")


def upgrade() -> None:
    _jobs()
    _job_history()
    _job_errors()
    op.create_table(
        "paused_kinds",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("paused_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("kind", name="paused_kinds_pkey"),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("lanes", sa.Text, nullable=False),
        sa.Column("concurrency", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("started_at", UtcTime, nullable=False),
        sa.Column("seen_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name="workers_pkey"),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", BigId, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("class", sa.SmallInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("args", sa.JSON, nullable=False),
        sa.Column("attempts", sa.SmallInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("max_attempts", sa.SmallInteger, nullable=False),
        sa.Column("fence", BigId, nullable=False, server_default=sa.text("0")),
        sa.Column("run_at", UtcTime, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("started_at", UtcTime),
        sa.Column("worker", sa.Text),
        sa.Column("lease_until", UtcTime),
        sa.Column("parked", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("alone", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("wait_reason", sa.Text),
        sa.Column("last_error", sa.Text),
        sa.CheckConstraint(
            "state IN ('pending', 'queued', 'running', 'retryable', 'failed', 'dead')",
            name=op.f("jobs_state_is_known"),
        ),
        sa.CheckConstraint(
            "(state = 'running') = (worker IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)",
            name=op.f("jobs_only_running_jobs_are_leased"),
        ),
        sa.CheckConstraint("attempts >= 0 AND attempts <= max_attempts", name=op.f("jobs_attempts_within_limit")),
        sa.CheckConstraint("NOT parked OR state = 'pending'", name=op.f("jobs_only_pending_jobs_are_parked")),
        sa.CheckConstraint("class BETWEEN 1 AND 9", name=op.f("jobs_class_is_known")),
        sqlite_autoincrement=True,
        postgresql_with={
            "autovacuum_vacuum_scale_factor": "0.0",
            "autovacuum_vacuum_threshold": "2000",
            "autovacuum_vacuum_cost_delay": "0",
            "autovacuum_analyze_scale_factor": "0.2",
        },
    )
    op.create_index(
        "jobs_live_key", "jobs", ["kind", "key"], unique=True, postgresql_where=LIVE_KEY, sqlite_where=LIVE_KEY
    )
    op.create_index(
        "jobs_due", "jobs", ["kind", "lane", "run_at", "id"], postgresql_where=WAITING, sqlite_where=WAITING
    )
    op.create_index("jobs_leased", "jobs", ["lease_until"], postgresql_where=LEASED, sqlite_where=LEASED)
    op.create_index("jobs_parked", "jobs", ["kind", "run_at", "id"], postgresql_where=PARKED, sqlite_where=PARKED)
    op.create_index("jobs_gaps", "jobs", ["kind", "id"], postgresql_where=GAP, sqlite_where=GAP)


def _job_history() -> None:
    op.create_table(
        "job_history",
        sa.Column("id", BigId, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("class", sa.SmallInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("args", sa.JSON, nullable=False),
        sa.Column("attempts", sa.SmallInteger, nullable=False),
        sa.Column("fence", BigId, nullable=False),
        sa.Column("run_at", UtcTime, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("started_at", UtcTime),
        sa.Column("finished_at", UtcTime, nullable=False),
        sa.Column("worker", sa.Text),
        sa.CheckConstraint("state IN ('succeeded', 'cancelled')", name=op.f("job_history_state_is_known")),
    )
    op.create_index("job_history_finished_at", "job_history", ["finished_at"], postgresql_using="brin")


def _job_errors() -> None:
    op.create_table(
        "job_errors",
        sa.Column("job_id", BigId, primary_key=True, autoincrement=False),
        sa.Column("fence", BigId, primary_key=True, autoincrement=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
    )
    op.create_index("job_errors_at", "job_errors", ["at"])
