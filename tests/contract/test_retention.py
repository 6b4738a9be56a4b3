"""What grows with time alone is pruned when its time is over; what was collected, and every total, stays."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TypeAlias

from sqlalchemy import insert

from mistnet.app import App
from mistnet.governor.model import X_SOURCE, CallRecord, KeyLabel
from mistnet.operations.overview import By, CallLedger, DashboardStore
from mistnet.operations.pruning import Pruning, StorePruning
from mistnet.queue.model import JobId
from mistnet.shops.tables import crawls, links
from mistnet.social.model import UserId
from mistnet.social.tables import quarantine
from tests.harvests import open_harvest, rows, tell, user
from tests.segmented import ids, workshop
from tests.support import START, TurnedClock

Visits: TypeAlias = dict[int, list[tuple[float, bytes | None]]]
NOON = START.replace(hour=12, minute=0, second=0, microsecond=0)


def call(*, days_ago: float, credits_spent: int = 30, account: int | None = None, failed: bool = False) -> CallRecord:
    return CallRecord(
        source=X_SOURCE,
        key_label=KeyLabel("key-1"),
        endpoint="tweets" if account else "user/info",
        at=NOON - timedelta(days=days_ago),
        seconds=0.1,
        status=500 if failed else 200,
        items=credits_spent // 15,
        credits=credits_spent,
        job_id=JobId(1),
        account_id=UserId(account) if account else None,
        error="SourceDown: 500" if failed else None,
    )


async def totals(app: App) -> list[object]:
    """Everything that is ever shown of what calls have cost."""
    ledger = CallLedger(app.database)
    since, until = NOON.replace(hour=0) - timedelta(days=5), NOON.replace(hour=0) - timedelta(days=1)
    return [
        *[await ledger.spent(by) for by in By],
        *[await ledger.spent(by, since=since, until=until) for by in By],
        await DashboardStore(app.database).spent_on(),
    ]


async def test_sums_of_calls_are_the_same_before_and_after_they_are_pruned(url: str) -> None:
    async with open_harvest(url, clock=TurnedClock(NOON), calls_days=3) as app:
        await tell(app, user(11, "ann"), user(12, "bob"))
        await app.sources.store.record(
            [
                *(call(days_ago=days, account=11) for days in (0, 1, 2, 3, 3.2, 4, 5, 400)),
                *(call(days_ago=days, account=12, credits_spent=300) for days in (3, 4, 4.1)),
                *(call(days_ago=days, failed=True) for days in (2, 4, 6)),
            ]
        )
        before = await totals(app)
        await app.pruning.look_after()
        assert await rows(app, "SELECT count(*) FROM calls") == [(6,)]
        assert await totals(app) == before
        await app.sources.store.record([call(days_ago=4, account=11), call(days_ago=1)])
        before = await totals(app)
        await app.pruning.prune(NOON)
        assert await totals(app) == before, "what is written late is added to the sums there are"


async def test_calls_are_pruned_in_slices_and_by_several_processes_at_once(url: str) -> None:
    async with open_harvest(url, clock=TurnedClock(NOON)) as app:
        await app.sources.store.record([call(days_ago=10, account=1 + n % 3) for n in range(50)])
        before = await totals(app)
        some, others = (StorePruning(app.database, slice_rows=7) for _ in range(2))
        async with asyncio.TaskGroup() as group:
            folds = [group.create_task(each.fold_calls(before=NOON)) for each in (some, others)]
        assert sum(fold.result() for fold in folds) == 50
        assert await rows(app, "SELECT account_id, calls FROM call_sums ORDER BY account_id") == [
            (1, 17),
            (2, 17),
            (3, 16),
        ]
        assert await totals(app) == before


async def test_zero_days_keep_everything(url: str) -> None:
    async with open_harvest(url, clock=TurnedClock(NOON), calls_days=0, crawls_days=0, history_days=0) as app:
        await app.sources.store.record([call(days_ago=4_000)])
        await visits(app, {1: [(4_000, None), (3_000, None)]})
        await app.pruning.prune(NOON)
        await app.watch.prune()
        await app.settle_ingests()
        assert app.policy.retention is None
        assert await rows(app, "SELECT count(*) FROM calls") == [(1,)]
        assert await rows(app, "SELECT count(*) FROM crawls") == [(2,)]


async def visits(app: App, of_links: Visits) -> None:
    """Visits of each link, by how many days ago they were, some with their page."""
    async with app.database.transaction() as connection:
        for link_id, given in of_links.items():
            link = {name: str(link_id) for name in ("url_norm", "url", "host")}
            about = {"lane": "web", "platform": "web", "kind": "page", "state": "crawled", "first_seen_at": NOON}
            await connection.execute(insert(links).values(id=link_id, **link, **about))
            for days, body in given:
                row = {"link_id": link_id, "at": NOON - timedelta(days=days), "outcome": "no_price", "body": body}
                await connection.execute(insert(crawls).values(row))


async def days_of_visits(app: App) -> list[tuple[int, int, bool]]:
    async with app.database.read() as connection:
        found = await connection.execute(crawls.select().order_by(crawls.c.link_id, crawls.c.at))
        return [(row.link_id, (NOON - row.at).days, row.body is not None) for row in found]


async def test_old_visits_go_but_the_latest_of_each_link_and_those_with_a_page_stay(url: str) -> None:
    given: Visits = {
        1: [(200, None), (150, b"page"), (100, None), (5, None)],
        2: [(300, None), (299, None)],
        3: [(95, None)],
    }
    async with open_harvest(url, clock=TurnedClock(NOON)) as app:
        await visits(app, given)
        pruning = StorePruning(app.database, slice_rows=2)
        assert await pruning.prune_crawls(before=NOON - timedelta(days=90), pages_before=None) == 3
        assert await days_of_visits(app) == [(1, 150, True), (1, 5, False), (2, 299, False), (3, 95, False)]
        assert await rows(app, "SELECT count(*) FROM links") == [(3,)]


async def test_kept_pages_go_when_their_own_time_is_over(url: str) -> None:
    async with open_harvest(url, clock=TurnedClock(NOON), crawl_pages_days=120) as app:
        await visits(app, {1: [(150, b"old"), (110, b"young"), (5, None)], 2: [(400, b"alone")]})
        await app.pruning.prune(NOON)
        assert await days_of_visits(app) == [(1, 110, True), (1, 5, False), (2, 400, False)]


async def test_snapshots_in_which_nothing_happened_go_and_members_stay_as_of_every_time(url: str) -> None:
    async with workshop(url, history_days=30) as shop:
        await shop.people(1, 2, 3)
        await shop.define("fans", kind="specified_users")
        moments = []
        for come in ([1], [], [], [2], [], []):
            await shop.store.add_inputs("fans", ids(*come), now=shop.clock.now())
            moments.append((await shop.materialize("fans")).at)
            shop.clock.turn(days=1)
        before = [await shop.members("fans", as_of=each) for each in moments]
        shop.clock.turn(days=60)
        await shop.app.pruning.prune(shop.clock.now())
        found = [(each.entered, each.members) for each in reversed((await shop.store.snapshots("fans")).items)]
        assert found == [(0, 1), (1, 2), (0, 2)], "the first, the change, the latest"
        assert [await shop.members("fans", as_of=each) for each in moments] == before


async def test_only_payloads_that_were_read_later_leave_the_quarantine(url: str) -> None:
    old = NOON - timedelta(days=100)
    about = {"platform": "x", "endpoint": "tweets", "payload": b"{}", "first_seen_at": old, "last_seen_at": old}
    async with open_harvest(url, clock=TurnedClock(NOON)) as app:
        async with app.database.transaction() as connection:
            for problem, resolved_at in (("waits", None), ("read long ago", old), ("read today", NOON)):
                row = {**about, "digest": problem, "problem": problem, "resolved_at": resolved_at}
                await connection.execute(insert(quarantine).values(row))
        await app.pruning.prune(NOON)
        assert await rows(app, "SELECT problem FROM quarantine ORDER BY id") == [("waits",), ("read today",)]


async def test_a_worker_prunes_once_an_hour(url: str) -> None:
    clock = TurnedClock(NOON)
    async with open_harvest(url, clock=clock, calls_days=3) as app:
        await app.pruning.look_after()
        await app.sources.store.record([call(days_ago=5)])
        clock.turn(minutes=59)
        await app.pruning.look_after()
        assert await rows(app, "SELECT count(*) FROM calls") == [(1,)]
        clock.turn(minutes=1)
        assert await app.pruning.look_after() == 0
        assert await rows(app, "SELECT count(*) FROM calls") == [(0,)]


async def test_a_look_prunes_so_many_rows_at_most_and_the_next_goes_on(url: str) -> None:
    async with open_harvest(url, clock=TurnedClock(NOON), calls_days=3) as app:
        await app.sources.store.record([call(days_ago=5) for _ in range(12)])
        pruning = Pruning(app.settings, app.database, store=StorePruning(app.database, slice_rows=5, most=10))
        left = []
        for _ in range(2):
            await pruning.look_after()
            left.append((await rows(app, "SELECT count(*) FROM calls"))[0][0])
        assert left == [2, 0]
