"""The commands that run mistnet as a service: `serve` for API, dashboard and scheduler; `up` adds a worker."""

import asyncio
import io
import sys
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from loguru import logger

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, program_name, set_up_log, shared_options
from mistnet.cli.input import flag, option
from mistnet.cli.listening import ListenAddress, limits_of, serving, url_of
from mistnet.cli.output import document
from mistnet.cli.processes import share_one_heap, stopping
from mistnet.cli.work import LOOPBACK, serve_metrics, wanted_lanes
from mistnet.governor.model import X_SOURCE
from mistnet.operations.schedule.scheduler import Scheduler
from mistnet.queue.upkeep import watched
from mistnet.queue.worker import Worker
from mistnet.settings import Settings
from mistnet.sources.x.source import NO_CAP
from mistnet.web.auth import LINK_LASTS
from mistnet.web.errors import NoToken
from mistnet.web.tokens import Tokens, is_guessable

if TYPE_CHECKING:
    from mistnet.cli.screen import Screen

_NEXT: Final = ("status", "coverage", "spend", "search WORDS", "export posts --output posts.csv")
_EASY_TO_GUESS: Final = (
    "The admin token is easy to guess. Set MISTNET_ADMIN_TOKEN to a long random text; `openssl rand -hex 32` makes one."
)


class ListenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen: at an address, or on a Unix socket."""

    host: Annotated[str | None, option("--host", "ADDRESS", "The address to listen on; setting `host`.")] = None
    port: Annotated[
        int | None, option("--port", None, "The port; 0 takes a free one; setting `port`.", min=0, max=65_535)
    ] = None
    socket_file: Annotated[
        Path | None,
        option("--socket", "FILE", "Listen on a Unix socket instead, for its owner alone; setting `socket`."),
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", min=0, max=65_535, help="Serve Prometheus metrics on this port too, without a token."
        ),
    ] = None
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", metavar="ADDRESS", help="The address to serve them on.")
    ] = LOOPBACK

    def address(self, settings: Settings) -> ListenAddress:
        """The address from flags and settings. A flag of one kind overrides a setting of the other."""
        by_port = self.host is not None or self.port is not None
        if self.socket_file is not None and by_port:
            raise typer.BadParameter("give either --socket, or --host and --port", param_hint="--socket")
        file = self.socket_file or (None if by_port else settings.socket)
        if file is not None:
            return ListenAddress(file=file.absolute())
        return ListenAddress(
            host=settings.host if self.host is None else self.host,
            port=settings.port if self.port is None else self.port,
        )


@shared_options
async def serve(invocation: Invocation, *, listen: ListenOptions) -> None:
    """Serve API and dashboard, and schedule. `mistnet work` does the work.

    SIGTERM or Ctrl-C lets open requests finish; a second one stops at once.
    """
    share_one_heap()
    async with open_app(invocation.settings, patient=True) as app:
        await _run(invocation, app, listen, working=False)


@shared_options
async def up(
    invocation: Invocation,
    *,
    listen: ListenOptions,
    concurrency: Annotated[
        int | None, option("--concurrency", None, "How many handlers run at once.", min=1, max=10_000)
    ] = None,
    log: Annotated[bool, flag("--log", "Write log lines also on a terminal, and draw no screen.")] = False,
) -> None:
    """Run everything here: worker, scheduler, API and dashboard.

    On a terminal it shows accounts with their progress, money, and posts as they arrive; elsewhere, log lines.
    SIGTERM or Ctrl-C lets running jobs and open requests finish; a second one stops at once.
    """
    share_one_heap()
    async with open_app(invocation.settings, create=True, patient=True) as app:
        # Refuses to begin without a key, as `work` does.
        wanted_lanes(app, None)
        await _run(
            invocation, app, listen, working=True, concurrency=concurrency, draws=not log and invocation.out.can_draw
        )


async def _run(
    invocation: Invocation,
    app: App,
    listen: ListenOptions,
    *,
    working: bool,
    concurrency: int | None = None,
    draws: bool = False,
) -> None:
    from mistnet.web.application import make_service  # noqa: PLC0415 (slow to load; other commands do without)

    place = listen.address(app.settings)
    await require_token(app, place)
    scheduler = app.scheduler()
    stop = asyncio.Event()
    grace = f"; running jobs may finish within {app.settings.grace_seconds:g} s" if working else ""
    meaning = f"open requests may finish{grace}"
    with place.opened() as listener, watched(app.watchdog_seconds), stopping(stop.set, meaning=meaning):
        async with AsyncExitStack() as parts:
            worker = await parts.enter_async_context(app.worker(concurrency=concurrency)) if working else None
            if not working:
                await parts.enter_async_context(app.dispatching.opened(scheduler.holder))
            service = make_service(app, host=None if place.file else place.host)
            await parts.enter_async_context(serve_metrics(app, listen.metrics_port, listen.metrics_host))
            server = await parts.enter_async_context(serving(service, listener, limits_of(app.settings)))
            address = str(place.file) if place.file else url_of(listener)
            link = f"{address}/login/{service.state.authenticator.links.make()}" if invocation.out.on_terminal else None
            if place.file:
                invocation.out.show(document(socket=address), f"mistnet listens on {address}")
            else:
                invocation.out.show(document(url=address), f"mistnet is at {address}")
                if link:
                    minutes = LINK_LASTS.total_seconds() / 60
                    # Written directly: a table would break the link into lines on a narrow terminal.
                    sys.stdout.write(f"To log in, open this link within {minutes:g} minutes. It works once:\n{link}\n")
                    sys.stdout.flush()
            if app.settings.admin_token and is_guessable(app.settings.admin_token.get_secret_value()):
                logger.warning(_EASY_TO_GUESS)
            if working and app.settings.x_api_key and not await app.sources.is_capped(X_SOURCE):
                logger.warning(NO_CAP)
            screen = _screen(app, address, None if place.file else link) if draws else None
            await _run_until_stopped(app.settings, stop, scheduler, server, worker, screen)


def _screen(app: App, address: str, link: str | None) -> "Screen":
    """The screen of `up`. Warnings stand on it, unless they go to a file."""
    from mistnet.cli.screen import Screen  # noqa: PLC0415 (only people at a terminal wait for it)

    until = time.monotonic() + LINK_LASTS.total_seconds()
    screen = Screen(
        app,
        program="mistnet up",
        address=lambda: link if link and time.monotonic() < until else address,
        commands=[f"{program_name()} {each}" for each in _NEXT],
    )
    if sys.stderr.isatty():
        set_up_log(style="text", level="WARNING", secrets=app.secrets, stream=NoticeStream(screen.notices))
    return screen


class NoticeStream(io.StringIO):
    """Where log lines go while the screen is drawn: the latest stand on it."""

    def __init__(self, notices: deque[str]) -> None:
        super().__init__()
        self._notices = notices

    def write(self, text: str) -> int:
        self._notices.extend(text.splitlines())
        return len(text)


async def _run_until_stopped(
    settings: Settings,
    stop: asyncio.Event,
    scheduler: Scheduler,
    server: asyncio.Task[None],
    worker: Worker | None,
    screen: "Screen | None",
) -> None:
    """Run until `stop` is set, or until one part ends unexpectedly: then the others end too."""
    parts = [asyncio.create_task(stop.wait(), name="stop"), asyncio.create_task(scheduler.run(), name="scheduler")]
    drawing = asyncio.create_task(screen.run(), name="screen") if screen else None
    parts += [drawing] if drawing else []
    working = [asyncio.create_task(worker.run(), name="worker")] if worker else []
    await asyncio.wait([*parts, server, *working], return_when=asyncio.FIRST_COMPLETED)
    for ended in parts:
        ended.cancel()
    if worker:
        worker.drain()
    if drawing:
        await asyncio.wait([drawing])
        set_up_log(style=settings.log_format, level=settings.log_level, secrets=settings.secrets)
        sys.stdout.write("Stopping: what runs may finish. Ctrl-C again stops at once.\n")
        sys.stdout.flush()
    await asyncio.wait([*parts, *working])
    for part in (*parts, *working):
        if not part.cancelled():
            part.result()
    if worker:
        logger.info("{settled:,} jobs settled", settled=worker.ended_count)


async def require_token(app: App, place: ListenAddress) -> None:
    """Refuse to listen for other machines without a token: the service would be open to all of them."""
    from mistnet.web.clients import is_loopback  # noqa: PLC0415 (as above)

    proxied = bool(app.settings.trusted_proxies)
    if not proxied and (place.file or is_loopback(place.host)):
        return
    if not app.settings.admin_token and not await Tokens(app.database).any_valid():
        raise NoToken(place.host, proxied=proxied)
