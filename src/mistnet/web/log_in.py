"""Log-in pages: a token or a one-time link becomes a session cookie."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.web.auth import COOKIE, Authenticator, Reader
from mistnet.web.errors import RequestRefused
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)

_LINK_GONE: Final = (
    "This link was used or has expired. Log in with a token, or restart `mistnet up` or `mistnet serve` "
    "on a terminal to get another link."
)


@router.get("/login")
async def log_in_page(request: Request) -> HTMLResponse:
    return page(request, "login.html", None, problem=None)


@router.post("/login")
async def log_in(request: Request, token: Annotated[str, Form(max_length=500)] = "") -> Response:
    authenticator: Authenticator = request.app.state.authenticator
    try:
        secret = await authenticator.log_in(request, token.strip())
    except RequestRefused as refusal:
        said = "This token is not valid, or was revoked." if refusal.status_code == 401 else str(refusal.detail)
        response = page(request, "login.html", None, status=refusal.status_code, problem=said)
        response.headers.update(refusal.headers or {})
        return response
    return _start_session(request, secret)


@router.get("/login/{secret}")
async def log_in_by_link(request: Request, secret: str) -> Response:
    """The one-time link that `up` and `serve` print on a terminal."""
    authenticator: Authenticator = request.app.state.authenticator
    cookie = await authenticator.log_in_by_link(request, secret)
    if cookie is None:
        return page(request, "login.html", None, status=401, problem=_LINK_GONE)
    return _start_session(request, cookie)


def _start_session(request: Request, secret: str) -> Response:
    authenticator: Authenticator = request.app.state.authenticator
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=authenticator.session_seconds,
        httponly=True,
        samesite="strict",  # other sites cannot make the browser send it
        secure=authenticator.proxies.is_encrypted(request),
        path="/",
    )
    return response


@router.post("/logout")
async def log_out(request: Request, _caller: Reader) -> Response:
    authenticator: Authenticator = request.app.state.authenticator
    await authenticator.log_out(request)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response
