"""An app on a real database and a clock to turn: jobs of one kind run a step at a time, without a worker."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from sqlalchemy import text

from mistnet.app import App
from mistnet.queue.executor import Executor
from mistnet.queue.model import KindName, Outcome, WorkerName
from mistnet.queue.settler import settlement
from tests.support import TurnedClock


@dataclass
class Stepping:
    """Runs the jobs of `KIND`."""

    KIND: ClassVar[KindName]

    app: App
    clock: TurnedClock

    async def step(self, *, room: int = 10) -> list[Outcome]:
        """Claims due jobs, runs them, settles what they return; what came of each."""
        now, app = self.clock.now(), self.app
        targets = [each for each in app.kinds.targets(slots=room, lanes=None, lane_caps={}) if each.kind == self.KIND]
        leases = await app.queue.claim(
            worker=WorkerName("ann"),
            targets=targets,
            room=room,
            lease=timedelta(minutes=5),
            now=now,
            aged_before=None,
        )
        executor = Executor(clock=self.clock, timeout=timedelta(minutes=1), error_limit=2_000, secrets=app.secrets)
        outcomes = [outcome for lease in leases for outcome in await executor.run(app.kinds[self.KIND], [lease])]
        settled = [
            settlement(lease, outcome, now=now, policy=app.policy, chance=0.5)
            for lease, outcome in zip(leases, outcomes, strict=True)
        ]
        if settled:
            await app.queue.settle(settled, now=now)
        return outcomes

    async def all_steps(self) -> list[Outcome]:
        """Until nothing is due."""
        done: list[Outcome] = []
        while outcomes := await self.step():
            done += outcomes
        return done

    async def rows(self, sql: str, **binds: Any) -> list[Any]:
        async with self.app.database.read() as connection:
            return list((await connection.execute(text(sql), binds)).all())

    async def one(self, sql: str, **binds: Any) -> Any:
        (row,) = await self.rows(sql, **binds)
        return row[0] if len(row) == 1 else row
