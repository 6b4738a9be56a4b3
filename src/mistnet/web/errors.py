"""Errors of the web application, and their responses: one JSON shape for programs, a page for browsers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi.routing import iter_route_contexts
from loguru import logger
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from mistnet.graph.segments.model import BadSegment
from mistnet.kit.errors import (
    Conflict,
    DatabaseError,
    DatabaseNotMigrated,
    DatabaseTooNew,
    DatabaseTooOld,
    MistnetError,
    Nonexistent,
    UsageError,
)
from mistnet.kit.text import counted, redact
from mistnet.operations.runs.model import BadRun
from mistnet.prices.model import BadItem
from mistnet.queue.errors import NotNow, WorkError
from mistnet.social.errors import BadFeed, BadHandles, BadSearch
from mistnet.social.ingests import NotReturned


class NoToken(UsageError):
    """The service would be reachable for others without any token."""

    def __init__(self, host: str, *, proxied: bool = False) -> None:
        how = "through your trusted_proxies" if proxied else f"at {host}"
        instead = "" if proxied else ", or leave out --host to serve this machine alone"
        super().__init__(
            f"others can reach mistnet {how} and there is no token yet: make one with `mistnet tokens add NAME "
            f"--scope admin`, or set MISTNET_ADMIN_TOKEN{instead}"
        )
        self.host = host


class TokenNotFound(UsageError):
    """No token has this id, or it was revoked."""

    def __init__(self, token_id: int) -> None:
        super().__init__(f"there is no valid token {token_id}; `mistnet tokens list` shows them all")
        self.token_id = token_id


T = TypeVar("T")
RETRY_SECONDS: Final = 5
# A list of thousands of invalid entries must not make an answer of megabytes.
_LISTED: Final = 100
_CODES: Final = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    422: "not_returned",
    429: "too_many_requests",
    500: "internal_error",
    502: "source_at_fault",
    503: "unavailable",
}
# The first that fits counts, so the errors that others inherit from come last.
_STATUSES: Final[Mapping[type, int]] = {
    Nonexistent: 404,
    Conflict: 409,
    UsageError: 400,
    NotReturned: 422,
    NotNow: 503,
    WorkError: 502,
    DatabaseError: 503,
}


class FieldProblem(BaseModel):
    """What is wrong with one field of the request."""

    field: str
    problem: str


class Fault(BaseModel):
    code: str
    message: str
    fields: list[FieldProblem]


class ErrorDocument(BaseModel):
    """The shape of every error response."""

    error: Fault


class RequestRefused(HTTPException):
    """An error response that names the fields at fault."""

    def __init__(
        self, status: int, message: str, fields: Sequence[FieldProblem] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.fields = fields


class BadInput(RequestRefused):
    def __init__(self, fields: Sequence[FieldProblem]) -> None:
        super().__init__(400, "the request is not valid", fields)


class NotFound(RequestRefused):
    def __init__(self, what: str) -> None:
        super().__init__(404, f"there is no {what}")


def require(found: T | None, what: str) -> T:
    """The value; 404 if there is none."""
    if found is None:
        raise NotFound(what)
    return found


class Unauthorized(RequestRefused):
    def __init__(self) -> None:
        super().__init__(
            401,
            "send a valid token as `Authorization: Bearer mn_…`; `mistnet tokens add NAME` makes one",
            headers={"WWW-Authenticate": 'Bearer realm="mistnet"'},
        )


class NotAllowed(RequestRefused):
    def __init__(self, why: str) -> None:
        super().__init__(403, why)


class TooOften(RequestRefused):
    def __init__(self, seconds: int) -> None:
        problem = f"too many failed tries: wait {counted(seconds, 'second')}, then try again"
        super().__init__(429, problem, headers={"Retry-After": str(seconds)})


class LogInFirst(Exception):
    """A page was requested without a session."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's documentation: its error responses."""
    return {each: {"model": ErrorDocument, "description": HTTPStatus(each).phrase} for each in statuses}


ErrorPage = Callable[[Request, int, str], Awaitable[Response]]
"""Makes the page that shows an error; kept as `service.state.error_page`."""


def add_error_handlers(service: FastAPI) -> None:
    service.add_exception_handler(RequestValidationError, handle_invalid)
    service.add_exception_handler(HTTPException, handle_http)
    service.add_exception_handler(MistnetError, handle_known)
    service.add_exception_handler(LogInFirst, handle_log_in)


async def handle_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for it)
    problems = []
    for each in error.errors()[:_LISTED]:
        # Without the values: one may be a secret.
        place, problem = [str(part) for part in each["loc"]], str(each["msg"])
        field = ".".join(place[1:] if len(place) > 1 else place)
        if each["type"] == "json_invalid":
            field, problem = "body", "the body is not valid JSON"
        problems.append(FieldProblem(field=field, problem=problem[:1].lower() + problem[1:]))
    return await error_response(request, 400, "the request is not valid", problems)


async def handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    fields = error.fields if isinstance(error, RequestRefused) else ()
    headers = error.headers
    if error.status_code == 405:
        # The framework lists only the methods of the first route with this path.
        routes = iter_route_contexts(request.app.routes)
        own = [route for route in routes if route.methods and route.path_regex.match(request.url.path)]
        headers = {"Allow": ", ".join(sorted({method for route in own for method in route.methods or ()}))}
    return await error_response(request, error.status_code, str(error.detail), fields, headers)


async def handle_known(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
    # An error may quote a URL or an answer that contains a key.
    message = redact(str(error), request.app.state.mistnet.secrets)
    if status >= 500:
        logger.warning("{path} failed: {problem}", path=_path(request), problem=message)
    if isinstance(error, DatabaseError):
        # Only the log may have the database's address, which the error's own message contains.
        message = "the database does not answer; try again, nothing was lost"
        if isinstance(error, DatabaseNotMigrated | DatabaseTooNew | DatabaseTooOld):
            message = "the database has the schema of another version of mistnet; its log says what to do"
        return await error_response(request, status, message, headers={"Retry-After": str(RETRY_SECONDS)})
    return await error_response(request, status, message, _fields(error))


async def handle_log_in(request: Request, error: Exception) -> Response:
    assert isinstance(error, LogInFirst)  # noqa: S101
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    return RedirectResponse("/login", status_code=303)


def _fields(error: Exception) -> Sequence[FieldProblem]:  # noqa: PLR0911 (one for each error)
    """The fields that an error is about, if it knows them."""
    match error:
        case BadHandles(problems=problems):
            return [FieldProblem(field="usernames", problem=str(each)) for each in problems]
        case BadRun(field=field, problem=problem):
            return [FieldProblem(field=field, problem=problem)]
        case BadFeed(problem=problem):
            return [FieldProblem(field="handles", problem=problem)]
        case BadSegment(problem=problem):
            return [FieldProblem(field="rule", problem=problem)]
        case BadItem(problems=wrong):
            return [FieldProblem(field=field, problem=problem) for field, _, problem in wrong]
        case BadSearch(problem=problem):
            return [FieldProblem(field="q", problem=problem)]
        case _:
            return ()


async def internal_error(request: Request, error: Exception) -> Response:
    """The last resort: the log has the details of a bug, the response has none."""
    secrets: Sequence[str] = request.app.state.mistnet.secrets
    logger.error("{path} failed: {problem}", path=_path(request), problem=redact(repr(error), secrets))
    return await error_response(request, 500, "this is a bug in mistnet; its log has the details")


def _path(request: Request) -> str:
    """The path, cut for the log: a client can send one of 60,000 characters."""
    return request.url.path[:200]


async def error_response(
    request: Request,
    status: int,
    message: str,
    fields: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The error as JSON, or as a page for browsers."""
    page: ErrorPage = request.app.state.error_page
    wants_json = request.url.path.startswith(("/api", "/webhooks"))
    if wants_json or "text/html" not in request.headers.get("accept", ""):
        code = _CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")
        fault = Fault(code=code, message=message, fields=list(fields))
        return JSONResponse(ErrorDocument(error=fault).model_dump(), status, headers)
    response = await page(request, status, message)
    response.headers.update(headers or {})
    return response
