"""The web application: all routes and middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from mistnet import __version__
from mistnet.app import App
from mistnet.operations.health import HealthCheck, QueueGauges
from mistnet.web import openapi
from mistnet.web.api import (
    accounts,
    conversations,
    feeds,
    follows,
    health,
    ingests,
    items,
    jobs,
    lanes,
    lineage,
    links,
    monitoring,
    posts,
    price_watches,
    products,
    runs,
    segments,
    sources,
    webhooks,
)
from mistnet.web.auth import Authenticator, is_loopback
from mistnet.web.errors import add_error_handlers
from mistnet.web.pages import add_pages
from mistnet.web.pages.dashboard import Dashboard
from mistnet.web.request_limits import RequestLimits

ROUTERS = (
    runs.scrape_router,
    runs.router,
    accounts.router,
    accounts.suggestions_router,
    posts.users_router,
    follows.router,
    posts.router,
    conversations.router,
    segments.router,
    links.router,
    products.router,
    price_watches.router,
    lineage.router,
    items.router,
    jobs.router,
    lanes.router,
    monitoring.router,
    feeds.router,
    sources.router,
    ingests.quarantine_router,
    monitoring.watching_router,
    ingests.router,
    webhooks.router,
    webhooks.ifttt_router,
    health.router,
    openapi.router,
)


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
