"""What may happen between a worker, its broker and the network: nothing is lost, nothing runs twice at once."""

import asyncio
import contextlib
import gc
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aiormq.exceptions import ChannelNotFoundEntity

from mistnet.app import App, Via
from mistnet.queue.errors import Temporary
from mistnet.queue.model import Continue, Done, Job, Outcome
from mistnet.queue.worker import Worker
from tests.brokered import add, brokered, channel_to, effects, hurry, kind, purge, ready, rows, send, states, until
from tests.seeds import chunks, named, replay
from tests.services.proxy import Proxy
from tests.services.rabbitmq import RabbitMissing, RabbitNode, SharedNode
from tests.support import Effect, Number, new

pytestmark = pytest.mark.filterwarnings("ignore")  # connections that were cut are left behind

JOBS = 40
RESTARTS = 1
HASTY = {
    "republish_seconds": 0.6,
    "lease_seconds": 60.0,  # longer than any stall of this process: no lease runs out here
    "heartbeat_seconds": 0.3,
    "reclaim_seconds": 0.3,
    "backoff_base_seconds": 0.02,
    "max_attempts": 100,
    "amqp_prefetch": 8,
    "amqp_window": 25,
}


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher, mailbox = "mistnet.queue.dispatch", "mistnet.queue.rabbitmq.consumer"
    first_waits = (f"{dispatcher}._FIRST_WAIT", f"{mailbox}._FIRST_WAIT")
    hurry(monkeypatch, 0.1, f"{dispatcher}._LOOK_SECONDS", "mistnet.queue.feeds._AGAIN_SECONDS", *first_waits)
    hurry(monkeypatch, 0.5, f"{dispatcher}._LONGEST_WAIT", f"{mailbox}._LONGEST_WAIT")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Connections that were cut are collected here, where their warnings are expected, and not in a later test."""
    yield
    gc.collect()


class Watchman:
    """Sees every run of every job: two at once would be a crawl made twice."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.running: Counter[int] = Counter()
        self.twice: list[int] = []
        self.runs = 0

    async def handle(self, job: Job[Number]) -> Outcome:
        self.runs += 1
        self.running[job.id] += 1
        if self.running[job.id] > 1:
            self.twice.append(job.id)
        try:
            await asyncio.sleep(self._chance.choice((0, 0, 0.005, 0.03)))
            if self._chance.random() < 0.1:
                raise Temporary("by chance")
            if job.args.n > 0:
                return Continue(args=Number(n=job.args.n - 1))
            return Done([Effect(job_id=job.id)])
        finally:
            self.running[job.id] -= 1


@asynccontextmanager
async def crew(app: App, size: int) -> AsyncIterator[list[Worker]]:
    """Workers that must go on by themselves, whatever happens."""
    async with asyncio.TaskGroup() as running:
        workers: list[Worker] = []
        ready = asyncio.Event()
        over = asyncio.Event()

        async def live() -> None:
            async with app.worker(via=Via.AMQP, concurrency=4) as worker:
                workers.append(worker)
                if len(workers) == size:
                    ready.set()
                life = asyncio.create_task(worker.run())
                await asyncio.wait([life, asyncio.create_task(over.wait())], return_when=asyncio.FIRST_COMPLETED)
                assert not life.done(), "a worker ended by itself"
                worker.drain()
                await life

        for _ in range(size):
            running.create_task(live())
        await ready.wait()
        yield workers
        over.set()


async def mischief(chance: random.Random, proxy: Proxy, broker_url: str, ids: list[int]) -> None:
    """One thing that goes wrong."""
    match chance.choice(("cut", "cut", "refuse", "stall", "mute", "purge", "duplicate", "delete", "garbage")):
        case "cut":
            proxy.cut()
        case "refuse":
            proxy.refusing = True
            proxy.cut()
            await asyncio.sleep(chance.uniform(0.05, 0.3))
            proxy.refusing = False
        case "stall":
            proxy.stall()
            await asyncio.sleep(chance.uniform(0.05, 0.3))
            proxy.cut()
            proxy.flow()
        case "mute":
            proxy.mute = True
            await asyncio.sleep(chance.uniform(0.02, 0.1))
            proxy.cut()
            proxy.mute = False
        case "purge":
            with contextlib.suppress(ChannelNotFoundEntity):  # the queue may just have been deleted
                await purge(broker_url)
        case "duplicate":
            for job_id in chance.sample(ids, 5):
                await send(broker_url, b'{"job_id": %d}' % job_id)
        case "delete":
            async with channel_to(broker_url) as channel:
                await channel.queue_delete("crawl.toy")
        case "garbage":
            await send(broker_url, b"\x00 nobody can read this")


async def all_done(app: App) -> bool:
    return await states(app) == {}


@pytest.mark.parametrize("seeds", chunks(3, 3, 3), ids=named)
async def test_whatever_the_network_does_every_job_is_done_and_none_twice_at_once(
    rabbit: SharedNode, templates: object, postgres_dsn: str, seeds: range
) -> None:
    for seed in seeds:
        url = await asyncio.to_thread(templates.postgresql, postgres_dsn)  # type: ignore[attr-defined]  # Templates
        broker_url = await asyncio.to_thread(rabbit.vhost)
        try:
            await one_world(url, broker_url, seed)
        except BaseException:
            print(replay(seed))
            raise
        finally:
            await asyncio.to_thread(rabbit.drop, broker_url)


async def one_world(url: str, broker_url: str, seed: int) -> None:
    chance = random.Random(seed)
    watch = Watchman(chance)
    parts = urlsplit(broker_url)
    async with Proxy("127.0.0.1", parts.port or 0).opened() as proxy:
        through = broker_url.replace(f":{parts.port}/", f":{proxy.port}/")
        async with brokered(url, through, kind(handler=watch.handle), **HASTY) as app:
            await add(app, *(new(key=str(n), n=chance.randrange(3)) for n in range(JOBS)))
            ids = [row.id for row in await rows(app, "SELECT id FROM jobs")]
            async with crew(app, 2):
                await until(lambda: _begun(watch))
                for _ in range(4):
                    await mischief(chance, proxy, broker_url, ids)
                    await asyncio.sleep(chance.uniform(0.0, 0.3))
                await until(lambda: all_done(app))
            assert Counter(await effects(app)) == Counter(ids), "each effect is there exactly once"
            assert watch.twice == []
            assert await rows(app, "SELECT error FROM job_errors WHERE error LIKE 'the lease ran out%'") == []


async def _begun(watch: Watchman) -> bool:
    return watch.runs > 0


async def test_a_message_is_the_broker_s_until_what_became_of_its_job_is_written(
    sqlite_url: str, broker_url: str
) -> None:
    begun, finish = asyncio.Event(), asyncio.Event()

    async def handle(job: Job[Number]) -> Outcome:
        begun.set()
        await finish.wait()
        return Done([Effect(job_id=job.id)])

    parts = urlsplit(broker_url)
    async with Proxy("127.0.0.1", parts.port or 0).opened() as proxy:
        through = broker_url.replace(f":{parts.port}/", f":{proxy.port}/")
        async with brokered(sqlite_url, through, kind(handler=handle), **HASTY) as app, crew(app, 1):
            await add(app, new(key="one"))
            await begun.wait()
            job_id = (await rows(app, "SELECT id FROM jobs"))[0].id
            async with app.database.transaction():  # the outcome cannot be written while we write
                finish.set()
                assert await ready(broker_url) == [], "a worker has it in hand"
                proxy.refusing = True
                proxy.cut()
                await until(lambda: _ready_again(broker_url, job_id))
                proxy.refusing = False
            await until(lambda: all_done(app))
            await until(lambda: _acknowledged(broker_url))
            assert await effects(app) == [job_id]


async def _ready_again(broker_url: str, job_id: int) -> bool:
    return await ready(broker_url) == [job_id]


async def _acknowledged(broker_url: str) -> bool:
    return await ready(broker_url) == []


@pytest.mark.in_turn(0)
async def test_a_broker_that_stops_and_comes_back_is_found_again_by_the_same_workers(
    rabbit: SharedNode, postgresql_url: str
) -> None:
    """With a node of its own: others must not lose theirs."""
    node = RabbitNode()
    try:
        await asyncio.to_thread(node.open)
    except RabbitMissing as error:
        pytest.skip(str(error))
    watch = Watchman(random.Random(1))
    try:
        settings = {**HASTY, "amqp_queue_type": "quorum", "republish_seconds": 5.0}
        async with brokered(postgresql_url, node.vhost(), kind(handler=watch.handle), **settings) as app:
            async with crew(app, 2):
                for restart in range(RESTARTS):
                    await add(app, *(new(key=f"{restart}.{n}", n=1) for n in range(JOBS)))
                    before = watch.runs
                    await until(lambda before=before: _more_runs(watch, before))  # type: ignore[misc]
                    await asyncio.to_thread(node.stop)
                    await add(app, *(new(key=f"{restart}.away.{n}") for n in range(5)))
                    await asyncio.to_thread(node.start)
                    await until(lambda: all_done(app))
            assert len(await effects(app)) == RESTARTS * (JOBS + 5)
            assert len(set(await effects(app))) == RESTARTS * (JOBS + 5)
            assert watch.twice == []
    finally:
        await asyncio.to_thread(node.close)


async def _more_runs(watch: Watchman, before: int) -> bool:
    return watch.runs > before
