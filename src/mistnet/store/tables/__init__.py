"""The declared schema. Migrations are proven equal to it on every database."""

from mistnet.store.tables.engine import job_errors, job_history, jobs, paused_kinds, workers
from mistnet.store.tables.metadata import metadata
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
    "calls",
    "job_errors",
    "job_history",
    "jobs",
    "metadata",
    "missing",
    "paused_kinds",
    "posts",
    "quarantine",
    "source_keys",
    "sources",
    "suggestions",
    "user_versions",
    "users",
    "workers",
]
