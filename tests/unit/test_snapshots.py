"""What takes long to find is found once for all who ask, and not while a request waits if that can be avoided."""

import asyncio

import pytest

from mistnet.kit.errors import DatabaseBusy
from mistnet.web.pages.cached_counts import CachedResult


class Slow:
    """Something that is found when it is let go, and counts how often it was looked for."""

    def __init__(self) -> None:
        self.looks = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.now = 100.0
        self.takes = 0.0

    async def find(self) -> int:
        self.looks += 1
        await self.gate.wait()
        self.now += self.takes
        if self.error:
            raise self.error
        return self.looks

    def clock(self) -> float:
        return self.now


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_all_who_come_first_wait_for_one_look() -> None:
    slow = Slow()
    snapshot = CachedResult(slow.find, seconds=1, clock=slow.clock)
    slow.gate.clear()
    asking = [asyncio.create_task(snapshot.get()) for _ in range(5)]
    await settled()
    slow.gate.set()
    assert await asyncio.gather(*asking) == [1] * 5


async def test_a_stale_answer_is_given_at_once_and_renewed_once_behind_it() -> None:
    slow = Slow()
    snapshot = CachedResult(slow.find, seconds=1, clock=slow.clock)
    assert await snapshot.get() == 1
    assert await snapshot.get() == 1
    slow.gate.clear()
    slow.now += 2
    assert [await snapshot.get() for _ in range(3)] == [1, 1, 1]
    slow.gate.set()
    await settled()
    assert (await snapshot.get(), slow.looks) == (2, 2)


async def test_a_look_that_takes_long_is_made_the_more_rarely() -> None:
    slow = Slow()
    slow.takes = 3
    snapshot = CachedResult(slow.find, seconds=1, clock=slow.clock)
    await snapshot.get()
    slow.now += 29
    await snapshot.get()
    await settled()
    assert slow.looks == 1
    slow.now += 32
    await snapshot.get()
    await settled()
    assert slow.looks == 2


async def test_an_old_answer_is_worth_a_short_wait_for_a_new_one() -> None:
    slow = Slow()
    snapshot = CachedResult(slow.find, seconds=1, clock=slow.clock)
    await snapshot.get()
    slow.now += 3600
    assert await snapshot.get() == 2


async def test_what_cannot_be_renewed_stays_and_what_was_never_found_is_an_error() -> None:
    slow = Slow()
    slow.error = DatabaseBusy("busy")
    snapshot = CachedResult(slow.find, seconds=1, clock=slow.clock)
    with pytest.raises(DatabaseBusy):
        await snapshot.get()
    slow.error = None
    assert await snapshot.get() == 2
    slow.error = DatabaseBusy("busy")
    slow.now += 2
    await snapshot.get()
    await settled()
    assert await snapshot.get() == 2


async def test_a_closed_one_leaves_nothing_running() -> None:
    slow = Slow()
    snapshot = CachedResult(slow.find, seconds=1, clock=slow.clock)
    await snapshot.get()
    slow.gate.clear()
    slow.now += 2
    await snapshot.get()
    await settled()
    await snapshot.close()
    assert len(asyncio.all_tasks()) == 1


async def test_an_answer_that_may_be_some_seconds_old_is_renewed_behind_and_never_older() -> None:
    slow = Slow()
    snapshot = CachedResult(slow.find, seconds=100, clock=slow.clock)
    assert await snapshot.recent(4) == 1
    slow.now += 2
    assert (await snapshot.recent(4), slow.looks) == (1, 1)
    slow.now += 1
    assert await snapshot.recent(4) == 1
    await settled()
    assert (await snapshot.recent(4), slow.looks) == (2, 2)
    slow.now += 5
    assert await snapshot.recent(4) == 3
