"""The job that works a segment out: it trusts complete ingests alone, asks for what is lacking, and waits for it."""

import asyncio
from collections.abc import Sequence

import pytest

from mistnet.app import App
from mistnet.governor.errors import NoKey
from mistnet.graph.follows.model import FOLLOW_SYNC, Side
from mistnet.graph.segments.model import MATERIALIZE, Need, SegmentDisabled, awaits
from mistnet.graph.segments.rules import read_rule
from mistnet.queue.kinds import Policy
from mistnet.queue.model import Continue, Done, Fail, Lease, Snooze, Wake
from mistnet.queue.settler import settlement
from mistnet.queue.store.enqueue import write_wakes
from mistnet.queue.tables import jobs
from mistnet.settings import load_settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.ingests import NotReturned
from mistnet.social.model import UserId, X
from tests.databases import make_app
from tests.harvests import change, rows
from tests.segmented import SUBJECT, Workshop, ids, workshop
from tests.support import START, TurnedClock
from tests.worlds import KEY, WorldTransport, service_of

pytestmark = pytest.mark.common_sql

FOLLOWERS = Need(platform=X, side=Side.FOLLOWERS, subject_id=UserId(SUBJECT))


async def fans(shop: Workshop, **about: float) -> None:
    await shop.people(1, 2, 3)
    await shop.follow((2, 1), (3, 1))
    await shop.define("fans", kind="followers", subject="1", **about)


async def end_sync(shop: Workshop, state: str | None, *, error: str = "it broke") -> None:
    """The sync job ends: badly in a state of its own, or, without one, as if it had never been."""
    if state is None:
        await change(shop.app, "DELETE FROM jobs WHERE kind = 'follow_sync'")
        return
    async with shop.app.database.transaction() as connection:
        told = {"state": state, "attempts": 1, "last_error": f"Traceback\n{error}", "run_at": shop.clock.now()}
        await connection.execute(jobs.update().where(jobs.c.kind == FOLLOW_SYNC).values(told))


async def test_a_materialization_requests_missing_data_and_waits_for_it(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.ask("fans")
        assert isinstance(await shop.step(), Continue)
        assert [job[:3] for job in await shop.jobs("follow_sync")] == [("followers:1", "x", "pending")]
        ((key, lane, state, reason, _),) = await shop.jobs("materialize")
        assert (key, lane, state, reason) == (
            "1",
            "segments",
            "pending",
            "waits for a complete sync of the followers of user 1",
        )
        assert await shop.step() is None, "it is not due yet"
        shop.clock.turn(seconds=20)
        assert isinstance(await shop.step(), Snooze), "the sync is still alive"
        shop.clock.turn(seconds=20)
        ingest = await shop.synced(Side.FOLLOWERS)
        await end_sync(shop, None)
        assert isinstance(await shop.step(), Done)
        assert await shop.members("fans") == {2, 3}
        assert ((await shop.store.snapshots("fans")).items)[0].ingests == [ingest]
        assert await shop.jobs("materialize") == []


async def test_mutuals_need_both_sides_and_ask_for_both_at_once(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2)
        await shop.define("friends", kind="mutuals", subject="1")
        await shop.ask("friends")
        await shop.step()
        assert [job[0] for job in await shop.jobs("follow_sync")] == ["followers:1", "followings:1"]


@pytest.mark.parametrize(
    "newer",
    [
        {"status": "error", "plausible": None, "problem": "X is down"},
        {"status": "cancelled", "plausible": None},
        {"status": "success", "plausible": False, "problem": "the list is shorter than the profile says"},
        {"status": "success", "mode": "incremental"},
    ],
    ids=["error", "cancelled", "implausible", "incremental"],
)
async def test_a_newer_ingest_that_failed_takes_nothing_from_an_older_one_that_did_not(
    url: str, newer: dict[str, str]
) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        good = await shop.synced(Side.FOLLOWERS, ago=100)
        await shop.synced(Side.FOLLOWERS, ago=50, **newer)  # type: ignore[arg-type]
        snapshot = await shop.materialize("fans")
        assert (snapshot.ingests, snapshot.members) == ([good], 2)


@pytest.mark.parametrize(
    "only",
    [
        {"status": "error", "plausible": None, "problem": "X is down"},
        {"status": "cancelled", "plausible": None},
        {"status": "success", "plausible": False},
        {"status": "success", "plausible": None},
        {"status": "success", "mode": "incremental"},
    ],
    ids=["error", "cancelled", "implausible", "unjudged", "incremental"],
)
async def test_an_ingest_that_is_not_a_complete_success_meets_no_need(url: str, only: dict[str, str]) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.synced(Side.FOLLOWERS, ago=50, **only)  # type: ignore[arg-type]
        await shop.synced(Side.FOLLOWINGS)
        await shop.synced(Side.FOLLOWERS, subject=2)
        await shop.ask("fans")
        assert isinstance(await shop.step(), Continue)
        assert len(await shop.jobs("follow_sync")) == 1


async def test_a_stale_ingest_is_repeated_and_may_take_longer_than_it_stays_fresh(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop, fresh_seconds=3600.0)
        await shop.synced(Side.FOLLOWERS, ago=3601)
        await shop.ask("fans")
        assert isinstance(await shop.step(), Continue)
        fresh = await shop.synced(Side.FOLLOWERS)
        await end_sync(shop, None)
        shop.clock.turn(hours=5)
        assert isinstance(await shop.step(), Done)
        assert ((await shop.store.snapshots("fans")).items)[0].ingests == [fresh]


async def test_the_strictest_of_a_family_says_how_fresh_an_ingest_must_be(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop, fresh_seconds=60.0)
        await shop.define("some", kind="specified_users")
        await shop.define("both", kind="union", of=["fans", "some"], fresh_seconds=86_400.0)
        await shop.synced(Side.FOLLOWERS, ago=600)
        await shop.ask("both")
        assert isinstance(await shop.step(), Continue)


async def test_materializations_at_once_share_the_syncs_they_need(url: str) -> None:
    async with workshop(url) as one, workshop(url) as other:
        await fans(one)
        for name, kind in (("idols", "followed"), ("friends", "mutuals"), ("strangers", "unreciprocated_followed")):
            await one.define(name, kind=kind, subject="1")
        names = ["fans", "idols", "friends", "strangers"]
        assert sorted([await shop.ask(name) for name in names for shop in (one, other)]) == [False] * 4 + [True] * 4
        leases = [await shop.claim() for shop in (one, other, one, other)]
        await asyncio.gather(
            *(work(shop.app, lease) for shop, lease in zip((one, other, one, other), leases, strict=True))
        )
        assert [job[0] for job in await one.jobs("follow_sync")] == ["followers:1", "followings:1"]
        await one.synced_both()
        await end_sync(one, None)
        for shop in (one, other):
            shop.clock.turn(seconds=20)
        leases = [await shop.claim() for shop in (one, other, one, other)]
        await asyncio.gather(
            *(work(shop.app, lease) for shop, lease in zip((one, other, one, other), leases, strict=True))
        )
        assert await one.members("fans") == {2, 3}
        assert [len((await one.store.snapshots(name)).items) for name in names] == [1, 1, 1, 1]


async def work(app: App, lease: Lease | None) -> None:
    assert lease is not None
    kind = app.kinds[lease.kind]
    (outcome,) = await kind.handle([kind.job(lease)])
    now = app.database.clock.now()
    assert await app.queue.settle([settlement(lease, outcome, now=now, policy=Policy(), chance=0.5)], now=now)


async def test_two_that_build_on_one_segment_at_once_do_not_hurt_each_other(url: str) -> None:
    async with workshop(url) as one, workshop(url) as other:
        await one.people(*range(1, 40))
        await one.define("some", kind="specified_users")
        await one.define("more", kind="specified_users")
        await one.store.add_inputs("some", ids(*range(1, 30)), now=START)
        await one.store.add_inputs("more", ids(*range(20, 40)), now=START)
        await one.define("all", kind="union", of=["some", "more"])
        await one.define("rest", kind="difference", of=["more", "some"])
        for name in ("all", "rest", "some"):
            await one.ask(name)
        leases = [await shop.claim() for shop in (one, other, one)]
        await asyncio.gather(*(work(shop.app, lease) for shop, lease in zip((one, other, one), leases, strict=True)))
        assert await one.members("all") == set(range(1, 40))
        assert await one.members("rest") == set(range(30, 40))
        assert await one.members("some") == set(range(1, 30))
        assert await rows(one.app, "SELECT count(*) FROM segment_events WHERE segment_id = 1") == [(29,)]


@pytest.mark.parametrize("state", ["failed", "dead"])
async def test_a_sync_that_dies_fails_the_materialization_with_what_it_said(url: str, state: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.ask("fans")
        await shop.step()
        shop.clock.turn(seconds=20)
        await end_sync(shop, state, error="X refuses the question")
        outcome = await shop.step()
        assert isinstance(outcome, Fail)
        assert outcome.error.startswith("the followers of user 1 could not be synced: X refuses the question.")
        assert "run `mistnet segments materialize fans`" in outcome.error
        assert (await shop.store.get("fans")).materialized_at is None
        assert await rows(shop.app, "SELECT count(*) FROM segment_snapshots") == [(0,)]


async def test_a_sync_that_ends_implausible_fails_the_materialization_with_its_problem(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.ask("fans")
        await shop.step()
        shop.clock.turn(seconds=20)
        await end_sync(shop, None)
        await shop.synced(Side.FOLLOWERS, plausible=False, problem="7 of 9 followers were shown")
        outcome = await shop.step()
        assert isinstance(outcome, Fail)
        assert outcome.error.startswith("the followers of user 1 could not be synced: 7 of 9 followers were shown.")


async def test_a_sync_that_was_cancelled_fails_the_materialization(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.ask("fans")
        await shop.step()
        shop.clock.turn(seconds=20)
        await end_sync(shop, None)
        outcome = await shop.step()
        assert isinstance(outcome, Fail)
        assert "it was cancelled" in outcome.error


async def test_an_old_failure_is_no_reason_to_fail_and_asking_again_tries_again(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.ask("fans")
        await shop.step()
        shop.clock.turn(seconds=20)
        await end_sync(shop, "dead")
        assert isinstance(await shop.step(), Fail)
        shop.clock.turn(seconds=20)
        assert await shop.ask("fans"), "the failed one does not stand in the way"
        assert isinstance(await shop.step(), Continue)
        assert [job[2] for job in await shop.jobs("follow_sync")] == ["dead", "pending"]
        assert [job[2] for job in await shop.jobs("materialize")] == ["pending"], "what failed is in the history"


async def test_a_materialization_waits_for_an_incremental_sync_and_then_requests_a_full_one(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await change(
            shop.app,
            "INSERT INTO jobs (kind, key, lane, class, state, args, max_attempts, run_at, created_at) "
            "VALUES ('follow_sync', 'followers:1', 'x', 1, 'pending', '{}', 5, '2026-03-01', '2026-03-01')",
        )
        await shop.ask("fans")
        assert isinstance(await shop.step(), Snooze)
        shop.clock.turn(seconds=20)
        await end_sync(shop, None)
        await shop.synced(Side.FOLLOWERS, mode="incremental")
        assert isinstance(await shop.step(), Continue)
        assert len(await shop.jobs("follow_sync")) == 1


async def test_the_end_of_a_sync_can_wake_who_waits_for_it(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.ask("fans")
        await shop.step()
        await shop.synced(Side.FOLLOWERS)
        async with shop.app.database.transaction() as connection:
            await write_wakes(connection, [Wake(kind=MATERIALIZE, reason=awaits(FOLLOWERS))], shop.clock.now())
        assert isinstance(await shop.step(), Done)


async def test_a_rule_that_changes_during_its_materialization_is_evaluated_again(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.synced_both()
        await shop.ask("fans")
        lease = await shop.claim()
        assert lease is not None
        kind = shop.app.kinds[lease.kind]
        (outcome,) = await kind.handle([kind.job(lease)])
        shop.clock.turn(seconds=1)
        await shop.define("fans", kind="followed", subject="1")
        settled = settlement(lease, outcome, now=shop.clock.now(), policy=Policy(), chance=0.5)
        with pytest.raises(Exception, match="changed meanwhile"):
            await shop.app.queue.settle([settled], now=shop.clock.now())
        assert await shop.members("fans") == set()


async def test_a_disabled_segment_is_not_materialized(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.ask("fans")
        await shop.store.disable("fans", now=START)
        with pytest.raises(SegmentDisabled):
            await shop.ask("fans")
        outcome = await shop.step()
        assert isinstance(outcome, Fail)
        assert "is disabled" in outcome.error


async def test_what_builds_on_a_disabled_segment_that_never_was_anything_fails_and_says_so(url: str) -> None:
    async with workshop(url) as shop:
        await fans(shop)
        await shop.define("some", kind="specified_users")
        await shop.define("both", kind="union", of=["fans", "some"])
        await shop.synced_both()
        await shop.store.disable("some", now=START)
        await shop.ask("both")
        assert await shop.step() == Fail("both builds on some, which is disabled and was never materialized")


async def test_segments_with_a_rhythm_get_their_jobs_by_themselves(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1)
        await shop.define("some", every_seconds=3600.0, kind="specified_users")
        await shop.define("other", kind="specified_users")
        make_due = shop.segments.make_due
        assert await make_due(shop.app.job_writer) == 1
        assert await make_due(shop.app.job_writer) == 0
        assert [job[0] for job in await shop.jobs("materialize")] == ["1"]
        await shop.step()
        shop.clock.turn(minutes=59)
        assert await make_due(shop.app.job_writer) == 0
        shop.clock.turn(hours=10)
        assert await make_due(shop.app.job_writer) == 1, "times that were missed are not made up for"
        assert await make_due(shop.app.job_writer) == 0
        await shop.store.disable("some", now=shop.clock.now())
        shop.clock.turn(hours=2)
        assert await make_due(shop.app.job_writer) == 0
        await shop.store.enable("some", now=shop.clock.now())
        assert await make_due(shop.app.job_writer) == 1
        names = [duty.name for duty in shop.segments.duties(shop.app.job_writer)]
        assert names == ["materialize segments"]


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "small")


@pytest.fixture(scope="module")
def somebody(world: World) -> Sequence[UserId]:
    found = Truth(world).hydratable([UserId(each.id) for each in world.people], WORLD_START_AT)
    return sorted(UserId(each) for each in found)[:3]


def app_in(url: str, world: World) -> App:
    settings = load_settings(database_url=url, x_api_key=KEY, x_rate_per_minute=6_000_000)
    return make_app(settings, clock=TurnedClock(WORLD_START_AT), transports={"x": WorldTransport(service_of(world))})


async def test_specified_users_are_hydrated_first_on_an_empty_database(
    url: str, world: World, somebody: Sequence[UserId]
) -> None:
    app = app_in(url, world)
    await app.segments.define("some", read_rule("some", {"kind": "specified_users"}))
    done = await app.segments.add_inputs("some", somebody, asked_by="a test")
    assert (done.added, list(done.hydrated.fetched)) == (3, list(somebody))
    assert [each.user_id for each in (await app.segments.store.inputs("some")).items] == list(somebody)
    shells = "SELECT count(*) FROM users WHERE handle IS NULL OR profiled_at IS NULL"
    assert await rows(app, shells) == [(0,)]
    again = await app.segments.add_inputs("some", somebody, asked_by="a test")
    assert (again.added, again.hydrated.calls) == (0, 0)
    await app.database.close()


async def test_an_id_that_is_not_to_be_had_commits_nothing(url: str, world: World, somebody: Sequence[UserId]) -> None:
    app = app_in(url, world)
    await app.segments.define("some", read_rule("some", {"kind": "specified_users"}))
    with pytest.raises(NotReturned):
        await app.segments.add_inputs("some", [*somebody, UserId(99)], asked_by="a test")
    assert await rows(app, "SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM segment_inputs)") == [(0, 0)]
    assert await rows(app, "SELECT kind, status FROM ingest_events") == [("users_by_ids", "error")]
    await app.database.close()


async def test_a_handle_in_a_rule_becomes_an_id_and_its_user_is_stored(url: str, world: World) -> None:
    app = app_in(url, world)
    handle = Truth(world).accounts(WORLD_START_AT)[0]
    defined = await app.segments.define("fans", read_rule("fans", {"kind": "followers", "subject": f"@{handle}"}))
    ((user_id,),) = await rows(app, "SELECT id FROM users")
    assert defined.segment.rule.subject == str(user_id)  # type: ignore[union-attr]
    again = await app.segments.define("fans", read_rule("fans", {"kind": "followers", "subject": f"@{handle.upper()}"}))
    assert not again.changed
    await app.database.close()


async def test_without_a_key_nothing_that_is_stored_needs_one(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1)
        await shop.define("some", kind="specified_users")
        assert (await shop.segments.add_inputs("some", ids(1), asked_by="a test")).added == 1
        with pytest.raises(NoKey):
            await shop.segments.add_inputs("some", ids(1, 2), asked_by="a test")
        with pytest.raises(NoKey):
            await shop.define("fans", kind="followers", subject="@nobody")
        await shop.define("fans", kind="followers", subject="@user1")
