"""The dashboard: its pages, navigation and assets, how to log in and out, and the page that shows an error."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Form, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from mistnet.web.auth import COOKIE, Authenticator, Reader
from mistnet.web.dependencies import part
from mistnet.web.errors import RequestRefused
from mistnet.web.pages import accounts, dashboard, downloads, jobs, overview, posts, products, segments, sources
from mistnet.web.pages.dashboard import remember_version
from mistnet.web.pages.render import STATIC, Entry, Tab, render_page

log_in_router = APIRouter(include_in_schema=False)
_MODULES: Final = (
    overview,
    accounts,
    posts,
    segments,
    products,
    jobs,
    sources,
    downloads,
    dashboard,
)
ENTRIES: Final = (
    Entry("Overview", (Tab("/", "Overview"),)),
    Entry("Accounts", (Tab("/accounts", "Accounts", also=("/conversations", "/people")),)),
    Entry("Search", (Tab("/search", "Search"),)),
    Entry("Network", (Tab("/segments", "Segments"), Tab("/feeds", "Feeds"))),
    Entry(
        "Prices",
        (Tab("/products", "Products"), Tab("/items", "Items"), Tab("/links", "Links"), Tab("/watches", "Watches")),
    ),
    Entry(
        "Operations",
        (
            Tab("/jobs", "Jobs"),
            Tab("/lanes", "Lanes"),
            Tab("/sources", "Sources"),
            Tab("/runs", "Runs"),
            Tab("/monitoring", "Monitoring"),
            Tab("/spend", "Spend"),
            Tab("/alerts", "Alerts"),
        ),
    ),
)
_TITLES: Final = {
    400: "That cannot be used",
    403: "Not allowed",
    404: "Nothing here",
    409: "Not now",
    429: "Too often",
    503: "The database does not answer",
}
_LINK_GONE: Final = (
    "This link was used or has expired. Log in with a token, or restart `mistnet up` or `mistnet serve` "
    "on a terminal to get another link."
)
Authentication = Annotated[Authenticator, Depends(part("authenticator"))]


def add_pages(service: FastAPI) -> None:
    """Add the dashboard's pages and assets."""
    service.state.entries = ENTRIES
    service.state.error_page = error_page
    service.mount("/static", _Assets(directory=STATIC), name="static")
    for router in (*(module.router for module in _MODULES), log_in_router):
        service.include_router(router, dependencies=[Depends(remember_version)])


class _Assets(StaticFiles):
    """Static files. Those with a version in their URL change their URL with their content: browsers cache them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        versioned = b"v=" in scope.get("query_string", b"")
        # Assets without a version keep their URL when they change: browsers ask whether they did.
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if versioned else "no-cache"
        return response


async def error_page(request: Request, status: int, message: str) -> Response:
    """An error as a page, with the navigation for those who may read pages."""
    caller: Any = getattr(request.state, "caller", None)
    if caller is None and status < 500:
        caller = await request.app.state.authenticator.recognize(request)
    title = _TITLES.get(status, "Something went wrong" if status >= 500 else "That did not work")
    if status == 404 and message == HTTPStatus.NOT_FOUND.phrase:
        message = "There is no page at this address."
    return render_page(request, "error.html", caller, status=status, code=status, title=title, message=message)


@log_in_router.get("/login")
async def log_in_page(request: Request) -> Response:
    return render_page(request, "login.html", None, problem=None)


@log_in_router.post("/login")
async def log_in(
    request: Request, authenticator: Authentication, token: Annotated[str, Form(max_length=500)] = ""
) -> Response:
    try:
        cookie = await authenticator.log_in(request, token.strip())
    except RequestRefused as refusal:
        problem = "This token is not valid, or was revoked." if refusal.status_code == 401 else str(refusal.detail)
        response = render_page(request, "login.html", None, status=refusal.status_code, problem=problem)
        response.headers.update(refusal.headers or {})
        return response
    return _start_session(request, authenticator, cookie)


@log_in_router.get("/login/{secret}")
async def log_in_by_link(request: Request, authenticator: Authentication, secret: str) -> Response:
    """The one-time link that `up` and `serve` print on a terminal."""
    cookie = await authenticator.log_in_by_link(request, secret)
    if cookie is None:
        return render_page(request, "login.html", None, status=401, problem=_LINK_GONE)
    return _start_session(request, authenticator, cookie)


def _start_session(request: Request, authenticator: Authenticator, cookie: str) -> Response:
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=authenticator.session_seconds,
        httponly=True,
        samesite="strict",  # other sites cannot make the browser send it
        secure=authenticator.proxies.is_encrypted(request),
        path="/",
    )
    return response


@log_in_router.post("/logout")
async def log_out(request: Request, authenticator: Authentication, _caller: Reader) -> Response:
    await authenticator.log_out(request)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response
