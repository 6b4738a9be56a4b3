"""Strict hydration: fetch and store all requested users or posts by id, or none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from mistnet.governor.errors import BudgetSpent, SourcePaused, SourceRefused
from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.kit.database import Database
from mistnet.queue.errors import NotNow
from mistnet.queue.store.writes import Writers
from mistnet.settings import Settings
from mistnet.social.ingests import Hydrated, IngestId, IngestKind, IngestStatus, NotReturned, What, traced
from mistnet.social.jobs.hydration import FULL_BATCH
from mistnet.social.model import Gathered, PostId, UserId, X
from mistnet.social.sources import SocialSource
from mistnet.social.store.ingests import Ingests
from mistnet.social.store.posts import stored_posts, stored_users
from mistnet.sources.collecting import WRITERS, retry_while_busy

PATIENCE: Final = timedelta(seconds=30)
_NO_JOB: Final = CallPurpose()
_PAUSE_SECONDS: Final = 0.2
_KINDS: Final = {"users": IngestKind.USERS_BY_IDS, "posts": IngestKind.POSTS_BY_IDS}


class Batches(msgspec.Struct, frozen=True, kw_only=True):
    """How many ids one call contains, at most."""

    users: int = FULL_BATCH
    posts: int = 50


class Hydration:
    """Fetches what is missing, in full batches, and writes everything in one transaction or nothing at all."""

    def __init__(
        self,
        database: Database,
        x: SocialSource,
        *,
        batches: Batches = Batches(),  # noqa: B008 (frozen)
        secrets: Sequence[str] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._x = x
        self._batches = batches
        self._secrets = secrets
        self._sleep = sleep
        self._writers = Writers(WRITERS)
        self._ingests = Ingests(database)

    def write_with(self, writers: Writers) -> None:
        """From now on, write with these writers: all that comes with a post, such as its links, is then stored too."""
        self._writers = writers

    async def present(self, what: What, ids: Sequence[int]) -> set[int]:
        """Which of these ids are stored already."""
        if what == "users":
            return set(await stored_users(self._database, X, [UserId(each) for each in ids]))
        return set(await stored_posts(self._database, X, [PostId(each) for each in ids]))

    async def hydrate(
        self, what: What, ids: Sequence[int], *, force: bool = False, asked_by: str = "operator"
    ) -> Hydrated:
        """Raises NotReturned if the source lacks one of them. With `force`, stored ones are fetched too."""
        asked = sorted(set(ids))
        present = set() if force else await self.present(what, asked)
        wanted = [each for each in asked if each not in present]
        done = Hydrated(what=what, present=sorted(present), fetched=wanted, calls=0)
        if not wanted:
            return done
        ingest_id = await self._ingests.begin(
            _KINDS[what], ids=wanted, mode="force" if force else "missing", asked_by=asked_by
        )
        calls = await self._ingest(ingest_id, what, wanted)
        return msgspec.structs.replace(done, calls=calls, ingest_id=ingest_id)

    async def _ingest(self, ingest_id: IngestId, what: What, wanted: Sequence[int]) -> int:
        """Whatever the outcome, the ingest's event reports it."""
        size = self._batches.users if what == "users" else self._batches.posts
        answers: list[Gathered] = []
        async with self._ingests.ending(ingest_id, secrets=self._secrets) as tab:
            for start in range(0, len(wanted), size):
                # Answers that were paid for are worth a short wait for the rest; before the first, fail at once.
                patience = PATIENCE if answers else timedelta()
                answers.append(await self._ask(what, wanted[start : start + size], patience))
                tab.calls += 1
            returned = {each for answer in answers for each in (answer.users if what == "users" else answer.posts)}
            if missing := [each for each in wanted if each not in returned]:
                problem = next((each.problem for answer in answers for each in answer.unreadable), None)
                raise NotReturned(X_SOURCE, what, missing, asked=len(wanted), problem=problem)
            # One batch of writes for each answer, so that no statement has more values than a database accepts.
            prepared = [self._writers.prepare(traced(each.writes, ingest_id=ingest_id)) for each in answers]

            async def write() -> None:
                async with self._database.transaction() as connection:
                    for each in prepared:
                        await self._writers.write(connection, each, self._database.clock.now())
                    await self._ingests.end(
                        ingest_id, IngestStatus.SUCCESS, calls=len(answers), items=len(wanted), connection=connection
                    )

            await retry_while_busy(write, pause_seconds=_PAUSE_SECONDS, sleep=self._sleep)
        return len(answers)

    async def _ask(self, what: What, ids: Sequence[int], patience: timedelta) -> Gathered:
        while True:
            try:
                if what == "users":
                    return await self._x.users([UserId(each) for each in ids], purpose=_NO_JOB)
                return await self._x.posts([PostId(each) for each in ids], purpose=_NO_JOB)
            # These last longer than a request can wait.
            except (SourceRefused, SourcePaused, BudgetSpent):
                raise
            except NotNow as refusal:
                # At least a moment: a time that has passed must not become a loop without pauses.
                wait = max(refusal.until - self._database.clock.now(), timedelta(seconds=0.1))
                patience -= wait
                if patience < timedelta():
                    raise
                await self._sleep(wait.total_seconds())


def hydration_of(settings: Settings, database: Database, x: SocialSource) -> Hydration:
    batches = Batches(users=settings.batch_users_by_ids_max, posts=settings.batch_posts_by_ids_max)
    return Hydration(database, x, batches=batches, secrets=settings.secrets)
