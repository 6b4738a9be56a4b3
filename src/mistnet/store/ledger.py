"""What calls have cost: sums over the ledger, by day, endpoint, account or source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, Text, case, func, select, type_coerce

from mistnet.domain.bills import RECONCILIATION
from mistnet.domain.social import Platform, UserId
from mistnet.domain.sources import SourceName
from mistnet.store.database import Database
from mistnet.store.tables import calls, users


class By(StrEnum):
    """What a sum is made for."""

    DAY = "day"
    ENDPOINT = "endpoint"
    ACCOUNT = "account"
    SOURCE = "source"


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one group. An account without a name was not told who it is, or the calls served several.

    Corrections by `spend --reconcile` are among the credits and are no calls.
    """

    name: str | None
    account_id: UserId | None = None
    calls: int
    items: int
    credits: int
    failures: int


class Ledger:
    """Reads the ledger of calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spent(
        self, by: By = By.DAY, *, since: datetime | None = None, until: datetime | None = None
    ) -> Sequence[Spent]:
        """Sums from `since` on and before `until`: days in their order, all else with the dearest first."""
        group = self._group(by)
        summed = (
            select(
                group.label("name"),
                func.sum(case((calls.c.endpoint == RECONCILIATION, 0), else_=1)).label("calls"),
                func.sum(calls.c["items"]).label("items"),
                func.sum(calls.c.credits).label("credits"),
                func.count(calls.c.error).label("failures"),
            )
            .where(*([calls.c.at >= since] if since else []), *([calls.c.at < until] if until else []))
            .group_by(group)
        )
        async with self._database.read() as connection:
            rows = await connection.execute(_with_handles(summed) if by is By.ACCOUNT else summed)
            found = [Spent(**row) for row in rows.mappings()]
        if by is By.DAY:
            return sorted(found, key=lambda each: each.name or "")
        return sorted(found, key=lambda each: (-each.credits, each.name or ""))

    async def credits_on(self, day: datetime) -> Mapping[SourceName, int]:
        """What each source's calls of that day (UTC) have cost so far."""
        midnight = day.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        rows = await self.spent(By.SOURCE, since=midnight)
        return {SourceName(row.name): row.credits for row in rows if row.name}

    def _group(self, by: By) -> ColumnElement[Any]:
        match by:
            case By.DAY:
                return day_of_call(self._database.dialect)
            case By.ENDPOINT:
                return calls.c.endpoint
            case By.ACCOUNT:
                return calls.c.account_id
            case By.SOURCE:
                return calls.c.source


def day_of_call(dialect: str) -> ColumnElement[Any]:
    """The day (UTC) on which a call was made, as text."""
    if dialect == "postgresql":
        return func.to_char(func.timezone("UTC", calls.c.at), "YYYY-MM-DD", type_=Text())
    return func.substr(type_coerce(calls.c.at, Text()), 1, 10, type_=Text())


def _with_handles(by_account: Select[Any]) -> Select[Any]:
    summed = by_account.subquery()
    sums = [summed.c[name] for name in ("calls", "items", "credits", "failures")]
    return select(users.c.handle.label("name"), summed.c.name.label("account_id"), *sums).outerjoin_from(
        summed, users, (users.c.platform == Platform.X) & (users.c.id == summed.c.name)
    )
