"""Strict hydration: all the users or posts somebody asked for by id, or none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from mistnet.domain.accounts import XSource
from mistnet.domain.errors import BudgetSpent, DatabaseBusy, NotNow, NotReturned, SourcePaused, SourceRefused
from mistnet.domain.social import Gathered, Platform, PostId, UserId
from mistnet.domain.sources import X_SOURCE, Errand
from mistnet.harvest import POSTS_PER_CALL, WRITERS
from mistnet.jobs.profiles import FULL_BATCH
from mistnet.store.database import Database
from mistnet.store.holdings import stored_posts, stored_users
from mistnet.store.writes import Writers

What: TypeAlias = Literal["users", "posts"]

PATIENCE: Final = timedelta(seconds=30)
_NOBODY: Final = Errand()
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.2


class Hydrated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: ids that were there already, ids that were fetched, and in how many calls."""

    what: What
    present: Sequence[int]
    fetched: Sequence[int]
    calls: int


class Hydration:
    """Asks for what is missing, in full batches, and writes everything in one transaction or nothing at all."""

    def __init__(
        self, database: Database, x: XSource, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._database = database
        self._x = x
        self._sleep = sleep
        self._writers = Writers(WRITERS)

    async def present(self, what: What, ids: Sequence[int]) -> set[int]:
        """Those of these that are stored already."""
        if what == "users":
            return set(await stored_users(self._database, Platform.X, [UserId(each) for each in ids]))
        return set(await stored_posts(self._database, Platform.X, [PostId(each) for each in ids]))

    async def hydrate(self, what: What, ids: Sequence[int], *, force: bool = False) -> Hydrated:
        """Raises NotReturned if upstream lacks one of them. With `force` those that are stored are asked for too."""
        asked = sorted(set(ids))
        present = set() if force else await self.present(what, asked)
        wanted = [each for each in asked if each not in present]
        answers = await self._fetch(what, wanted)
        _require_all(what, wanted, answers)
        await self._write(answers)
        return Hydrated(what=what, present=sorted(present), fetched=wanted, calls=len(answers))

    async def _fetch(self, what: What, wanted: Sequence[int]) -> list[Gathered]:
        size = FULL_BATCH if what == "users" else POSTS_PER_CALL
        answers: list[Gathered] = []
        for start in range(0, len(wanted), size):
            patience = PATIENCE if answers else timedelta()  # what was paid for is not thrown away for a short wait
            answers.append(await self._ask(what, wanted[start : start + size], patience))
        return answers

    async def _ask(self, what: What, ids: Sequence[int], patience: timedelta) -> Gathered:
        while True:
            try:
                if what == "users":
                    return await self._x.users([UserId(each) for each in ids], errand=_NOBODY)
                return await self._x.posts([PostId(each) for each in ids], errand=_NOBODY)
            except (SourceRefused, SourcePaused, BudgetSpent):
                raise
            except NotNow as refusal:
                wait = max(refusal.until - self._database.clock.now(), timedelta(seconds=0.1))
                patience -= wait
                if patience < timedelta():
                    raise
                await self._sleep(wait.total_seconds())

    async def _write(self, answers: Sequence[Gathered]) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                await self._write_once(answers)
            except DatabaseBusy:
                if not tries_left:
                    raise
                await self._sleep(_PAUSE_SECONDS)
            else:
                return

    async def _write_once(self, answers: Sequence[Gathered]) -> None:
        """One answer after the other, so that no statement has more values than a database takes."""
        if not answers:
            return
        async with self._database.write() as connection:
            for answer in answers:
                await self._writers.write(connection, answer.writes, self._database.clock.now())


def _require_all(what: What, wanted: Sequence[int], answers: Sequence[Gathered]) -> None:
    came = {each for answer in answers for each in (answer.users if what == "users" else answer.posts)}
    missing = [each for each in wanted if each not in came]
    if missing:
        unread = next((each.problem for answer in answers for each in answer.unreadable), None)
        raise NotReturned(X_SOURCE, what, missing, asked=len(wanted), problem=unread)
