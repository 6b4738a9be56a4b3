"""The dashboard: its pages, its navigation, its assets, and the page that shows an error."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from mistnet.web import log_in
from mistnet.web.pages import (
    accounts,
    conversations,
    dashboard,
    feeds,
    items,
    jobs,
    lanes,
    links,
    overview,
    products,
    runs,
    search,
    segments,
    sources,
)
from mistnet.web.pages.dashboard import remember_version
from mistnet.web.pages.render import STATIC, page

_PAGES: Final = (
    *(overview, accounts, conversations, segments, feeds, links, products, items),
    *(jobs, lanes, sources, runs, search, log_in, dashboard),
)
_NAVIGATION: Final = (
    *(("/", "Overview"), ("/accounts", "Accounts"), ("/segments", "Segments"), ("/feeds", "Feeds")),
    *(("/links", "Links"), ("/products", "Products"), ("/items", "Items"), ("/jobs", "Jobs"), ("/lanes", "Lanes")),
    *(("/runs", "Runs"), ("/sources", "Sources"), ("/search", "Search")),
)
_ROUTERS: Final = (
    *(each.router for each in _PAGES),
    products.linked_products_router,
    jobs.monitoring_router,
)
_TITLES: Final = {
    400: "That cannot be used",
    403: "Not allowed",
    404: "Nothing here",
    409: "Not now",
    429: "Too often",
    503: "The database does not answer",
}


def add_pages(service: FastAPI) -> None:
    """Add the dashboard's pages and assets."""
    service.state.navigation = _NAVIGATION
    service.state.error_page = error_page
    service.mount("/static", _Assets(directory=STATIC), name="static")
    for each in _ROUTERS:
        service.include_router(each, dependencies=[Depends(remember_version)])


class _Assets(StaticFiles):
    """Static files. Those with a version in their URL change their URL with their content: browsers cache them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        versioned = b"v=" in scope.get("query_string", b"")
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if versioned else "no-cache"
        return response


def error_page(request: Request, status: int, message: str) -> Response:
    """An error as a page."""
    caller: Any = getattr(request.state, "caller", None)
    title = _TITLES.get(status, "Something went wrong" if status >= 500 else "That did not work")
    return page(request, "error.html", caller, status=status, code=status, title=title, message=message)
