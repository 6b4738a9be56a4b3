"""The demo: a simulated world, collected in one process, and the report at its end."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
import typer

from mistnet.app import App
from mistnet.cli.command import Invocation, program_name, set_up_log, shared_options
from mistnet.cli.input import flag, option
from mistnet.cli.listening import listen, serving, url_of
from mistnet.cli.output import Block, Grid
from mistnet.cli.processes import stopping
from mistnet.cli.screen import COLLECTING, Screen, ScreenAccount, progress_line, suggestion_line
from mistnet.cli.status import Status
from mistnet.kit.migrate import ready
from mistnet.kit.text import counted
from mistnet.operations.overview import By, CallLedger, DashboardStore
from mistnet.queue.model import LIVE_STATES
from mistnet.settings import Settings
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import AccountProgress
from mistnet.social.jobs import args
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.tracking import NewSuggestion, TrackingStore
from mistnet.sources.x.client import CREDITS_PER_DOLLAR, format_dollars

if TYPE_CHECKING:
    from mistnet.cli.demo_world import DemoWorld


DISAGREES: Final = 1
_HERE: Final = "127.0.0.1"
_WATCHED_LATENCY: Final = (0.02, 0.04)
_QUIET: Final = "CRITICAL"
_HURRIED: Final[Mapping[str, Any]] = {
    "x_rate_per_minute": 1_000_000,
    "second_look_seconds": 0.5,
    "batch_fill_seconds": 1,
    "backoff_base_seconds": 0.2,
    "max_attempts": 50,
    "breaker_seconds": 1,
    "idle_poll_seconds": 0.5,
    "crawl_lanes": CRAWL_LANES,
    "crawl_rate_per_minute": 1_000_000,
    "crawl_host_seconds": 0,
    "crawl_every_hours": 1 / 240,
    "crawl_second_look_seconds": 1,
    "grace_seconds": 1,
    "scheduler_enabled": False,
}
"""Waits that take minutes with a real source take moments here. The demo enqueues catch-ups itself."""
FILE: Final = "demo.db"
COMMANDS: Final = (
    "status --watch",
    "coverage",
    "search coin",
    "products list",
    "spend",
    "sources",
    "jobs list",
    "export posts --format csv",
    "serve",
)
_EVER: Final = timedelta(days=1)
_HOUR_PER_SECOND: Final = 3600.0
_CATCH_UP_SECONDS: Final = 4.0
_PROFILE_ROUNDS: Final = 6
"""The profiles are fetched as well every so many catch-ups: once in a simulated day."""


class DemoChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which world to collect, and whether to keep its database."""

    seed: Annotated[int, option("--seed", None, "The world and its faults follow from it.")] = 7
    size: Annotated[Literal["tiny", "small"], option("--size", "tiny|small", "600 or 8,000 posts.")] = "small"
    faults: Annotated[
        Literal["none", "all"],
        option("--faults", "none|all", "Whether calls go wrong now and then, in every known way."),
    ] = "none"
    keep: Annotated[Path | None, option("--keep", "DIR", "Keep the database in this folder; else it is removed.")] = (
        None
    )


class DemoReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo collected, and whether that is everything the world has."""

    seed: int
    size: str
    faults: str
    accounts: Mapping[str, int]
    posts: int
    native_retweets: int
    threads_walked: int
    users: int
    gone_upstream: Mapping[str, int]
    products: int
    complete: bool
    disagreements: Sequence[str]
    calls: int
    failed_calls: int
    credits: int
    dollars: float
    seconds: float
    dashboard: str
    database_url: str | None
    next: Sequence[str]


@shared_options
async def demo(
    invocation: Invocation,
    *,
    choice: DemoChoice,
    browser: Annotated[
        bool | None, flag("--browser/--no-browser", "Open the dashboard; by default on a terminal with a screen.")
    ] = None,
) -> int:
    """Collect a simulated world: no key, no network, no files left.

    On a terminal it shows what happens and stays until Ctrl-C, while simulated time continues. Elsewhere it collects
    everything, prints a report and ends; exit code 1 if something is missing. The dashboard runs until then.
    """
    live = invocation.out.can_draw
    if invocation.settings.log_level == "INFO" or (live and sys.stderr.isatty()):
        # Hundreds of log lines would cover the screen. With a chosen level they may go elsewhere.
        set_up_log(style=invocation.settings.log_format, level=_QUIET)
    open_browser = browser if browser is not None else live and has_screen(os.environ, sys.platform)
    kept: AbstractContextManager[str]
    if (keep := choice.keep) is None:
        kept = tempfile.TemporaryDirectory(prefix="mistnet-demo-", ignore_cleanup_errors=True)
    else:
        try:
            keep.mkdir(parents=True, exist_ok=True)
            taken = (keep / FILE).exists()
        except OSError as error:
            raise typer.BadParameter(f"{keep} cannot be used: {error.strerror}", param_hint="--keep") from None
        if taken:
            raise typer.BadParameter(f"{keep / FILE} exists already; name another folder", param_hint="--keep")
        kept = nullcontext(str(keep.resolve()))
    with kept as name:
        folder = Path(name)
        if live:
            return await _watch_demo(invocation, choice, folder, browser=open_browser)
        app, world = _open(folder, choice, (0.0, 0.0))
        begun = time.monotonic()
        try:
            await _suggest(app, world)
            async with _dashboard(app, browser=open_browser) as url, app.worker(until_idle=True) as worker:
                if not invocation.out.as_json:
                    sys.stdout.write(f"the dashboard, while it collects: {url}\n")
                    sys.stdout.flush()
                await worker.run()
            report = await report_of(app, world, choice, time.monotonic() - begun, dashboard=url)
        finally:
            await app.database.close()
        invocation.out.show(report, *blocks(report))
        return 0 if report.complete else DISAGREES


async def _watch_demo(invocation: Invocation, choice: DemoChoice, folder: Path, *, browser: bool) -> int:
    """Collect the world on a terminal, and go on until Ctrl-C."""
    enough = asyncio.Event()

    def forget() -> None:
        if choice.keep is None:
            shutil.rmtree(folder, ignore_errors=True)

    with stopping(enough.set, meaning="the demo ends", at_once=forget) as stop:
        # A terminal that is closed sends SIGHUP, which else ends the process before the folder is removed.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.ask, "the terminal is gone")
        sys.stdout.write("making a simulated world ...\r")
        sys.stdout.flush()
        app, world = _open(folder, choice, _WATCHED_LATENCY)
        try:
            await _suggest(app, world)
            async with _dashboard(app, browser=browser) as url:
                await _work_watched(app, DemoScreen(app, world, url), enough)
            totals = await DashboardStore(app.database).totals()
        finally:
            await app.database.close()
    said = f"{counted(totals.posts, 'post')} of {counted(totals.users, 'user')} were collected. "
    said += f"They stay in {app.database.shown_url}" if choice.keep else "The database is removed; --keep DIR keeps it."
    invocation.out.show(None, said)
    return 0


class DemoScreen(Screen):
    """Lets the world's time pass once all is collected, and enqueues catch-ups."""

    def __init__(self, app: App, world: "DemoWorld", address: str) -> None:
        shown = commands(app.database.shown_url)
        super().__init__(app, program="mistnet demo", address=lambda: address, commands=shown)
        self._world = world
        self.title = "collecting a simulated world"
        self._started = time.monotonic()
        self._collected = False
        self._last_round = 0.0
        self._rounds = 0

    def now(self) -> datetime:
        return self._world.clock.now()

    def explain(self, status: Status) -> str:  # noqa: ARG002 (what an operator would need to know of a real source)
        if self._collected:
            return f"An hour passes each second; new posts come in. It is {self.now():%a %d %b %Y, %H:%M}."
        return COLLECTING

    async def money(self, status: Status) -> str:  # noqa: ARG002 (the demo shows all it has spent, not only today's)
        spent = sum(each.credits for each in await CallLedger(self._app.database).spent(By.SOURCE))
        return f"{spent:,} credits ({format_dollars(spent)})"

    async def accounts(self) -> tuple[Sequence[AccountProgress], Sequence[ScreenAccount]]:
        progress = await Coverage(self._app.database).accounts()
        store = TrackingStore(self._app.database, self._app.job_writer)
        by_handle = {each.handle: each for each in await store.suggestions(live_only=False)}
        by_user = {each.user_id: each for each in progress}
        suggested = [by_handle[handle] for handle in self._world.handles]
        return progress, [
            progress_line(by_user[each.user_id], each.handle) if each.user_id in by_user else suggestion_line(each)
            for each in suggested
        ]

    async def go_on(self, status: Status, progress: Sequence[AccountProgress]) -> None:
        now = time.monotonic()
        alive = any(kind.states.get(state) for kind in status.kinds for state in LIVE_STATES)
        if not self._collected and not alive:
            # All is collected: compare it with the world, then let the world's time run.
            wrong = await self._world.disagreements(self._app)
            self.title = f"collected in {now - self._started:.0f} s; " + (
                f"the world disagrees: {wrong[0]}" if wrong else "the world agrees that nothing is missing"
            )
            self._world.let_time_pass(_HOUR_PER_SECOND)
            self._collected, self._last_round = True, time.monotonic()
        if not self._collected or now - self._last_round < _CATCH_UP_SECONDS:
            return
        self._last_round = now
        self._rounds += 1
        with_profile = self._rounds % _PROFILE_ROUNDS == 0
        active = [each for each in progress if each.state is AccountState.ACTIVE]
        # Fetching the profile leads to a catch-up by itself, under the current handle.
        await self._app.enqueue(
            [
                args.relook(each.user_id)
                if with_profile or each.backfilled_at is None
                else args.catch_up(each.user_id, each.newest_post_id)
                for each in active
            ]
        )


async def _work_watched(app: App, watch: "DemoScreen", enough: asyncio.Event) -> None:
    async with app.worker() as worker:
        # Whichever ends first, by an error too, ends the others.
        watching = asyncio.create_task(watch.run(), name="watch")
        watching.add_done_callback(lambda _: enough.set())
        working = asyncio.create_task(worker.run(), name="worker")
        working.add_done_callback(lambda _: enough.set())
        # The scheduler visits shops again.
        leading = asyncio.create_task(app.scheduler().run(), name="scheduler")
        leading.add_done_callback(lambda _: enough.set())
        await enough.wait()
        watching.cancel()
        leading.cancel()
        worker.drain()
        await asyncio.wait([watching, leading, working])
        for task in (watching, leading, working):
            if not task.cancelled():
                task.result()  # raises its error


@asynccontextmanager
async def _dashboard(app: App, *, browser: bool) -> AsyncIterator[str]:
    """The dashboard on a free port of this machine, for as long as the block runs."""
    from mistnet.web.application import make_service  # noqa: PLC0415 (only those who want pages wait for them)

    listener = listen(_HERE, 0)
    with closing(listener):
        async with serving(make_service(app, host=_HERE), listener):
            url = url_of(listener)
            if browser:
                await asyncio.to_thread(webbrowser.open, url)
            yield url


def has_screen(environment: Mapping[str, str], platform: str) -> bool:
    """Whether a browser would open on the screen of the person at this terminal."""
    if "SSH_CONNECTION" in environment:
        return False
    return platform in ("darwin", "win32") or bool(environment.keys() & {"DISPLAY", "WAYLAND_DISPLAY"})


def _open(folder: Path, choice: DemoChoice, latency: tuple[float, float]) -> tuple[App, "DemoWorld"]:
    from mistnet.cli.demo_world import DemoWorld  # noqa: PLC0415 (only those who want a world wait for it)

    world = DemoWorld(seed=choice.seed, size=choice.size, faults=choice.faults, latency_seconds=latency)
    # All settings are given, so that none of the user's own is used, least of all a real key.
    defaults = {name: field.get_default() for name, field in Settings.model_fields.items()}
    url = f"sqlite:///{quote(str(folder / FILE))}"
    settings = Settings(**{**defaults, **_HURRIED, "database_url": url, "x_api_key": world.key})
    return App(settings, transports={"x": world.transport, "web": world.web}), world


async def _suggest(app: App, world: "DemoWorld") -> None:
    await ready(app.database, create=True)
    suggestions = [NewSuggestion(handle=handle) for handle in world.handles]
    tracking_store, now = TrackingStore(app.database, app.job_writer), app.database.clock.now()
    await tracking_store.suggest(suggestions, job=args.suggestion, now=now)


async def report_of(app: App, world: "DemoWorld", choice: DemoChoice, seconds: float, *, dashboard: str) -> DemoReport:
    disagreements = await world.disagreements(app)
    suggestions = await TrackingStore(app.database, app.job_writer).suggestions(live_only=False)
    accounts = Counter(str(each.state) for each in await Coverage(app.database).accounts())
    accounts["refused"] = sum(each.outcome == "refused" for each in suggestions)
    done = await app.inspector.finished(since=app.database.clock.now() - _EVER)
    totals = await DashboardStore(app.database).totals()
    spent = await CallLedger(app.database).spent(By.SOURCE)
    cost = sum(each.credits for each in spent)
    url = app.database.shown_url if choice.keep else None
    return DemoReport(
        seed=choice.seed,
        size=choice.size,
        faults=choice.faults,
        accounts=accounts,
        posts=totals.posts,
        native_retweets=totals.native_retweets,
        threads_walked=done.get(args.WALK, 0),
        users=totals.users,
        gone_upstream={"posts": totals.gone_posts, "users": totals.gone_users},
        products=totals.products,
        complete=not disagreements,
        disagreements=disagreements,
        calls=sum(each.calls for each in spent),
        failed_calls=sum(each.failures for each in spent),
        credits=cost,
        dollars=cost / CREDITS_PER_DOLLAR,
        seconds=round(seconds, 1),
        dashboard=dashboard,
        database_url=url,
        next=commands(url),
    )


def blocks(report: DemoReport) -> list[Block]:
    coverage = "complete: everything the world shows is stored" if report.complete else "; ".join(report.disagreements)
    gone = report.gone_upstream
    rows = [
        ("world", f"seed {report.seed}, {report.size}, faults: {report.faults}"),
        ("accounts", ", ".join(f"{count} {state}" for state, count in report.accounts.items())),
        ("posts", f"{report.posts:,}, of which {report.native_retweets:,} native retweets"),
        ("threads walked", f"{report.threads_walked:,}"),
        ("users", f"{report.users:,}"),
        ("gone upstream", f"{gone['posts']:,} posts and {gone['users']:,} users that others had answered"),
        ("products", f"{report.products:,} that posts link to, with their prices"),
        ("coverage", coverage),
        ("calls", f"{report.calls:,}, of which {report.failed_calls:,} failed"),
        ("spent", f"{report.credits:,} simulated credits ({format_dollars(report.credits)})"),
        ("time", f"{report.seconds:g} s"),
        ("dashboard", f"{report.dashboard} while it ran; `serve` opens it again"),
    ]
    title = "Look at it:" if report.database_url else "Run it again and look at it:"
    said = "\n".join([title, "", *(f"  {line}" for line in report.next)])
    return [Grid(title="the demo collected a simulated world", columns=("", ""), rows=rows), said]


def commands(url: str | None) -> list[str]:
    """What to type next: first the database, or how to keep one."""
    own = program_name()
    first = [f"{own} demo --keep mistnet-demo"] if url is None else []
    kept = url or f"sqlite:///mistnet-demo/{FILE}"
    return [*first, f"export MISTNET_DATABASE_URL={shlex.quote(kept)}", *(f"{own} {each}" for each in COMMANDS)]
