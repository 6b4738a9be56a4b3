"""What the dashboard reads, on every database."""

from datetime import timedelta

import pytest
from sqlalchemy import insert

from mistnet.app import App
from mistnet.governor.tables import calls
from mistnet.operations.overview import DashboardStore, GapGroup, OpenAlert
from mistnet.operations.tables import alerts
from mistnet.queue.model import JobState
from mistnet.social.accounts import AccountState, AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.account_pages import AccountPages
from mistnet.social.store.post_listing import PostListing
from tests.harvests import change, days_ago, end_badly, id_at, open_harvest, post, rows, tell, user
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql

ANN, BEA, CARL = UserId(11), UserId(12), UserId(13)


async def track(app: App, user_id: UserId, handle: str, **about: str) -> None:
    await tell(app, user(user_id, handle, **about), AccountTracked(platform=X, user_id=user_id))


async def spend(app: App, *spent: tuple[int, UserId | None]) -> None:
    row = {"source": "x", "key_label": "k", "endpoint": "e", "seconds": 1.0, "items": 1}
    at = app.database.clock.now()
    async with app.database.transaction() as connection:
        for credits_spent, account_id in spent:
            await connection.execute(
                insert(calls), {**row, "at": at, "credits": credits_spent, "account_id": account_id}
            )


async def test_posts_and_credits_are_counted_by_the_second_and_the_minute_they_came(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await tell(app, user(ANN), post(1), post(2))
        await spend(app, (15, ANN), (30, None))
        clock.turn(seconds=1)
        await tell(app, post(3))
        clock.turn(seconds=60)
        await tell(app, post(4))
        board = DashboardStore(app.database)
        seconds = await board.amounts_by("second", START, of="posts")
        assert seconds == {
            START: 2,
            START + timedelta(seconds=1): 1,
            START + timedelta(seconds=61): 1,
        }
        assert await board.amounts_by("minute", START, of="posts") == {START: 3, START + timedelta(minutes=1): 1}
        assert await board.amounts_by("second", START, START + timedelta(seconds=1), of="posts") == {START: 2}
        assert await board.posts_before(START + timedelta(seconds=61)) == 3
        assert await board.amounts_by("minute", START, of="credits") == {START: 45}


async def test_what_each_account_has_and_costs(url: str) -> None:
    async with open_harvest(url) as app:
        await track(app, ANN, "ann")
        await track(app, BEA, "bea")
        await tell(app, user(CARL, "carl"), post(1, ANN), post(2, ANN), post(3, CARL))
        await spend(app, (15, ANN), (30, ANN), (7, None))
        board = DashboardStore(app.database)
        assert await board.stored_posts() == {ANN: 2}
        assert await board.spent_on() == {ANN: 45}
        assert await board.account_states() == {"active": 2}


async def test_gaps_are_told_by_why_they_are_and_open_alerts_by_how_bad_they_are(url: str) -> None:
    async with open_harvest(url) as app:
        await end_badly(app, args.backfill(ANN), args.backfill(BEA))
        await end_badly(app, args.relook(ANN), state="failed")
        await end_badly(app, args.hydrate_post(PostId(5)), state="failed")
        await change(app, "UPDATE jobs SET last_error = 'another' WHERE kind = 'relook'")
        newest = dict(await rows(app, "SELECT kind, max(id) FROM jobs GROUP BY kind"))
        groups = await DashboardStore(app.database).gaps()
        assert groups[0] == GapGroup(
            kind=args.BACKFILL, state=JobState.DEAD, last_error="it broke", jobs=2, newest=newest["backfill"]
        )
        assert [(each.kind, each.state, each.last_error) for each in groups[1:]] == [
            (args.HYDRATE_POST, JobState.FAILED, "it broke"),
            (args.RELOOK, JobState.FAILED, "another"),
        ]
        row = {"subject": "x", "message": "m", "opened_at": START, "last_seen_at": START}
        async with app.database.transaction() as connection:
            for rule, severity, closed_at in (
                ("a", "warning", None),
                ("b", "critical", None),
                ("c", "critical", START),
            ):
                shown = {**row, "rule": rule, "severity": severity, "closed_at": closed_at}
                await connection.execute(insert(alerts), shown)
        assert [(each.rule, each.severity) for each in await DashboardStore(app.database).alerts()] == [
            ("b", "critical"),
            ("a", "warning"),
        ]
        assert all(isinstance(each, OpenAlert) for each in await DashboardStore(app.database).alerts())


async def test_leases_are_counted_by_worker(url: str) -> None:
    async with open_harvest(url) as app:
        await app.enqueue([args.backfill(ANN), args.backfill(BEA), args.relook(ANN)])
        for worker, kind in (("ann", "backfill"), ("bob", "relook")):
            await change(
                app,
                "UPDATE jobs SET state = 'running', worker = :worker, lease_until = run_at WHERE kind = :kind",
                worker=worker,
                kind=kind,
            )
        assert await DashboardStore(app.database).held_by() == {"ann": 2, "bob": 1}


async def test_accounts_are_paged_by_handle_searched_and_filtered(url: str) -> None:
    async with open_harvest(url) as app:
        for place, handle in enumerate(("Carl", "ann", "bea", "ANNA", "50_percent")):
            await track(app, UserId(20 + place), handle, name=f"Name {place}")
        await change(app, "UPDATE accounts SET state = 'protected' WHERE user_id = 22")
        pages = AccountPages(app.database)
        seen: list[str | None] = []
        after = None
        while found := (await pages.page(after=after, limit=2)).items:
            seen += [each.progress.handle for each in found]
            after = found[-1].place
            await track(app, UserId(900 + len(seen)), f"aaa{len(seen)}")  # before the place we are at
        assert seen == ["50_percent", "ann", "ANNA", "bea", "Carl"]

        async def handles(**wanted: object) -> list[str | None]:
            found = await pages.page(**wanted, limit=50)  # type: ignore[arg-type]
            return [each.progress.handle for each in found.items]

        assert await handles(words="@AnN") == ["ann", "ANNA"]
        assert await handles(words="name 2") == ["bea"]
        assert await handles(words="0_p") == ["50_percent"]  # what is a wildcard to a database is none here
        assert await handles(words="%") == []
        assert await handles(state=AccountState.PROTECTED) == ["bea"]
        assert await handles(after="nonsense", words="carl") == ["Carl"]


async def test_one_account_has_its_profile_its_former_names_and_its_posts(url: str) -> None:
    async with open_harvest(url) as app:
        await track(app, ANN, "before", name="Ann")
        await track(app, ANN, "ann", name="Ann B.")
        ids = [id_at(days_ago(3), place) for place in range(5)]
        await tell(app, *(post(each, ANN) for each in ids))
        pages = AccountPages(app.database)
        profile, found = await pages.profile(ANN), await pages.progress(ANN)
        assert profile is not None
        assert found is not None
        assert (profile.handle, profile.name, profile.fetches, profile.fetch_limit) == ("ann", "Ann B.", 0, None)
        assert (found.progress.handle, found.progress.stored) == ("ann", 0)  # counted elsewhere
        assert [(each.handle, each.name) for each in await pages.versions(ANN)] == [("before", "Ann")]
        newest = await pages.posts(ANN, before=None, limit=3)
        assert [each.id for each in newest.items] == ids[:1:-1]
        assert [each.id for each in (await pages.posts(ANN, before=newest.next, limit=3)).items] == ids[1::-1]
        assert await pages.profile(BEA) is None
        assert await pages.progress(BEA) is None


async def test_posts_are_counted_by_the_hour_of_the_week_in_which_they_were_written(url: str) -> None:
    async with open_harvest(url) as app:
        await tell(app, user(ANN))
        sunday = days_ago(0)
        assert (sunday.weekday(), sunday.hour) == (6, 12)
        first_of_x = PostId(29_000_000_000)
        written = [id_at(sunday), id_at(sunday, 1), id_at(sunday - timedelta(hours=13)), first_of_x]
        await tell(app, *(post(each, ANN) for each in written))
        assert await AccountPages(app.database).hours(ANN) == {6 * 24 + 12: 2, 5 * 24 + 23: 1, 3 * 24 + 1: 1}


async def test_a_conversation_is_paged_from_its_beginning_and_latest_posts_from_the_end(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await track(app, ANN, "ann")
        await tell(app, user(BEA, "bea"), post(5, ANN, conversation=5), post(7, BEA, conversation=5, answers=5))
        clock.turn(seconds=1)
        await tell(app, post(6, BEA, conversation=5, answers=5))
        pages = PostListing(app.database)
        first = await pages.conversation(X, PostId(5), after=None, limit=2)
        assert [(each.id, each.handle, each.tracked) for each in first.items] == [(5, "ann", True), (6, "bea", False)]
        rest = await pages.conversation(X, PostId(5), after=first.next, limit=2)
        assert [(each.id, each.in_reply_to_id) for each in rest.items] == [(7, 5)]
        assert [each.id for each in await pages.latest(2)] == [6, 7]
