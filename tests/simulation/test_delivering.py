"""Events under a seeded storm: written once, told to all, in one order, and again only with the same id."""

from collections.abc import Sequence
from datetime import datetime

import pytest
from sqlalchemy import insert

from mistnet.kit.database import Database
from mistnet.operations.webhooks import deliver_job
from mistnet.queue.events import Subscriber
from mistnet.queue.outbox import FanOut, _taken
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import deliveries
from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.delivering import Told, deliver_all

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


def survive(url: str, seed: int) -> Told:
    told = deliver_all(url, seed)
    assert told.faults == [], f"seed {seed}; {replay(seed)}"
    return told


@pytest.mark.parametrize("seeds", chunks(2, 2, 2, turn=2), ids=named)
def test_every_subscriber_gets_every_event_in_one_order_on_sqlite(memory: Templates, seeds: range) -> None:
    storms = [survive(memory.sqlite(), seed) for seed in seeds]
    assert sum(storm.crashes for storm in storms) >= 3 * len(seeds), "a storm that breaks nothing proves nothing"
    assert not is_fixed(seeds) or sum(storm.repeats for storm in storms) > 0, (
        "something was sent twice, and could be told apart by its id"
    )


@pytest.mark.parametrize("seeds", chunks(0, 1, 1, turn=0), ids=named)
def test_every_subscriber_gets_every_event_in_one_order_on_postgresql(
    memory: Templates, postgres_dsn: str, seeds: range
) -> None:
    storms = [survive(memory.postgresql(postgres_dsn), seed) for seed in seeds]
    assert sum(storm.crashes for storm in storms) >= 3 * len(seeds), "a storm that breaks nothing proves nothing"


class Careless(FanOut):
    """Marks events in one transaction and hands them on in the next."""

    async def fan_out(self, subscribers: Sequence[Subscriber], *, now: datetime, limit: int = 500) -> int:
        async with self._database.transaction() as connection:
            taken = await _taken(connection, now, limit)
        rows = [
            {"subscriber": subscriber.name, "event_id": event_id, "created_at": now}
            for event_id, _channel, _kind in taken
            for subscriber in subscribers
        ]
        if rows:
            async with self._database.transaction() as connection:
                await connection.execute(insert(deliveries), rows)
        await super().fan_out(subscribers, now=now, limit=limit)
        return len(taken)


def test_a_mutant_that_marks_before_it_hands_on_is_found_out(memory: Templates) -> None:
    def careless(database: Database, job_writer: JobWriter) -> FanOut:
        return Careless(database, job_writer, deliver_job)

    assert any(deliver_all(memory.sqlite(), seed, make_fan_out=careless).faults for seed in range(12))
