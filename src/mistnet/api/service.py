"""The web application: every route, put together by hand."""

from __future__ import annotations

from fastapi import FastAPI

from mistnet import __version__
from mistnet.api.pages import add_pages
from mistnet.app import App


def make_service(app: App) -> FastAPI:
    """The API and the dashboard on an open app."""
    service = FastAPI(title="mistnet", version=__version__, docs_url="/api/docs", openapi_url="/api/openapi.json")
    service.state.mistnet = app
    add_pages(service)
    return service
