"""How often the engine goes to a libSQL server and back: over a long way this is what things cost."""

from mistnet.queue.model import Done
from tests.services.middleman import Middleman
from tests.services.sqld import SqldServer
from tests.support import Effect, new, open_shop


async def test_claiming_and_settling_take_a_handful_of_round_trips(sqld: SqldServer, libsql_url: str) -> None:
    async with Middleman(sqld).running() as between, open_shop(between.url(libsql_url)) as shop:

        def spent() -> int:
            count = len(between.requests)
            between.requests.clear()
            return count

        await shop.add(*(new(key=str(n)) for n in range(100)))
        assert spent() <= 4, "a hundred jobs are one batch"
        leases = await shop.claim(slots=20)
        assert len(leases) == 20
        assert spent() <= 5
        outcomes = [shop.settlement(lease, Done(writes=[Effect(job_id=lease.id)])) for lease in leases]
        won = await shop.queue.settle(outcomes, now=shop.now)
        assert len(won) == 20
        assert spent() <= 6, "twenty outcomes with their writes are one transaction"
        await shop.queue.extend(leases, until=shop.now)
        assert spent() <= 3
        assert await shop.upkeep.reclaim(now=shop.now, limit=100) == []
        assert spent() <= 4
