"""The declared schema. Migrations are proven equal to it on every database."""

from mistnet.store.tables.engine import job_errors, job_history, jobs, paused_kinds, workers
from mistnet.store.tables.metadata import metadata
from mistnet.store.tables.running import (
    alerts,
    api_tokens,
    deliveries,
    events,
    leaders,
    run_accounts,
    run_posts,
    runs,
    sessions,
    ticks,
)
from mistnet.store.tables.search import WORDS
from mistnet.store.tables.social import (
    accounts,
    calls,
    missing,
    posts,
    quarantine,
    source_keys,
    sources,
    suggestions,
    user_versions,
    users,
)

__all__ = [
    "WORDS",
    "accounts",
    "alerts",
    "api_tokens",
    "calls",
    "deliveries",
    "events",
    "job_errors",
    "job_history",
    "jobs",
    "leaders",
    "metadata",
    "missing",
    "paused_kinds",
    "posts",
    "quarantine",
    "run_accounts",
    "run_posts",
    "runs",
    "sessions",
    "source_keys",
    "sources",
    "suggestions",
    "ticks",
    "user_versions",
    "users",
    "workers",
]
