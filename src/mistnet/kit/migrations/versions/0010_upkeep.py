"""Accepted alerts; balances that bills are compared from; sums of pruned calls; indexes for pruning."""

import sqlalchemy as sa
from alembic import op

from mistnet.kit.types import BigId, UtcTime

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("accepted_at", UtcTime, nullable=True))
    op.add_column("alerts", sa.Column("accepted_by", sa.Text, nullable=True))
    _add_balances()
    _add_call_sums()
    op.create_index("segment_events_snapshot", "segment_events", ["snapshot_id"])
    op.create_index("quarantine_resolved_at", "quarantine", ["resolved_at"])


def _add_balances() -> None:
    """The last balance that was asked for is the first that bills are compared with."""
    op.add_column("source_keys", sa.Column("reconciled_balance", BigId, nullable=True))
    op.add_column("source_keys", sa.Column("reconciled_at", UtcTime, nullable=True))
    op.add_column("source_keys", sa.Column("billed_since", UtcTime, nullable=True))
    op.execute(
        sa.text(
            "UPDATE source_keys SET reconciled_balance = balance, reconciled_at = balance_at, billed_since = balance_at"
        )
    )


def _add_call_sums() -> None:
    op.create_table(
        "call_sums",
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("key_label", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("account_id", BigId, autoincrement=False, nullable=False),
        sa.Column("calls", BigId, nullable=False),
        sa.Column("items", BigId, nullable=False),
        sa.Column("credits", BigId, nullable=False),
        sa.Column("failures", BigId, nullable=False),
        sa.CheckConstraint("length(day) = 10", name=op.f("call_sums_day_is_a_date")),
        sa.PrimaryKeyConstraint("day", "source", "key_label", "endpoint", "account_id", name=op.f("call_sums_pkey")),
    )
