"""Tables of sources: their state, their keys, and the ledger of calls."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
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
)

from mistnet.kit.types import BigId, UtcTime, metadata

sources = Table(
    "sources",
    metadata,
    Column("name", Text, primary_key=True),
    Column("paused_at", UtcTime),
    Column("paused_by", Text),
    Column("pause_reason", Text),
    Column("failure_streak", Integer, nullable=False, server_default=text("0")),
    Column("opened_until", UtcTime),
    Column("probe_until", UtcTime),
    Column("last_success_at", UtcTime),
    Column("last_failure_at", UtcTime),
    Column("last_failure", Text),
    Column("day", Text),
    Column("day_credits", BigId, nullable=False, server_default=text("0")),
    Column("month_credits", BigId, nullable=False, server_default=text("0")),
    Column("day_cap", BigId),
    Column("month_cap", BigId),
    CheckConstraint("(paused_at IS NULL) = (paused_by IS NULL)", name="a_pause_has_its_cause"),
)

source_keys = Table(
    "source_keys",
    metadata,
    Column("source", Text, primary_key=True),
    Column("label", Text, primary_key=True),
    Column("rate_per_minute", Float),
    Column("slowdown", Float, nullable=False, server_default=text("1")),
    Column("slowed_at", UtcTime),
    Column("next_at", UtcTime),
    Column("paused_at", UtcTime),
    Column("pause_reason", Text),
    Column("balance", BigId),
    Column("balance_at", UtcTime),
    Column("fingerprint", Text),
    Column("reconciled_balance", BigId),
    Column("reconciled_at", UtcTime),
    Column("billed_since", UtcTime),
    ForeignKeyConstraint(["source"], ["sources.name"], name="source_keys_source_fkey"),
)

calls = Table(
    "calls",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("source", Text, nullable=False),
    Column("key_label", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("status", SmallInteger),
    Column("items", Integer, nullable=False),
    Column("credits", Integer, nullable=False),
    Column("job_id", BigId),
    Column("account_id", BigId),
    Column("error", Text),
    Index("calls_at", "at"),
)

# What stays of calls when they are pruned. `account_id` is 0 for calls that served no single account: it is in the key.
call_sums = Table(
    "call_sums",
    metadata,
    Column("day", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("key_label", Text, primary_key=True),
    Column("endpoint", Text, primary_key=True),
    Column("account_id", BigId, primary_key=True, autoincrement=False),
    Column("calls", BigId, nullable=False),
    Column("items", BigId, nullable=False),
    Column("credits", BigId, nullable=False),
    Column("failures", BigId, nullable=False),
    CheckConstraint("length(day) = 10", name="day_is_a_date"),
)

# Sums of `calls` that triggers keep, so that no request adds up the ledger: by the hour, and of accounts by the day.
# `entries` counts rows, corrections too. `account_id` is 0 as in `call_sums`.
CALL_AMOUNTS: Final = ("entries", "calls", "items", "credits", "failures")


def _amounts() -> list[Column[int]]:
    return [Column(name, BigId, nullable=False) for name in CALL_AMOUNTS]


call_hours = Table(
    "call_hours",
    metadata,
    Column("hour", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("endpoint", Text, primary_key=True),
    *_amounts(),
    CheckConstraint("length(hour) = 13", name="hour_is_a_date_and_an_hour"),
)

call_days = Table(
    "call_days",
    metadata,
    Column("day", Text, primary_key=True),
    Column("account_id", BigId, primary_key=True, autoincrement=False),
    *_amounts(),
    CheckConstraint("length(day) = 10", name="day_is_a_date"),
)

# What must still be added to the two. Only PostgreSQL needs it: its writers would wait for each other's sums.
call_deltas = Table(
    "call_deltas",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("hour", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("account_id", BigId, nullable=False),
    *_amounts(),
)
