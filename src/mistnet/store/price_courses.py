"""What was believed to be asked for some products over a span of time, with the offers just before and after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, FromClause, Select, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.lineage import SeenPrice
from mistnet.domain.products import ProductId
from mistnet.store.tables import offers, products

Courses: TypeAlias = Mapping[ProductId, Sequence[SeenPrice]]
_AT_ONCE: Final = 400
_SHOWN: Final = (
    *("id", "product_id", "amount", "amount_max", "currency", "availability", "observed_at", "last_seen_at"),
)


async def courses(
    connection: AsyncConnection, product_ids: Collection[ProductId], *, since: datetime, until: datetime
) -> Courses:
    """In the order of their times: the last up to `since`, all up to `until`, and the first after that."""
    found: dict[ProductId, list[SeenPrice]] = {each: [] for each in product_ids}
    ids = sorted(found)
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        edges = [edge for row in await connection.execute(_edges(some, since, until)) for edge in row if edge]
        for row in (await connection.execute(_between(some, edges, since, until))).mappings():
            found[row["product_id"]].append(_price(row))
    for course in found.values():
        course.sort(key=lambda each: (each.observed_at, each.id))
    return found


async def latest_course(connection: AsyncConnection, product_id: ProductId, *, limit: int) -> Sequence[SeenPrice]:
    """The latest offers of one product, in the order of their times."""
    shown = [offers.c[name] for name in _SHOWN]
    asked = select(*shown).where(offers.c.product_id == product_id, *_priced(offers))
    rows = await connection.execute(asked.order_by(offers.c.observed_at.desc(), offers.c.id.desc()).limit(limit))
    return [_price(row) for row in rows.mappings()][::-1]


def _edges(ids: Sequence[ProductId], since: datetime, until: datetime) -> Select[Any]:
    """By product, the ids of the offers on either side of the span."""
    earlier, later = offers.alias("earlier"), offers.alias("later")
    before = (
        _believed(earlier)
        .where(earlier.c.observed_at <= since)
        .order_by(earlier.c.observed_at.desc(), earlier.c.id.desc())
    )
    after = _believed(later).where(later.c.observed_at > until).order_by(later.c.observed_at, later.c.id)
    sides = [each.limit(1).correlate(products).scalar_subquery() for each in (before, after)]
    return select(*sides).select_from(products).where(products.c.id.in_(ids))


def _believed(table: FromClause) -> Select[Any]:
    return select(table.c.id).where(table.c.product_id == products.c.id, *_priced(table))


def _between(ids: Sequence[ProductId], edges: Sequence[int], since: datetime, until: datetime) -> Any:
    shown = [offers.c[name] for name in _SHOWN]
    inside = select(*shown).where(
        offers.c.product_id.in_(ids), offers.c.observed_at > since, offers.c.observed_at <= until, *_priced(offers)
    )
    return union_all(inside, select(*shown).where(offers.c.id.in_(edges))) if edges else inside


def _priced(table: FromClause) -> Sequence[ColumnElement[bool]]:
    """What is doubted is no price."""
    return table.c.doubt.is_(None), table.c.amount.is_not(None)


def _price(row: Mapping[Any, Any]) -> SeenPrice:
    return SeenPrice(**{name: row[name] for name in _SHOWN if name != "product_id"})
