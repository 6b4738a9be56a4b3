"""The names of the tables for analysis, which of their rows are wanted, and what can be wrong with that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from mistnet.kit.errors import UsageError


class TableName(StrEnum):
    POSTS = "posts"
    USERS = "users"
    USER_VERSIONS = "user_versions"
    ACCOUNTS = "accounts"
    COVERAGE = "coverage"
    CONVERSATIONS = "conversations"
    FOLLOWS = "follows"
    FOLLOW_EVENTS = "follow_events"
    SEGMENT_MEMBERS = "segment_members"
    LINKS = "links"
    POST_LINKS = "post_links"
    PRODUCTS = "products"
    OFFERS = "offers"
    ITEMS = "items"
    PRICE_POINTS = "price_points"
    VALUATIONS = "valuations"
    VALUATION_HISTORY = "valuation_history"
    SUGGESTIONS = "suggestions"
    MISSING = "missing"
    CALLS = "calls"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a table. A span of time includes its beginning and not its end.

    `accounts` are handles or ids. `changed_since` and `changed_until` are the times between two incremental exports.
    """

    what: TableName
    accounts: Sequence[str | int] = ()
    platform: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    stored_since: datetime | None = None
    stored_until: datetime | None = None
    changed_since: datetime | None = None
    changed_until: datetime | None = None
    query: str | None = None
    segment: str | None = None
    raw: bool = False
    ids_only: bool = False


class BadSelection(UsageError):
    """A table has no column for a filter that was given."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"cannot select {what}: {problem}")
        self.what, self.problem = what, problem


class MissingLibrary(UsageError):
    """A library that is no part of any extra is needed and not installed."""

    def __init__(self, what: str, library: str) -> None:
        super().__init__(f"{what} needs {library}, which is not installed: pip install {library}")
        self.what, self.library = what, library


class DataClosed(UsageError):
    """Rows were asked for after the data was closed."""

    def __init__(self) -> None:
        super().__init__("the data was closed; open it again with mistnet.open()")
