"""The log-in: a token once, a cookie from then on."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.web.auth import COOKIE, Authenticator, Reader
from mistnet.web.errors import RequestRefused
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)

_LINK_GONE: Final = (
    "This link was used already, or it has expired. Log in with a token, or restart `mistnet up` or `mistnet serve` "
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
        said = "That token is not valid, or not any more." if refusal.status_code == 401 else str(refusal.detail)
        told = page(request, "login.html", None, status=refusal.status_code, problem=said)
        told.headers.update(refusal.headers or {})
        return told
    return _led_in(request, secret)


@router.get("/login/{secret}")
async def log_in_by_link(request: Request, secret: str) -> Response:
    """Where the link leads that `up` and `serve` print on a terminal."""
    authenticator: Authenticator = request.app.state.authenticator
    cookie = await authenticator.log_in_by_link(request, secret)
    if cookie is None:
        return page(request, "login.html", None, status=401, problem=_LINK_GONE)
    return _led_in(request, cookie)


def _led_in(request: Request, secret: str) -> Response:
    authenticator: Authenticator = request.app.state.authenticator
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=authenticator.session_seconds,
        httponly=True,
        samesite="strict",
        secure=authenticator.proxies.is_encrypted(request),
        path="/",
    )
    return answer


@router.post("/logout")
async def log_out(request: Request, _visitor: Reader) -> Response:
    authenticator: Authenticator = request.app.state.authenticator
    await authenticator.log_out(request)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer
