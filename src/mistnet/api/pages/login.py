"""The log-in: a token once, a cookie from then on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.api.auth import COOKIE, Doorman, Reader
from mistnet.api.errors import Refusal
from mistnet.api.pages.render import page

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def log_in_page(request: Request) -> HTMLResponse:
    return page(request, "login.html", None, problem=None)


@router.post("/login")
async def log_in(request: Request, token: Annotated[str, Form(max_length=500)] = "") -> Response:
    doorman: Doorman = request.app.state.doorman
    try:
        secret = await doorman.log_in(request, token.strip())
    except Refusal as refusal:
        said = "That token is not valid, or not any more." if refusal.status_code == 401 else str(refusal.detail)
        told = page(request, "login.html", None, status=refusal.status_code, problem=said)
        told.headers.update(refusal.headers or {})
        return told
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=doorman.session_seconds,
        httponly=True,
        samesite="strict",
        secure=doorman.proxies.is_encrypted(request),
        path="/",
    )
    return answer


@router.post("/logout")
async def log_out(request: Request, _visitor: Reader) -> Response:
    doorman: Doorman = request.app.state.doorman
    await doorman.log_out(request)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer
