"""What lanes' meters tell of the jobs that went over them, on every database."""

from datetime import timedelta

from mistnet.queue.model import Done, Fail, Job, Outcome, Retry
from tests.apis import open_api
from tests.shelves import job
from tests.support import Number, kind, new, open_shop, run_until


async def answered(job_: Job[Number]) -> Outcome:
    outcomes: list[Outcome] = [Done(), Retry("it broke"), Fail("it is gone")]
    return outcomes[job_.args.n]


async def test_ends_retries_and_how_long_a_job_took_are_counted_by_lane(url: str) -> None:
    async with open_shop(url, kind(handler=answered, lanes=("shopee", "ebay"))) as shop:
        shopee = [new(key=str(n), n=n % 3, lane="shopee") for n in range(6)]
        await shop.add(*shopee, new(key="another", n=0, lane="ebay"))
        shop.clock.turn(minutes=2)
        worker = shop.worker(until_idle=False)
        await run_until(worker, lambda: worker.settled_count >= 7)
        read = worker._tools.metrics.registry.get_sample_value

        def counted(lane: str, outcome: str) -> float:
            return read("mistnet_lane_jobs_total", {"lane": lane, "outcome": outcome}) or 0

        assert [counted("shopee", each) for each in ("success", "retry", "failed", "dead")] == [2, 2, 2, 0]
        assert counted("ebay", "success") == 1
        assert read("mistnet_lane_finish_seconds_count", {"lane": "shopee"}) == 4
        assert read("mistnet_lane_finish_seconds_sum", {"lane": "shopee"}) == 4 * timedelta(minutes=2).total_seconds()


async def test_prometheus_metrics_show_waiting_jobs_and_dead_letters_of_each_lane(url: str) -> None:
    async with open_api(url) as api:
        for state in ("pending", "pending", "queued", "dead", "failed"):
            await job(api.app.database, "shopee", state)
        told = (await api.get("/metrics")).text
        for line in (
            'mistnet_lane_depth{lane="shopee",state="pending"} 2.0',
            'mistnet_lane_depth{lane="shopee",state="queued"} 1.0',
            'mistnet_dead_letters{lane="shopee",state="dead"} 1.0',
            'mistnet_dead_letters{lane="shopee",state="failed"} 1.0',
            'mistnet_dead_letters{lane="ebay",state="dead"} 0.0',
        ):
            assert line in told, line
        await api.app.operations.requeue(now=api.clock.now())
        again = (await api.get("/metrics")).text
        assert 'mistnet_dead_letters{lane="shopee",state="dead"} 0.0' in again
        assert 'mistnet_lane_depth{lane="shopee",state="pending"} 4.0' in again
