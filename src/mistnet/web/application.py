"""The web application: all routes, its lifespan, the limit of bodies, and security headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistnet import __version__
from mistnet.app import App
from mistnet.operations.health import HealthCheck, QueueGauges
from mistnet.web import openapi
from mistnet.web.api import (
    accounts,
    follows,
    ingests,
    items,
    jobs,
    links,
    monitoring,
    posts,
    price_watches,
    segments,
    sources,
)
from mistnet.web.auth import Authenticator
from mistnet.web.clients import is_loopback
from mistnet.web.errors import RequestRefused, add_error_handlers, internal_error
from mistnet.web.pages import add_pages
from mistnet.web.pages.dashboard import Dashboard

ROUTERS = (
    jobs.scrape_router,
    jobs.runs_router,
    accounts.router,
    accounts.suggestions_router,
    follows.users_router,
    follows.router,
    posts.router,
    posts.conversations_router,
    segments.router,
    links.router,
    links.products_router,
    price_watches.router,
    links.lineage_router,
    items.router,
    jobs.router,
    jobs.lanes_router,
    monitoring.router,
    accounts.feeds_router,
    sources.router,
    ingests.quarantine_router,
    monitoring.watching_router,
    ingests.router,
    ingests.webhooks_router,
    ingests.ifttt_router,
    monitoring.health_router,
    openapi.router,
)


# Bodies are read into memory whole.
MOST_BYTES: Final = 1024 * 1024
MOST_PUSHED_BYTES: Final = 8 * MOST_BYTES
"""A source pushes many posts at once. Its key is checked before its body is read."""

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def make_service(app: App, *, host: str | None = "127.0.0.1") -> FastAPI:
    """The API and the dashboard of an open app. `host` is where it listens; None is a Unix socket."""
    service = make_routes()
    bind(service, app, host=host)
    return service


def make_routes() -> FastAPI:
    """All routes, without an app. FastAPI takes most of a second to analyse them: tests make them once."""
    service = FastAPI(
        title="mistnet",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_life,
    )
    service.add_middleware(RequestLimits)
    add_error_handlers(service)
    for router in ROUTERS:
        service.include_router(router)
    add_pages(service)
    return service


def bind(service: FastAPI, app: App, *, host: str | None) -> None:
    """Make the routes serve this app."""
    service.state.mistnet = app
    service.state.authenticator = Authenticator(app, local=host is not None and is_loopback(host))
    service.state.health = HealthCheck(app)
    service.state.gauges = QueueGauges(app, service.state.health)
    service.state.closing = asyncio.Event()
    service.state.dashboard = Dashboard(app)


@asynccontextmanager
async def _life(service: FastAPI) -> AsyncIterator[None]:
    yield
    service.state.closing.set()
    await service.state.health.close()
    await service.state.dashboard.close()


class RequestLimits:
    """Middleware: refuses bodies that are too large, whether announced or not, and adds security headers."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        most = MOST_PUSHED_BYTES if scope["path"].startswith("/webhooks/") else MOST_BYTES
        announced = Headers(scope=scope).get("content-length", "")
        # Cut: Python refuses to convert thousands of digits.
        too_large = announced.isascii() and announced.isdecimal() and int(announced[:20]) > most
        received = 0
        begun = False  # once a response has begun, no other can be sent

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if too_large or received > most:
                # Closed: the rest of the body would be read as the next request.
                raise RequestRefused(413, f"a request may have {most:,} bytes at most", headers={"Connection": "close"})
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                # Only assets may be cached: everything else shows what was collected, or belongs to one caller.
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._inner(scope, receive_counted, send_with_headers)
        except Exception as error:  # noqa: BLE001 (the last resort: a response must not show internals)
            answer = await internal_error(Request(scope), error)
            if not begun:
                await answer(scope, receive, send_with_headers)
