"""X as a source: keys, limits, client, what each key has left; and users and posts by id, all of them or none."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import msgspec

from mistnet.governor.bills import Bills
from mistnet.governor.errors import BudgetSpent, NoKey, SourcePaused, SourceRefused
from mistnet.governor.grants import Ticket
from mistnet.governor.model import X_SOURCE, CallPurpose, CallRecord, KeyLabel
from mistnet.governor.source import Source, SourceContext
from mistnet.kit.database import Database
from mistnet.kit.outage import retry_while_busy
from mistnet.queue.errors import NotNow, WorkError
from mistnet.queue.store.writes import Writers
from mistnet.settings import Settings
from mistnet.social.ingests import Hydrated, IngestId, IngestKind, IngestStatus, NotReturned, What, traced
from mistnet.social.jobs.hydration import FULL_BATCH
from mistnet.social.model import Gathered, PostId, SocialSource, UserId, X
from mistnet.social.store.ingests import Ingests
from mistnet.social.store.posts import stored_posts, stored_users
from mistnet.sources.collecting import WRITERS
from mistnet.sources.x import client as prices
from mistnet.sources.x.client import XClient

USUAL_DAY_CREDITS = 200_000
NO_CAP = (
    f"X has no cap on spending. Set one, for example US$ {USUAL_DAY_CREDITS // prices.CREDITS_PER_DOLLAR} a day: "
    f"`mistnet sources set x --day-credits {USUAL_DAY_CREDITS}`."
)
_ERROR_CHARACTERS = 500


def x_source(context: SourceContext) -> Source:
    settings = context.settings
    governor = context.governor(
        X_SOURCE,
        keys_of(settings),
        rate_per_minute=settings.x_rate_per_minute,
        burst=settings.x_burst,
        day_credits=settings.x_day_credits,
        month_credits=settings.x_month_credits,
        failure_credits=prices.failure,
    )
    http = context.http(X_SOURCE, settings.x_base_url, total_seconds=settings.x_timeout_seconds)
    return Source(
        governor=governor,
        platform=X,
        client=XClient(http, gate=governor, clock=context.database.clock),
        parts=[http.opened],
        setup="set MISTNET_X_API_KEY",
        costs=prices.COSTS,
        check_balances=lambda: check_balances(context),
    )


def keys_of(settings: Settings) -> Mapping[KeyLabel, str]:
    """Keys by a label that names them without giving them away."""
    keys = [key.get_secret_value() for key in settings.x_api_key]
    return {KeyLabel(f"key-{hashlib.sha256(key.encode()).hexdigest()[:8]}"): key for key in keys}


async def check_balances(context: SourceContext) -> Mapping[KeyLabel, str]:
    """Ask X with each key what it has left and store the answers; return what went wrong, by key."""
    keys = keys_of(context.settings)
    if not keys:
        raise NoKey
    clock, problems = context.database.clock, dict[KeyLabel, str]()
    http = context.http(X_SOURCE, context.settings.x_base_url)
    async with http.opened():
        for label, secret in keys.items():
            client = XClient(http, gate=_UngovernedKey(label, secret, context), clock=clock)
            try:
                balance = await client.balance()
            except SourceRefused as refused:
                problems[label] = refused.problem
            except WorkError as error:
                problems[label] = str(error)
            else:
                await Bills(context.database).note_balance(X_SOURCE, label, balance)
    return problems


class _UngovernedKey:
    """Lets a free call through with one key, paused or not: this is how an operator learns whether it works again."""

    def __init__(self, label: KeyLabel, secret: str, context: SourceContext) -> None:
        self._label, self._secret, self._store = label, secret, context.store
        self._clock = context.database.clock

    @asynccontextmanager
    async def call(self, endpoint: str, *, most: int, purpose: CallPurpose) -> AsyncIterator[Ticket]:
        ticket, at, error = Ticket(key=self._secret, label=self._label, reserved=most), self._clock.now(), None
        try:
            yield ticket
        except WorkError as failed:
            error = failed
            raise
        finally:
            record = CallRecord(
                source=X_SOURCE,
                key_label=self._label,
                endpoint=endpoint,
                at=at,
                seconds=(self._clock.now() - at).total_seconds(),
                status=getattr(error, "status", None) if error else 200,
                items=ticket.items,
                credits=ticket.cost or 0,
                job_id=purpose.job_id,
                account_id=purpose.account_id,
                error=f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS] if error else None,
            )
            await self._store.record([record])


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
        async with self._ingests.ending(ingest_id, secrets=self._secrets) as made:
            for start in range(0, len(wanted), size):
                # Answers that were paid for are worth a short wait for the rest; before the first, fail at once.
                patience = PATIENCE if answers else timedelta()
                answers.append(await self._ask(what, wanted[start : start + size], patience))
                made.calls += 1
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
