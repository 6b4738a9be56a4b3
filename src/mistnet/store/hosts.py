"""When each host may be visited next, shared by all workers."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, select

from mistnet.store.database import Database
from mistnet.store.inserts import insert_of
from mistnet.store.tables import hosts


class StoreHosts:
    """The port's book of hosts on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = insert_of(database.dialect)

    async def claim(self, host: str, *, now: datetime, delay: float) -> datetime | None:
        """One statement takes the turn or leaves it: of any number of workers exactly one gets it."""
        adding = self._insert(hosts).values(host=host, next_at=now + timedelta(seconds=delay), delay_seconds=delay)
        taking = adding.on_conflict_do_update(
            index_elements=["host"],
            set_={"next_at": adding.excluded.next_at, "delay_seconds": adding.excluded.delay_seconds},
            where=hosts.c.next_at <= now,
        ).returning(hosts.c.host)
        async with self._database.statement() as connection:
            if (await connection.execute(taking)).first():
                return None
            held = await connection.execute(select(hosts.c.next_at).where(hosts.c.host == host))
            free_at: datetime = held.scalar_one()
            return free_at

    async def leave_alone(self, host: str, *, until: datetime) -> None:
        adding = self._insert(hosts).values(host=host, next_at=until)
        greatest = func.greatest if self._database.dialect == "postgresql" else func.max
        later = greatest(hosts.c.next_at, adding.excluded.next_at, type_=hosts.c.next_at.type)
        async with self._database.statement() as connection:
            await connection.execute(adding.on_conflict_do_update(index_elements=["host"], set_={"next_at": later}))
