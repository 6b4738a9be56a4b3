"""The demo: a simulated world, collected in one process."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote, urlsplit

import typer
from rich.console import Console

from mistnet.app import App
from mistnet.cli import logs
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.demo.report import FILE, Choice, blocks, commands, report_of
from mistnet.cli.demo.watch import DemoWatcher
from mistnet.cli.listening import listen, serving, url_of
from mistnet.cli.processes import stopping
from mistnet.kit.migrate import ready
from mistnet.kit.text import counted
from mistnet.kit.transport import Unanswered
from mistnet.operations.overview import Overview
from mistnet.settings import Settings
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import ProductId
from mistnet.shops.store.link_pages import MentionPages
from mistnet.shops.store.product_pages import ProductFilter, ProductPages
from mistnet.sim.service import NeverAnswers
from mistnet.sim.shelf import SHELF, SimProduct
from mistnet.sim.shops import ShopService
from mistnet.social.jobs import args
from mistnet.social.model import PostId
from mistnet.social.store.tracking import NewSuggestion, TrackingStore
from mistnet.sources.web.port import Readable, WebAnswer
from mistnet.sources.web.safe_url import SafeUrl

if TYPE_CHECKING:
    from mistnet.cli.demo.world import DemoWorld


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
"""What is minutes with a real source is moments here. The demo itself asks for new posts, in simulated time."""


@shared_options
async def demo(
    invocation: Invocation,
    *,
    seed: Annotated[int, typer.Option("--seed", help="The world and its faults follow from it.")] = 7,
    size: Annotated[
        Literal["tiny", "small"], typer.Option("--size", metavar="tiny|small", help="600 or 8,000 posts.")
    ] = "small",
    faults: Annotated[
        Literal["none", "all"],
        typer.Option("--faults", metavar="none|all", help="Whether calls go wrong now and then, in every known way."),
    ] = "none",
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the database in this folder; else it is removed."),
    ] = None,
    browser: Annotated[
        bool | None,
        typer.Option("--browser/--no-browser", help="Open the dashboard; by default on a terminal with a screen."),
    ] = None,
) -> int:
    """Collect a simulated world in one process. Needs no key, asks nobody, leaves nothing behind.

    On a terminal it shows what happens and stays until Ctrl-C, while simulated time goes on. Elsewhere it collects
    everything, prints a report and ends; exit code 1 if the world disagrees. The dashboard is there meanwhile.
    """
    live = invocation.out.on_terminal and _can_draw()
    _hush(invocation.settings, live=live)
    choice = Choice(seed=seed, size=size, faults=faults, keep=keep)
    wanted = browser if browser is not None else live and has_screen(os.environ, sys.platform)
    with _folder(keep) as folder:
        return await (_watched if live else _reported)(invocation, choice, folder, browser=wanted)


async def _reported(invocation: Invocation, choice: Choice, folder: Path, *, browser: bool) -> int:
    """Everything the world has, then the report."""
    app, world = _opened(folder, choice, (0.0, 0.0))
    begun = time.monotonic()
    try:
        await _suggest(app, world)
        async with _dashboard(app, browser=browser) as url, app.worker(until_idle=True) as worker:
            if not invocation.out.as_json:
                sys.stdout.write(f"the dashboard, while it collects: {url}\n")
                sys.stdout.flush()
            await worker.run()
        report = await report_of(app, world, choice, time.monotonic() - begun, dashboard=url)
    finally:
        await app.database.close()
    invocation.out.show(report, *blocks(report))
    return 0 if report.complete else DISAGREES


async def _watched(invocation: Invocation, choice: Choice, folder: Path, *, browser: bool) -> int:
    """The same before somebody's eyes, and then on until he has seen enough."""
    enough = asyncio.Event()
    with stopping(enough.set, meaning="the demo ends", at_once=lambda: _forget(folder, choice)) as stop:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.ask, "the terminal is gone")
        sys.stdout.write("making a simulated world ...\r")
        sys.stdout.flush()
        app, world = _opened(folder, choice, _WATCHED_LATENCY)
        try:
            await _suggest(app, world)
            async with _dashboard(app, browser=browser) as url:
                await _work_watched(app, DemoWatcher(app, world, commands(app.database.shown_url), url), enough)
            totals = await Overview(app.database).totals()
        finally:
            await app.database.close()
    said = f"{counted(totals.posts, 'post')} of {counted(totals.users, 'user')} were collected. "
    said += f"They stay in {app.database.shown_url}" if choice.keep else "The database is removed; --keep DIR keeps it."
    invocation.out.show(None, said)
    return 0


async def _work_watched(app: App, watch: DemoWatcher, enough: asyncio.Event) -> None:
    async with app.worker() as worker:
        watching = asyncio.create_task(watch.run(), name="watch")
        watching.add_done_callback(lambda _: enough.set())
        working = asyncio.create_task(worker.run(), name="worker")
        working.add_done_callback(lambda _: enough.set())
        # One process leads and visits shops again; this is the only one there is.
        leading = asyncio.create_task(app.scheduler().run(), name="scheduler")
        leading.add_done_callback(lambda _: enough.set())
        await enough.wait()
        watching.cancel()
        leading.cancel()
        worker.drain()
        await asyncio.wait([watching, leading, working])
        for task in (watching, leading, working):
            if not task.cancelled():
                task.result()  # what went wrong comes out here


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
    """Whether a browser would open where the person is who looks at this terminal."""
    if "SSH_CONNECTION" in environment:
        return False
    return platform in ("darwin", "win32") or bool(environment.keys() & {"DISPLAY", "WAYLAND_DISPLAY"})


def _opened(folder: Path, choice: Choice, latency: tuple[float, float]) -> tuple[App, "DemoWorld"]:
    from mistnet.cli.demo.world import DemoWorld  # noqa: PLC0415 (only those who want a world wait for it)

    world = DemoWorld(seed=choice.seed, size=choice.size, faults=choice.faults, latency_seconds=latency)
    return App(_settings(folder, world.key), transports={"x": world.transport, "web": world.web}), world


def _settings(folder: Path, key: str) -> Settings:
    """Every setting is given, so that none of somebody's own, least of all his key, has a part in it."""
    defaults = {name: field.get_default() for name, field in Settings.model_fields.items()}
    url = f"sqlite:///{quote(str(folder / FILE))}"
    return Settings(**{**defaults, **_HURRIED, "database_url": url, "x_api_key": key})


async def _suggest(app: App, world: "DemoWorld") -> None:
    await ready(app.database, create=True)
    wanted = [NewSuggestion(handle=handle) for handle in world.handles]
    tracking_store, now = TrackingStore(app.database, app.job_writer), app.database.clock.now()
    await tracking_store.suggest(wanted, job=args.suggestion, now=now)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="mistnet-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        taken = (keep / FILE).exists()
    except OSError as error:
        raise typer.BadParameter(f"{keep} cannot be used: {error.strerror}", param_hint="--keep") from None
    if taken:
        raise typer.BadParameter(f"{keep / FILE} exists already; name another folder", param_hint="--keep")
    yield keep.resolve()


def _forget(folder: Path, choice: Choice) -> None:
    if choice.keep is None:
        shutil.rmtree(folder, ignore_errors=True)


def _can_draw() -> bool:
    return not Console().is_dumb_terminal and "utf" in (sys.stdout.encoding or "").lower()


def _hush(settings: Settings, *, live: bool) -> None:
    """Hundreds of log lines would hide what is shown; who wants them asks for a level, and keeps them apart."""
    if settings.log_level == "INFO" or (live and sys.stderr.isatty()):
        logs.set_up(style=settings.log_format, level=_QUIET)


_PAGE = 500


class ShopTransport:
    """Calls the shops in this process; what would be a silent or a cut connection is unanswered."""

    def __init__(self, shops: ShopService) -> None:
        self._shops = shops

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        asked = urlsplit(target.url)
        try:
            answer = self._shops.handle(target.host, asked.path, asked.query, headers)
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        if answer.cut:
            raise Unanswered("the answer was cut short")
        unread = readable(answer.status, answer.headers)
        return WebAnswer(
            status=answer.status, headers=answer.headers, body=b"" if unread else answer.body, unread=unread
        )


async def unlike_the_shops(app: App, linked: Mapping[SimProduct, set[int]], at: datetime) -> list[str]:
    """What posts link to and is no product here, has another price, or lacks some of its posts, in words."""
    page = await ProductPages(app.database).list(ProductFilter(limit=len(SHELF)))
    found = {product.url: product for product in page.products}
    wrong = []
    for thing, post_ids in linked.items():
        product = found.get(thing.canonical)
        if product is None:
            wrong.append(f"{thing.canonical} is linked, and no product of it is stored")
            continue
        if (product.amount, product.currency) != (thing.price(at), thing.currency):
            asks = f"{thing.currency} {thing.price(at)}, not {product.currency} {product.amount}"
            wrong.append(f"{thing.canonical} costs {asks}")
        lost = {PostId(each) for each in post_ids} - {each async for each in _mentioned(app, product.id)}
        if lost:
            wrong.append(f"{len(lost):,} posts that link to {thing.canonical} are not told with it, first {min(lost)}")
    return wrong


async def _mentioned(app: App, product_id: ProductId) -> AsyncIterator[PostId]:
    mentions = MentionPages(app.database)
    reach, before = await mentions.reach_of_product(product_id), None
    while True:
        page = await mentions.page(reach, before=before, limit=_PAGE)
        for post in page.posts:
            yield post.post_id
        before = page.next
        if before is None:
            return
