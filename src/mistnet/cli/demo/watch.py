"""Watches the demo on a terminal: what arrives while the world is collected, and then as its time goes on."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rich.console import Console

from mistnet.app import App
from mistnet.cli.demo.screen import DemoPicture, account_line, canvas, draw
from mistnet.cli.status import Status, status_of
from mistnet.kit.errors import DatabaseError
from mistnet.operations.overview import Arrival, Overview
from mistnet.operations.spend import By, CallLedger
from mistnet.queue.model import LIVE_STATES, JobState, NewJob
from mistnet.social.accounts import AccountState
from mistnet.social.coverage.model import AccountProgress
from mistnet.social.coverage.store import Coverage
from mistnet.social.jobs import args
from mistnet.social.store.tracking import TrackingStore

if TYPE_CHECKING:
    from mistnet.cli.demo.world import DemoWorld


_EVER: Final = timedelta(days=1)
_LOOK_SECONDS: Final = 0.25
_RATE_SECONDS: Final = 3.0
_HOUR_PER_SECOND: Final = 3600.0
_CATCH_UP_SECONDS: Final = 4.0
_LONG_WAIT_SECONDS: Final = 1.5
_PROFILE_LOOKS: Final = 6
"""Every so many catch-ups the profiles are looked at as well: once in a simulated day."""
_ARRIVALS, _OF_EACH = 300, 3
_COLLECTING: Final = (
    "Looks up profiles, sweeps histories backward, follows replies to their roots, visits linked shops."
)


class DemoWatcher:
    """Looks at the database a few times a second, draws what it sees, and lets time pass when all is collected."""

    def __init__(self, app: App, world: "DemoWorld", commands: Sequence[str], dashboard: str) -> None:
        self._app = app
        self._world = world
        self._commands = commands
        self._dashboard = dashboard
        self._begun = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque()
        self._title = "collecting a simulated world"
        self._collected = False
        self._caught_up = 0.0
        self._rounds = 0

    async def run(self) -> None:
        """Until it is cancelled. The last picture stays on the screen."""
        with canvas(Console()) as shown:
            while True:
                with suppress(DatabaseError):  # busy; the next look is soon enough
                    shown.draw(draw(await self._look(), width=shown.width, height=shown.height))
                await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> DemoPicture:
        database = self._app.database
        status = await status_of(database, self._app.settings.heartbeat, recent=_EVER)
        progress = await Coverage(database).accounts()
        told = await TrackingStore(database, self._app.job_writer).suggestions(live_only=False)
        totals = await Overview(database).totals()
        spent = await CallLedger(database).spent(By.SOURCE)
        by_user = {each.user_id: each for each in progress}
        by_handle = {each.handle: each for each in told}
        ordered = [by_handle[handle] for handle in self._world.handles]
        if not self._collected and not _alive(status):
            await self._begin_time()
        await self._go_on(progress)
        return DemoPicture(
            title=self._title,
            explained=_waits(status) or self._explained(),
            seconds=time.monotonic() - self._begun,
            posts_per_second=self._rate(totals.posts),
            world_now=self._world.clock.now(),
            totals=totals,
            threads_walked=next((kind.done_last_minute for kind in status.kinds if kind.kind == args.WALK), 0),
            credits=sum(each.credits for each in spent),
            failures=sum(each.failures for each in spent),
            accounts=[account_line(each, by_user.get(each.user_id) if each.user_id else None) for each in ordered],
            kinds=status.kinds,
            arrivals=_mixed(await Overview(database).arrivals(_ARRIVALS)),
            commands=self._commands,
            dashboard=self._dashboard,
        )

    async def _begin_time(self) -> None:
        """All is collected: compares it with the world, then lets the world's time run."""
        seconds = time.monotonic() - self._begun
        wrong = await self._world.disagreements(self._app)
        self._title = f"collected in {seconds:.0f} s; " + (
            f"the world disagrees: {wrong[0]}" if wrong else "the world agrees that nothing is missing"
        )
        self._world.let_time_pass(_HOUR_PER_SECOND)
        self._collected, self._caught_up = True, time.monotonic()

    async def _go_on(self, progress: Sequence[AccountProgress]) -> None:
        """Asks for what is new every few seconds."""
        now = time.monotonic()
        if not self._collected or now - self._caught_up < _CATCH_UP_SECONDS:
            return
        self._caught_up = now
        self._rounds += 1
        look = self._rounds % _PROFILE_LOOKS == 0
        active = [each for each in progress if each.state is AccountState.ACTIVE]
        await self._app.enqueue([_next_job(each, with_profile=look) for each in active])

    def _explained(self) -> str:
        if not self._collected:
            return _COLLECTING
        return f"An hour passes each second; new posts come in. It is {self._world.clock.now():%a %d %b %Y, %H:%M}."

    def _rate(self, posts: int) -> float:
        """Posts a second over the last few seconds."""
        now = time.monotonic()
        self._seen.append((now, posts))
        while self._seen[0][0] < now - _RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        return (posts - before) / (now - since) if now > since else 0.0


def _mixed(arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
    """Not more than a few of each author, or one page would fill the screen."""
    counted: Counter[str | None] = Counter()
    shown = []
    for arrival in arrivals:
        counted[arrival.handle] += 1
        if counted[arrival.handle] <= _OF_EACH:
            shown.append(arrival)
    return shown


def _alive(status: Status) -> bool:
    return any(kind.states.get(state) for kind in status.kinds for state in LIVE_STATES)


def _waits(status: Status) -> str | None:
    """Why nothing happens, if nothing does."""
    if not status.waits or any(kind.due or kind.states.get(JobState.RUNNING) for kind in status.kinds):
        return None
    first = min(status.waits, key=lambda each: each.next_due_at)
    ahead = (first.next_due_at - status.at).total_seconds()
    return f"Waits {ahead:.0f} s: {first.reason}." if ahead >= _LONG_WAIT_SECONDS else None


def _next_job(progress: AccountProgress, *, with_profile: bool) -> NewJob:
    """A look at the profile leads to a catch-up by itself, under the handle it goes by now."""
    if with_profile or progress.backfilled_at is None:
        return args.relook(progress.user_id)
    return args.catch_up(progress.user_id, progress.newest_post_id)
