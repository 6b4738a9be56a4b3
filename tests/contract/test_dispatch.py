"""Jobs over a real broker, on every database: published, claimed by id, acknowledged, retried, buried, requeued."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from mistnet.app import App, Via
from mistnet.cli.doctor import broker_findings
from mistnet.queue.errors import BrokerMismatch, NoBroker, Permanent, Temporary
from mistnet.queue.feeds import BrokerFeed
from mistnet.queue.model import Continue, Done, Job, JobId, KindName, Lane, Lease, Outcome, Snooze, WorkerName
from tests.brokered import (
    LANE,
    add,
    brokered,
    change,
    consuming,
    dead,
    dispatcher,
    effects,
    hurry,
    kind,
    purge,
    ready,
    rows,
    send,
    states,
    until,
)
from tests.support import Effect, Number, new

pytestmark = pytest.mark.common_sql


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = ("mistnet.queue.dispatch._LOOK_SECONDS", "mistnet.queue.dispatch._DEAD_LETTER_LOOK_SECONDS")
    asks = ("mistnet.queue.feeds._LAST_LOOK_SECONDS", "mistnet.queue.feeds._AGAIN_SECONDS")
    hurry(monkeypatch, 0.05, *looks, *asks, "mistnet.queue.store.wakeups._ASK_SECONDS")


async def effect(job: Job[Number]) -> Outcome:
    return Done([Effect(job_id=job.id)])


async def fault(_job: Job[Number]) -> Outcome:
    raise Temporary("it did not work this time")


async def refusal(_job: Job[Number]) -> Outcome:
    raise Permanent("it will never work")


async def test_due_jobs_are_published_and_marked_queued(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind()) as app, dispatcher(app) as (dispatch, _):
        later = app.database.clock.now() + timedelta(hours=1)
        await add(app, *(new(key=str(n)) for n in range(3)), new(key="later", run_at=later))
        assert await dispatch.publish() == 3
        assert await states(app) == {"queued": 3, "pending": 1}
        ids = [row.id for row in await rows(app, "SELECT id FROM jobs WHERE state = 'queued' ORDER BY id")]
        assert await ready(broker_url) == ids
        assert await dispatch.publish() == 0, "told once, a job is not told again"


async def test_a_message_no_queue_takes_is_not_published(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind()) as app, app.dispatching.broker() as broker:
        made = app.dispatching.dispatcher(broker)
        await broker.declare([])
        await add(app, new(key="one"))
        assert await made.publish() == 0, "the exchange is there, the queue is not"
        assert await states(app) == {"pending": 1}
        assert app.metrics.broker.returned.labels(LANE)._value.get() == 1
        assert await made.publish() == 1, "the queue was made again meanwhile"
        assert await states(app) == {"queued": 1}


async def test_a_worker_runs_what_it_is_sent_and_acknowledges_after_the_write(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(handler=effect)) as app:
        await add(app, *(new(key=str(n)) for n in range(30)))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker:
            async with asyncio.timeout(50):
                await worker.run()
        assert worker.settled_count == 30
        assert len(await effects(app)) == 30
        assert await rows(app, "SELECT id FROM jobs") == []
        assert await ready(broker_url) == []
        assert app.metrics.broker.acked.labels(LANE)._value.get() == 30
        assert app.metrics.broker.published.labels(LANE)._value.get() == 30


async def test_a_message_goes_back_to_the_broker_unless_its_job_has_ended(sqlite_url: str, broker_url: str) -> None:
    async with brokered(sqlite_url, broker_url, kind()) as app, dispatcher(app) as (dispatch, _):
        await add(app, new(key="ended"), new(key="running"))
        await dispatch.publish()
        feed = app.dispatching.broker_feed(WorkerName("ann"), [Lane(LANE)], app.policy, app.outage())
        leases: list[Lease] = []
        async with feed.opened():
            await until(lambda: _take(feed, leases, 2))
            assert await ready(broker_url) == []
            feed.ended(next(each for each in leases if each.key == "ended"))
        (running,) = (each.id for each in leases if each.key == "running")
        await until(lambda: _ready_is(broker_url, [running]))


async def test_a_worker_has_no_more_messages_of_a_lane_in_hand_than_its_prefetch(
    sqlite_url: str, broker_url: str
) -> None:
    async with brokered(sqlite_url, broker_url, kind(), amqp_prefetch=3) as app, dispatcher(app) as (dispatch, _):
        await add(app, *(new(key=str(n)) for n in range(10)))
        await dispatch.publish()
        feed = app.dispatching.broker_feed(WorkerName("ann"), [Lane(LANE)], app.policy, app.outage())
        leases: list[Lease] = []
        async with feed.opened():
            await until(lambda: _take(feed, leases, 3))
            assert len(await ready(broker_url)) == 7
            assert await feed.take(10) == []
            feed.ended(leases[0])
            await until(lambda: _take(feed, leases, 4))
            assert len(await ready(broker_url)) == 6


async def _take(feed: BrokerFeed, leases: list[Lease], wanted: int) -> bool:
    leases += await feed.take(10)
    return len(leases) >= wanted


async def _ready_is(broker_url: str, wanted: list[int]) -> bool:
    return await ready(broker_url) == wanted


async def test_workers_take_jobs_of_dispatched_lanes_only_if_configured_to(url: str, broker_url: str) -> None:
    side = kind("side", effect, lanes=["side"])
    async with brokered(url, broker_url, kind(handler=effect), side) as app:
        await app.dispatching.declare()
        await add(app, new(key="sent"), new("side", key="taken"))
        assert LANE not in (app.lanes_of(None, None) or [])
        async with app.worker(until_idle=True) as worker:
            await worker.run()
        assert worker.settled_count == 1
        assert [row.kind for row in await rows(app, "SELECT kind FROM jobs")] == ["step"]
        async with app.worker(until_idle=True, via=Via.DB) as fallback, asyncio.timeout(50):
            await fallback.run()
        assert await rows(app, "SELECT kind FROM jobs") == []


@pytest.mark.parametrize("away", [False, True], ids=["broker up", "broker away"])
async def test_a_worker_on_the_database_drains_a_lane_that_no_worker_consumes(
    url: str, broker_url: str, away: bool
) -> None:
    async with brokered(url, broker_url, kind(handler=effect)) as app, dispatcher(app) as (dispatch, _):
        await add(app, *(new(key=f"told {n}") for n in range(3)))
        await dispatch.publish()
        assert await states(app) == {"queued": 3}
    reached = "amqp://127.0.0.1:1/" if away else broker_url
    async with brokered(url, reached, kind(handler=effect)) as app:
        await add(app, *(new(key=f"untold {n}") for n in range(3)))
        async with app.worker(via=Via.DB, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert len(await effects(app)) == 6
        assert await rows(app, "SELECT id FROM jobs") == []
        assert app.metrics.broker.published.labels(LANE)._value.get() == 0, "it publishes no job that it runs itself"
    async with brokered(url, broker_url, kind(handler=effect)) as app:
        async with consuming(app):
            await until(lambda: _drained(broker_url))
        assert len(await effects(app)) == 6, "a message that comes late finds nothing to claim"


async def test_a_worker_on_the_database_takes_what_another_process_keeps_dispatching(url: str, broker_url: str) -> None:
    async with (
        brokered(url, broker_url, kind(handler=effect)) as app,
        app.dispatching.opened("a server"),
        app.worker(via=Via.DB) as worker,
    ):
        running = asyncio.create_task(worker.run())
        for n in range(3):
            await add(app, new(key=str(n)))
            await until(lambda wanted=n + 1: _has_effects(app, wanted))  # type: ignore[misc]
        worker.drain()
        await running


async def test_a_retry_is_published_again_when_it_falls_due(url: str, broker_url: str) -> None:
    tries: list[int] = []

    async def second_time(job: Job[Number]) -> Outcome:
        tries.append(job.attempt)
        if job.attempt < 3:
            raise Temporary("not yet")
        return Done([Effect(job_id=job.id)])

    async with brokered(url, broker_url, kind(handler=second_time)) as app:
        await add(app, new(key="one"))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert tries == [1, 2, 3]
        assert len(await effects(app)) == 1


async def test_steps_and_snoozes_come_back_over_the_broker(url: str, broker_url: str) -> None:
    seen: list[int] = []

    async def steps(job: Job[Number]) -> Outcome:
        seen.append(job.args.n)
        if job.args.n == 1 and seen.count(1) == 1:
            return Snooze(app.database.clock.now() + timedelta(seconds=0.2), "the source asks us to wait")
        return Done() if job.args.n == 2 else Continue(args=Number(n=job.args.n + 1))

    async with brokered(url, broker_url, kind(handler=steps)) as app:
        await add(app, new(key="one"))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert seen == [0, 1, 1, 2]
        assert await rows(app, "SELECT id FROM jobs") == []


async def test_a_lost_message_is_published_again_and_a_waiting_one_is_not(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(), republish_seconds=0.2) as app, dispatcher(app) as (dispatch, _):
        await add(app, *(new(key=str(n)) for n in range(4)))
        await dispatch.round()
        await asyncio.sleep(0.3)
        await dispatch.round()
        assert len(await ready(broker_url)) == 4, "every job has a message: nothing is lost"
        await purge(broker_url)
        await dispatch.round()
        assert len(await ready(broker_url)) == 4
        assert await states(app) == {"queued": 4}
        assert app.metrics.broker.republished.labels(LANE)._value.get() == 4


async def test_jobs_of_a_lane_that_is_dispatched_no_more_are_taken_back(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(), republish_seconds=0.1) as app, dispatcher(app) as (dispatch, _):
        await add(app, new(key="one"))
        await dispatch.round()
    await asyncio.sleep(0.2)
    async with brokered(url, broker_url, kind(handler=effect), republish_seconds=0.1, amqp_lanes=[]) as app:
        async with app.worker(until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert len(await effects(app)) == 1


async def test_a_duplicate_finds_nothing_to_claim(url: str, broker_url: str) -> None:
    runs: list[int] = []

    async def counted(job: Job[Number]) -> Outcome:
        runs.append(job.id)
        await asyncio.sleep(0.05)
        return Done([Effect(job_id=job.id)])

    async with brokered(url, broker_url, kind(handler=counted)) as app, dispatcher(app) as (dispatch, _):
        await add(app, *(new(key=str(n)) for n in range(5)))
        await dispatch.publish()
        for job_id in await ready(broker_url):
            await send(broker_url, b'{"job_id": %d}' % job_id)
            await send(broker_url, b'{"job_id": "%d", "priority": 3}' % job_id)
        async with consuming(app):
            await until(lambda: _has_effects(app, 5))
            await until(lambda: _drained(broker_url))
        assert len(runs) == 5


async def _drained(broker_url: str) -> bool:
    return not await ready(broker_url)


async def test_an_unreadable_message_goes_to_the_dead_letters(sqlite_url: str, broker_url: str) -> None:
    async with brokered(sqlite_url, broker_url, kind(handler=effect)) as app, dispatcher(app) as (_, broker):
        for body in (b"", b"hello", b'{"job": 1}', b'{"job_id": -1}', b'{"job_id": 1e99}', b"\xff\xfe"):
            await send(broker_url, body)
        async with consuming(app):
            await until(lambda: _dead_count(broker, 6))
        assert app.metrics.broker.rejected.labels(LANE)._value.get() == 6
        left = await app.dispatching.requeue_dead(Lane(LANE), app.operations)
        assert (left.requeued, left.unreadable) == ([], 6), "evidence stays where it is"
        assert (await broker.depths([Lane(LANE)]))[Lane(LANE)].dead == 6


async def _dead_count(broker: object, wanted: int) -> bool:
    depths = await broker.depths([Lane(LANE)])  # type: ignore[attr-defined]  # it is a RabbitBroker
    return bool(depths[Lane(LANE)].dead == wanted)


@pytest.mark.parametrize(("handler", "state"), [(fault, "dead"), (refusal, "failed")])
async def test_what_ends_without_its_result_is_a_dead_letter_once_and_can_be_requeued(
    url: str, broker_url: str, handler: object, state: str
) -> None:
    async with brokered(url, broker_url, kind(handler=handler), max_attempts=2) as app:
        await add(app, new(key="one"), new(key="two"))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert await states(app) == {state: 2}
        ids = sorted(row.id for row in await rows(app, "SELECT id FROM jobs"))
        told = await dead(broker_url)
        assert sorted(set(told)) == ids  # a dispatcher that loses the lead meanwhile tells again, which does no harm
        async with dispatcher(app) as (dispatch, _):
            assert await dispatch.publish_dead_letters() == 0
        assert await dead(broker_url) == told, "what was told is not told again"
        if state == "failed":
            none = await app.dispatching.requeue_dead(Lane(LANE), app.operations)
            assert (none.requeued, none.stale, await dead(broker_url)) == ([], 0, told), "their letters stay"
        done = await app.dispatching.requeue_dead(Lane(LANE), app.operations, failed=state == "failed")
        assert sorted(done.requeued) == ids
        assert await dead(broker_url) == []
        assert {row.attempts for row in await rows(app, "SELECT attempts FROM jobs")} == {0}
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert sorted(set(await dead(broker_url))) == ids, "those that die again are told again"


async def test_dead_letters_can_be_requeued_when_the_broker_lost_them(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(handler=refusal)) as app:
        await add(app, new(key="one"))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        async with app.dispatching.broker() as broker, broker.dead_letters(Lane(LANE)) as found:
            for each in found:
                await each.accept()
        done = await app.dispatching.requeue_dead(Lane(LANE), app.operations, failed=True)
        assert len(done.requeued) == 1
        assert await states(app) == {"pending": 1}


async def test_letters_of_jobs_that_live_again_are_removed_and_held_ones_stay(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(handler=refusal)) as app:
        await add(app, new(key="one"), new(key="two"))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        held, alive = sorted(row.id for row in await rows(app, "SELECT id FROM jobs ORDER BY key"))
        await app.operations.retry([JobId(alive)], now=app.database.clock.now())
        await add(app, new(key="one"))
        done = await app.dispatching.requeue_dead(Lane(LANE), app.operations, failed=True)
        assert (done.requeued, done.held, done.stale) == ([], [held], 1)
        assert await dead(broker_url) == [held]


async def test_a_worker_s_last_attempt_that_died_with_it_is_buried_too(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(handler=effect), max_attempts=1) as app, dispatcher(app) as (dispatch, _):
        await add(app, new(key="one"))
        await dispatch.publish()
        job = (await rows(app, "SELECT id FROM jobs"))[0].id
        await _claim(app, job, "ghost")
        after_its_lease = app.database.clock.now() + timedelta(seconds=2.1)
        lost = await app.upkeep.reclaim(now=after_its_lease, limit=10)
        assert [each.state for each in lost] == ["dead"]
        await dispatch.round()
        assert await dead(broker_url) == [job]


async def test_a_worker_whose_clock_is_behind_keeps_the_message_until_its_job_is_due(
    url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.queue.store.dispatch._CLOCKS_APART", timedelta(hours=2))
    async with brokered(url, broker_url, kind(handler=effect)) as app, dispatcher(app) as (dispatch, _):
        await add(app, new(key="soon", run_at=app.database.clock.now() + timedelta(hours=1)))
        soon = (await rows(app, "SELECT id FROM jobs"))[0].id
        await send(broker_url, msgspec.json.encode({"job_id": soon}))
        await change(app, "UPDATE jobs SET state = 'queued'")
        async with consuming(app):
            await until(lambda: _claims(app, 2))
            assert await effects(app) == []
            assert await ready(broker_url) == [], "it is kept"
            await change(app, "UPDATE jobs SET run_at = created_at")
            await until(lambda: _has_effects(app, 1))
        assert await dispatch.publish() == 0


async def _claims(app: App, wanted: int) -> bool:
    return (app.metrics.registry.get_sample_value("mistnet_claim_seconds_count") or 0) >= wanted


async def _claim(app: object, job_id: int, worker: str) -> object:
    from mistnet.queue.store.dispatch import StoreDispatch  # noqa: PLC0415 (only this helper looks there)

    dispatch = StoreDispatch(app.database)  # type: ignore[attr-defined]  # an App
    return await dispatch.claim_by_ids(
        [JobId(job_id)],
        worker=WorkerName(worker),
        targets=app.kinds.targets(slots=1, lanes=None, lane_caps={}),  # type: ignore[attr-defined]  # an App
        lease=timedelta(seconds=2),
        now=app.database.clock.now(),  # type: ignore[attr-defined]  # an App
    )


async def test_a_paused_kind_is_neither_published_nor_run_and_goes_on_when_resumed(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(handler=effect)) as app, dispatcher(app) as (dispatch, _):
        await add(app, new(key="told"))
        await dispatch.publish()
        await app.operations.pause(KindName("step"), "by hand", now=app.database.clock.now())
        await add(app, new(key="untold"))
        assert await dispatch.publish() == 0
        async with consuming(app):
            await until(lambda: _all_pending(app))
            assert await effects(app) == []
            await app.operations.resume(KindName("step"))
            await until(lambda: _has_effects(app, 2))


async def _all_pending(app: object) -> bool:
    return await states(app) == {"pending": 2}  # type: ignore[arg-type]  # an App


async def _has_effects(app: object, number: int) -> bool:
    return len(await effects(app)) == number  # type: ignore[arg-type]  # an App


async def test_caps_hold_over_the_broker(url: str, broker_url: str) -> None:
    running, most = 0, 0

    async def counted(job: Job[Number]) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return Done([Effect(job_id=job.id)])

    async with brokered(url, broker_url, kind(handler=counted, running_cap=2)) as app:
        await add(app, *(new(key=str(n)) for n in range(12)))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert len(await effects(app)) == 12
        assert most <= 2


async def test_no_more_messages_are_published_than_the_window_allows(url: str, broker_url: str) -> None:
    async with brokered(url, broker_url, kind(handler=effect), amqp_window=3) as app, dispatcher(app) as (dispatch, _):
        await add(app, *(new(key=str(n)) for n in range(10)))
        await dispatch.publish()
        assert await states(app) == {"queued": 3, "pending": 7}
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert len(await effects(app)) == 10


async def test_important_lanes_go_first(url: str, broker_url: str) -> None:
    wide = kind(lanes=[LANE, "urgent"])
    settings = {"amqp_lanes": [LANE, "urgent"], "lane_priorities": {"urgent": 5}}
    async with brokered(url, broker_url, wide, **settings) as app, dispatcher(app) as (dispatch, _):
        await add(app, *(new(key=f"{lane}{n}", lane=Lane(lane)) for n in range(5) for lane in (LANE, "urgent")))
        await dispatch.publish()
        feed = app.dispatching.broker_feed(WorkerName("ann"), [Lane(LANE), Lane("urgent")], app.policy, app.outage())
        async with feed.opened():
            await until(lambda: _both_in_hand(broker_url))
            taken = [lease.lane for _ in range(5) for lease in await feed.take(2)]
        assert taken == ["urgent"] * 5 + [LANE] * 5


async def _both_in_hand(broker_url: str) -> bool:
    return not await ready(broker_url) and not await ready(broker_url, "urgent")


async def test_draining_gives_back_jobs_that_were_not_started(url: str, broker_url: str) -> None:
    started = asyncio.Event()
    release = asyncio.Event()

    async def slow(job: Job[Number]) -> Outcome:
        started.set()
        await release.wait()
        return Done([Effect(job_id=job.id)])

    async with brokered(url, broker_url, kind(handler=slow)) as app, dispatcher(app) as (dispatch, _):
        await add(app, *(new(key=str(n)) for n in range(6)))
        await dispatch.publish()
        async with app.worker(via=Via.AMQP, concurrency=1) as worker:
            running = asyncio.create_task(worker.run())
            await started.wait()
            worker.drain()
            release.set()
            await running
        assert len(await effects(app)) == 1
        assert await states(app) == {"queued": 5}
        await until(lambda: _ready_count(broker_url, 5))


async def _ready_count(broker_url: str, wanted: int) -> bool:
    return len(await ready(broker_url)) == wanted


async def test_queues_of_another_make_are_named(sqlite_url: str, broker_url: str) -> None:
    async with brokered(sqlite_url, broker_url, kind()) as app:
        await app.dispatching.declare()
        await app.dispatching.declare()
    async with brokered(sqlite_url, broker_url, kind(), amqp_queue_type="quorum") as app:
        with pytest.raises(BrokerMismatch, match="amqp_queue_type"):
            await app.dispatching.declare()
        for via in (None, Via.AMQP):
            with pytest.raises(BrokerMismatch, match="amqp_queue_type"):
                async with app.worker(via=via, until_idle=True) as worker:
                    await worker.run()


async def test_doctor_looks_at_the_broker_and_makes_nothing(sqlite_url: str, broker_url: str) -> None:
    async with brokered(sqlite_url, broker_url, kind()) as app:
        (missing,) = await broker_findings(app)
        assert (missing.level, "crawl.toy" in missing.found) == ("warn", True)
        assert "broker declare" in str(missing.advice)
        (missing,) = await broker_findings(app)
        assert missing.level == "warn", "a look makes no queue"
        await app.dispatching.declare()
        (well,) = await broker_findings(app)
        assert (well.level, well.advice) == ("ok", None)
        await send(broker_url, b'{"job_id": 1}')
        (unheard,) = await broker_findings(app)
        assert (unheard.level, unheard.found) == ("warn", "1 message of lane toy waits, and no worker takes it")
    async with brokered(sqlite_url, broker_url, kind(), amqp_queue_type="quorum") as app:
        (other,) = await broker_findings(app)
        assert (other.level, "x-queue-type" in other.found) == ("fail", True)


async def test_doctor_says_when_the_broker_is_away_or_refuses_us(sqlite_url: str, broker_url: str) -> None:
    for wrong, level, said in (
        ("amqp://127.0.0.1:1/", "warn", "does not answer"),
        (broker_url + "-not", "fail", "virtual host"),
        (broker_url.replace("guest:guest", "guest:s3cret"), "fail", "refuses us"),
    ):
        async with brokered(sqlite_url, wrong, kind()) as app:
            (found,) = await broker_findings(app)
        assert (found.name, found.level) == ("broker", level)
        assert said in found.found
        assert "s3cret" not in found.found


async def test_quorum_queues_carry_jobs_as_well(sqlite_url: str, broker_url: str) -> None:
    async with brokered(sqlite_url, broker_url, kind(handler=effect), amqp_queue_type="quorum") as app:
        await add(app, *(new(key=str(n)) for n in range(5)))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker, asyncio.timeout(50):
            await worker.run()
        assert len(await effects(app)) == 5


async def test_a_lane_that_is_not_dispatched_is_refused(sqlite_url: str) -> None:
    async with brokered(sqlite_url, "amqp://127.0.0.1:1/", kind(), amqp_lanes=[]) as app:
        with pytest.raises(NoBroker, match="amqp_lanes"):
            app.dispatching.chosen([LANE])
