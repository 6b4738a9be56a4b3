"""The web application: all routes and their OpenAPI document, its lifespan, the limit of bodies, security headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistnet import __version__
from mistnet.app import App
from mistnet.operations.health import HealthCheck, QueueGauges
from mistnet.web.api import accounts, follows, ingests, items, jobs, links, monitoring, posts, segments, sources
from mistnet.web.auth import READS, Authenticator
from mistnet.web.clients import is_loopback
from mistnet.web.errors import ErrorDocument, RequestRefused, add_error_handlers, internal_error, refusals
from mistnet.web.pages import add_pages
from mistnet.web.pages.dashboard import Dashboard
from mistnet.web.pages.render import ReaderPage

docs_router = APIRouter(include_in_schema=False, dependencies=READS)

_REF: Final = {"$ref": "#/components/schemas/ErrorDocument"}
_ABOUT: Final = (
    "Everything that mistnet collected, and everything that an operator does. Ids are strings, times are UTC. "
    "Lists come in pages: `next` is the cursor of the next page. Every error has the same shape."
)


def describe(service: FastAPI, platforms: Sequence[str]) -> Mapping[str, Any]:
    """Make the document once. Invalid input is 400 here, and errors of the middleware are listed at every route."""
    if service.openapi_schema is None:
        found = get_openapi(title=service.title, version=service.version, description=_ABOUT, routes=service.routes)
        error = ErrorDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        found["components"]["schemas"] |= {**error.pop("$defs"), "ErrorDocument": error}
        # The framework describes its own errors, which our handlers replace.
        for unused in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(unused, None)
        for path, method, operation in operations(found):
            _add_refusals(path, method, operation)
            # Name the platforms that a query may ask for: which there are depends on the app's sources.
            for parameter in operation.get("parameters", ()):
                if (parameter["in"], parameter["name"]) == ("query", "platform"):
                    for choice in parameter["schema"]["anyOf"]:
                        if choice["type"] == "string":
                            del choice["pattern"]
                            choice["enum"] = list(platforms)
        service.openapi_schema = found
    return service.openapi_schema


def operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each operation with its path and method."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def _add_refusals(path: str, method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if answers.get("422", {}).get("description") == "Validation Error":
        del answers["422"]  # the framework's own, which never occurs
    statuses = []
    if "{" in path and method != "PUT":
        statuses.append(404)  # what the path names may not exist, unless the request creates it
    if "parameters" in operation or "requestBody" in operation:
        statuses.append(400)
    if "requestBody" in operation:
        statuses += [413, 415] if path.startswith("/api") else [413]
    if operation.get("security"):
        statuses += [401] if path.startswith("/webhooks") else [401, 403, 429]
    # Every other route needs the database, which may not answer.
    if path != "/healthz":
        statuses.append(503)
    for status, answer in refusals(*statuses).items():
        content = {"application/json": {"schema": _REF}}
        # A route that describes this status itself keeps its own words.
        answers.setdefault(str(status), {"description": answer["description"], "content": content})


@docs_router.get("/api/openapi.json")
async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(describe(request.app, request.app.state.mistnet.platforms))


@docs_router.get("/api/docs")
async def docs(page: ReaderPage, request: Request) -> Response:
    """Every operation, grouped by its tag. Groups are closed: there are over a hundred operations."""
    schema = describe(request.app, page.app.platforms)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for path, method, operation in operations(schema):
        answers = [
            (status, answer["description"], _field_names(_json_schema(answer), schema))
            for status, answer in operation["responses"].items()
        ]
        sent = _field_names(_json_schema(operation.get("requestBody", {})), schema)
        about = {"path": path, "method": method, "operation": operation, "sent": sent, "answers": answers}
        groups.setdefault(operation.get("tags", ["other"])[0], []).append(about)
    return page.render("api.html", about=schema["info"]["description"], groups=groups)


def _json_schema(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = content.get("content", {}).get("application/json", {}).get("schema", {})
    return next((choice for choice in found.get("anyOf", ()) if "$ref" in choice), found)


def _field_names(described: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The names of an object's fields."""
    if "$ref" in described:
        described = schema["components"]["schemas"][described["$ref"].rpartition("/")[2]]
    return ", ".join(described.get("properties", ()))


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
    items.watches_router,
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
    docs_router,
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
