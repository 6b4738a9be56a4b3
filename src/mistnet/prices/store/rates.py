"""Rates between currencies as somebody told them: kept by day, listed, and found for points that need them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, select, tuple_, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.kit.types import storable
from mistnet.prices.exchange import OLDEST, DatedRate, Rates
from mistnet.prices.tables import currency_rates

_SLICE: Final = 1_000
_KEY: Final = ("base", "quote", "day")


class RateLine(msgspec.Struct, frozen=True, kw_only=True):
    """One rate as it is stored: where it came from, and when."""

    base: str
    quote: str
    day: date
    rate: Decimal
    origin: str | None
    told_at: datetime


class RateFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rates to list. `after` is the last line of the page before."""

    base: str | None = None
    quote: str | None = None
    after: tuple[str, str, str] | None = None
    limit: int = 100


class RateStore:
    """All rates anybody told."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tell(self, told: Sequence[DatedRate], *, origin: str | None, now: datetime) -> None:
        """All or none. What was told for the same day before is replaced; of one told twice the last counts."""
        rows = {(each.base, each.quote, each.day.isoformat()): each.rate for each in told}
        values = [
            {"base": base, "quote": quote, "day": day, "rate": rate, "origin": storable(origin), "told_at": now}
            for (base, quote, day), rate in sorted(rows.items())  # in an order all writers share
        ]
        adding = insert_of(self._database.dialect)(currency_rates)
        again = {name: adding.excluded[name] for name in ("rate", "origin", "told_at")}
        upsert = adding.on_conflict_do_update(index_elements=list(_KEY), set_=again)
        async with self._database.transaction() as connection:
            for start in range(0, len(values), _SLICE):
                await connection.execute(upsert, values[start : start + _SLICE])

    async def page(self, wanted: RateFilter) -> Sequence[RateLine]:
        """By base, quote and day; where only the quote is asked for, by quote first."""
        own = currency_rates.c
        places = [own.quote, own.base, own.day] if wanted.quote and not wanted.base else [own.base, own.quote, own.day]
        asked = select(currency_rates).order_by(*places).limit(wanted.limit)
        if wanted.base:
            asked = asked.where(own.base == wanted.base)
        if wanted.quote:
            asked = asked.where(own.quote == wanted.quote)
        if wanted.after:
            last = dict(zip(_KEY, wanted.after, strict=True))
            asked = asked.where(tuple_(*places) > tuple_(*(last[column.name] for column in places)))
        async with self._database.read() as connection:
            rows = (await connection.execute(asked)).mappings().all()
        return [RateLine(**{**row, "day": date.fromisoformat(row["day"])}) for row in rows]


async def rates_between(connection: AsyncConnection, currencies: Collection[str], first: date, last: date) -> Rates:
    """All that may lead from one of these currencies to another on these days, by one step or two.

    Nobody tells new ones until the transaction ends: whoever does looks afterwards for items they touch.
    """
    if connection.dialect.name == "postgresql":  # elsewhere only one writes at a time
        await connection.exec_driver_sql("LOCK TABLE currency_rates IN SHARE MODE")
    own = currency_rates.c
    days = and_(own.day >= (first - OLDEST).isoformat(), own.day <= last.isoformat())
    wanted = sorted(currencies)
    from_them = _told().where(own.base.in_(wanted), days)
    to_them = _told().where(own.quote.in_(wanted), own.base.not_in(wanted), days)
    rows = (await connection.execute(union_all(from_them, to_them))).all()
    return Rates(
        DatedRate(base=row.base, quote=row.quote, day=date.fromisoformat(row.day), rate=row.rate) for row in rows
    )


def _told() -> Select[Any]:
    own = currency_rates.c
    return select(own.base, own.quote, own.day, own.rate)
