"""Running as a service: runs, leadership, ticks, alerts, events, tokens; what fetches teach of an account."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, RawJson, UtcTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _accounts()
    op.create_index("posts_first_seen_at", "posts", ["first_seen_at"])
    _alerts()
    _api_tokens()
    _events()
    _leaders()
    _runs()
    _ticks()
    _deliveries()
    _run_accounts()
    _run_posts()
    _sessions()


def _accounts() -> None:
    op.add_column("accounts", sa.Column("last_fetched_count", sa.Integer, nullable=True))
    op.add_column("accounts", sa.Column("last_new_count", sa.Integer, nullable=True))
    op.add_column("accounts", sa.Column("new_rate", sa.Float, server_default=sa.text("0"), nullable=False))
    op.add_column("accounts", sa.Column("fetch_limit", sa.Integer, nullable=True))


def _alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("opened_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("closed_at", UtcTime, nullable=True),
        sa.CheckConstraint("severity IN ('warning', 'critical')", name=op.f("alerts_severity_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("alerts_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "alerts_open",
        "alerts",
        ["rule", "subject"],
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
        sqlite_where=sa.text("closed_at IS NULL"),
    )
    op.create_index("alerts_opened_at", "alerts", ["opened_at"])


def _api_tokens() -> None:
    op.create_table(
        "api_tokens",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("last_used_at", UtcTime, nullable=True),
        sa.Column("revoked_at", UtcTime, nullable=True),
        sa.CheckConstraint("scope IN ('read', 'operate', 'admin')", name=op.f("api_tokens_scope_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("api_tokens_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("api_tokens_digest", "api_tokens", ["digest"], unique=True)


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("payload", RawJson, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("fanned_out_at", UtcTime, nullable=True),
        sa.CheckConstraint("channel IN ('data', 'alerts')", name=op.f("events_channel_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("events_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("events_created_at", "events", ["created_at"])
    op.create_index(
        "events_to_fan_out",
        "events",
        ["id"],
        unique=False,
        postgresql_where=sa.text("fanned_out_at IS NULL"),
        sqlite_where=sa.text("fanned_out_at IS NULL"),
    )


def _leaders() -> None:
    op.create_table(
        "leaders",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("fence", BigId, nullable=False),
        sa.Column("since", UtcTime, nullable=False),
        sa.Column("lease_until", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("leaders_pkey")),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("asked_by", sa.Text, nullable=False),
        sa.Column("post_limit", sa.Integer, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("finished_at", UtcTime, nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'failed')", name=op.f("runs_status_is_known")
        ),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (status IN ('pending', 'running'))", name=op.f("runs_finished_ones_say_when")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("runs_pkey")),
    )
    op.create_index("runs_created_at", "runs", ["created_at"])
    op.create_index(
        "runs_unfinished",
        "runs",
        ["kind"],
        unique=True,
        postgresql_where=sa.text("status IN ('pending', 'running')"),
        sqlite_where=sa.text("status IN ('pending', 'running')"),
    )


def _ticks() -> None:
    op.create_table(
        "ticks",
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("tick_at", UtcTime, nullable=False),
        sa.Column("made_at", UtcTime, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("fence", BigId, nullable=False),
        sa.Column("accounts", sa.Integer, nullable=False),
        sa.Column("jobs", sa.Integer, nullable=False),
        sa.Column("missed", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("group_name", "tick_at", name=op.f("ticks_pkey")),
    )
    op.create_index("ticks_made_at", "ticks", ["made_at"])


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("subscriber", sa.Text, nullable=False),
        sa.Column("event_id", BigId, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name="deliveries_event_fkey", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("deliveries_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("deliveries_event", "deliveries", ["event_id"])
    op.create_index("deliveries_subscriber", "deliveries", ["subscriber", "id"])


def _run_accounts() -> None:
    op.create_table(
        "run_accounts",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("handle", sa.Text, nullable=False),
        sa.Column("user_id", BigId, nullable=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("total", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("new", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("reason", sa.Text, nullable=True),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="run_accounts_run_fkey", ondelete="CASCADE"),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'failed')", name=op.f("run_accounts_status_is_known")
        ),
        sa.PrimaryKeyConstraint("run_id", "position", name=op.f("run_accounts_pkey")),
    )


def _run_posts() -> None:
    op.create_table(
        "run_posts",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("post_id", BigId, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="run_posts_run_fkey", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "platform", "post_id", name=op.f("run_posts_pkey")),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("token_id", BigId, nullable=True),
        sa.Column("csrf", sa.Text, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["api_tokens.id"], name="sessions_token_fkey", ondelete="CASCADE"),
        sa.CheckConstraint("scope IN ('read', 'operate', 'admin')", name=op.f("sessions_scope_is_known")),
        sa.PrimaryKeyConstraint("digest", name=op.f("sessions_pkey")),
    )
    op.create_index("sessions_expires_at", "sessions", ["expires_at"])
