"""What calls have cost: sums over the ledger, by day, endpoint, account or source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Select, case, cast, func, select, union_all

from mistnet.governor.bills import RECONCILIATION
from mistnet.governor.model import SourceName, day_start
from mistnet.governor.store import day_of_call
from mistnet.governor.tables import call_sums, calls
from mistnet.kit.database import Database
from mistnet.kit.types import BigId
from mistnet.operations.pruning import NO_ACCOUNT
from mistnet.social.model import UserId, X
from mistnet.social.tables import users

_SUMMED: Final = ("calls", "items", "credits", "failures")


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


class CallLedger:
    """Reads the ledger of calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spent(
        self, by: By = By.DAY, *, since: datetime | None = None, until: datetime | None = None
    ) -> Sequence[Spent]:
        """Sums from `since` on and before `until`: days in their order, all else with the dearest first.

        Of calls that were pruned only whole days are known. Such a day counts if it begins within these bounds.
        """
        both = union_all(self._single(by, since, until), self._pruned(by, since, until)).subquery()
        sums = [cast(func.sum(both.c[name]), BigInteger).label(name) for name in _SUMMED]
        summed = select(both.c.name, *sums).group_by(both.c.name)
        async with self._database.read() as connection:
            rows = await connection.execute(_with_handles(summed) if by is By.ACCOUNT else summed)
            found = [Spent(**row) for row in rows.mappings()]
        if by is By.DAY:
            return sorted(found, key=lambda each: each.name or "")
        return sorted(found, key=lambda each: (-each.credits, each.name or ""))

    def _single(self, by: By, since: datetime | None, until: datetime | None) -> Select[Any]:
        groups: Mapping[By, ColumnElement[Any]] = {
            By.DAY: day_of_call(self._database.dialect),
            By.ENDPOINT: calls.c.endpoint,
            By.ACCOUNT: calls.c.account_id,
            By.SOURCE: calls.c.source,
        }
        return (
            select(
                groups[by].label("name"),
                func.sum(case((calls.c.endpoint == RECONCILIATION, 0), else_=1)).label("calls"),
                func.sum(calls.c["items"]).label("items"),
                func.sum(calls.c.credits).label("credits"),
                func.count(calls.c.error).label("failures"),
            )
            .where(*([calls.c.at >= since] if since else []), *([calls.c.at < until] if until else []))
            .group_by(groups[by])
        )

    def _pruned(self, by: By, since: datetime | None, until: datetime | None) -> Select[Any]:
        own = call_sums.c
        groups: Mapping[By, ColumnElement[Any]] = {
            By.DAY: own.day,
            By.ENDPOINT: own.endpoint,
            By.ACCOUNT: func.nullif(own.account_id, NO_ACCOUNT, type_=BigId),
            By.SOURCE: own.source,
        }
        bounds = [
            *([own.day >= _first_day(since)] if since else []),
            *([own.day < _first_day(until)] if until else []),
        ]
        sums = [func.sum(own[name]).label(name) for name in _SUMMED]
        return select(groups[by].label("name"), *sums).where(*bounds).group_by(groups[by])

    async def credits_on(self, day: datetime) -> Mapping[SourceName, int]:
        """What each source's calls of that day (UTC) have cost so far."""
        rows = await self.spent(By.SOURCE, since=day_start(day))
        return {SourceName(row.name): row.credits for row in rows if row.name}


def _with_handles(by_account: Select[Any]) -> Select[Any]:
    summed = by_account.subquery()
    sums = [summed.c[name] for name in _SUMMED]
    return select(users.c.handle.label("name"), summed.c.name.label("account_id"), *sums).outerjoin_from(
        summed, users, (users.c.platform == X) & (users.c.id == summed.c.name)
    )


def _first_day(bound: datetime) -> str:
    """The first day (UTC) that begins at this time or later."""
    begun = day_start(bound)
    return (begun if begun == bound else begun + timedelta(days=1)).date().isoformat()
