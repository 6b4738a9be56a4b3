"""Leadership as a leased row: one statement takes it, one keeps it, one gives it up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, case, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.leading import Leader, Term
from mistnet.store.database import Database
from mistnet.store.inserts import insert_of
from mistnet.store.tables import leaders


class StoreLeaders:
    """The table `leaders`. A row is never deleted, so that its fence only grows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, name: str, holder: str, *, lease: timedelta, now: datetime) -> Term | None:
        insert = insert_of(self._database.dialect)
        row = {"name": name, "holder": holder, "fence": 1, "since": now, "lease_until": now + lease}
        own = leaders.c.holder == holder
        taking = (
            insert(leaders)
            .values(row)
            .on_conflict_do_update(
                index_elements=["name"],
                set_={
                    "holder": holder,
                    "fence": leaders.c.fence + case((own, 0), else_=1),
                    "since": case((own, leaders.c.since), else_=now),
                    "lease_until": now + lease,
                },
                where=or_(own, leaders.c.lease_until <= now),
            )
            .returning(leaders.c.fence)
        )
        async with self._database.statement() as connection:
            fence = (await connection.execute(taking)).scalar()
        return None if fence is None else Term(name=name, holder=holder, fence=fence)

    async def present(self, name: str) -> Leader | None:
        return next((leader for leader in await self.all() if leader.name == name), None)

    async def renew(self, term: Term, *, lease: timedelta, now: datetime) -> bool:
        """A lease that ran out is kept too, as long as nobody else took it."""
        async with self._database.statement() as connection:
            kept = await connection.execute(update(leaders).where(_of(term)).values(lease_until=now + lease))
            return bool(kept.rowcount)

    async def resign(self, term: Term, *, now: datetime) -> None:
        async with self._database.statement() as connection:
            await connection.execute(
                update(leaders).where(_of(term), leaders.c.lease_until > now).values(lease_until=now)
            )

    async def all(self) -> Sequence[Leader]:
        """Who leads, or led last, by the name of the leadership."""
        asked = select(*(leaders.c[field] for field in Leader.__struct_fields__)).order_by(leaders.c.name)
        async with self._database.read() as connection:
            return [Leader(**row) for row in (await connection.execute(asked)).mappings()]


async def still_leads(connection: AsyncConnection, term: Term, *, now: datetime) -> bool:
    """Whether a term goes on. Until the transaction ends nobody else can take over, so what it writes is in order.

    A leader that is stopped in the middle of one is cut off by the server before long, or nobody could take over.
    """
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '5s'"))
    asked = select(leaders.c.fence).where(_of(term), leaders.c.lease_until > now).with_for_update()
    return (await connection.execute(asked)).scalar() is not None


def _of(term: Term) -> ColumnElement[bool]:
    return and_(leaders.c.name == term.name, leaders.c.holder == term.holder, leaders.c.fence == term.fence)
