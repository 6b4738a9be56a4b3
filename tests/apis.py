"""The web application as others meet it: on a real port of this machine, asked by a real client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from http.cookies import SimpleCookie
from typing import Any

import aiohttp
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from multidict import CIMultiDictProxy
from pydantic import SecretStr

from mistnet.app import App
from mistnet.cli.listening import limits_of, listen, serving, url_of
from mistnet.settings import Settings
from mistnet.web.application import bind, make_routes
from mistnet.web.auth import COOKIE
from mistnet.web.tokens import Scope, Tokens
from tests.databases import make_app
from tests.harvests import open_harvest
from tests.support import TurnedClock

PUBLIC = "0.0.0.0"  # what it is told that it listens on; it listens on this machine alone


_services: list[FastAPI] = []
"""Routes that a test has used and that are free again: to analyse them takes longer than most tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return aiohttp.typedefs.DEFAULT_JSON_DECODER(self.body.decode())

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def problems(self) -> dict[str, str]:
        return {each["field"]: each["problem"] for each in self.json["error"]["fields"]}


@dataclass(slots=True, kw_only=True)
class Api:
    """An app, its service, and a client without cookies of its own."""

    app: App
    service: FastAPI
    url: str
    session: aiohttp.ClientSession
    clock: TurnedClock
    headers: dict[str, str]

    async def ask(self, method: str, path: str, *, headers: dict[str, str] | None = None, **about: Any) -> Answer:
        given = {**self.headers, **(headers or {})}
        sent = self.session.request(method, self.url + path, headers=given, allow_redirects=False, **about)
        async with sent as answer:
            return Answer(status=answer.status, headers=answer.headers, body=await answer.read())

    async def get(self, path: str, **about: Any) -> Answer:
        return await self.ask("GET", path, **about)

    async def post(self, path: str, **about: Any) -> Answer:
        return await self.ask("POST", path, **about)

    async def ok(self, path: str, **about: Any) -> Any:
        answer = await self.get(path, **about)
        assert answer.status == 200, answer
        return answer.json

    async def token(self, scope: Scope) -> str:
        _, token = await Tokens(self.app.database).make(scope.word, scope, now=self.clock.now())
        return token

    async def pages(self, path: str, *, limit: int) -> AsyncIterator[list[Any]]:
        """All pages of a list, one by one."""
        joint = "&" if "?" in path else "?"
        cursor = ""
        while True:
            page = await self.ok(f"{path}{joint}limit={limit}{cursor}")
            yield page["items"]
            if page["next"] is None:
                return
            cursor = f"&cursor={page['next']}"


@asynccontextmanager
async def open_api(url: str, *, host: str = "127.0.0.1", **settings: Any) -> AsyncIterator[Api]:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock, **settings) as app:
        listener = listen("127.0.0.1", 0)
        jar = aiohttp.DummyCookieJar()
        with api_on(app, host=host) as service:
            async with (
                serving(service, listener, limits_of(app.settings)),
                aiohttp.ClientSession(cookie_jar=jar) as session,
            ):
                yield Api(app=app, service=service, url=url_of(listener), session=session, clock=clock, headers={})
        listener.close()


@contextmanager
def api_on(app: App, *, host: str | None) -> Iterator[FastAPI]:
    """The service on an app, with routes that an earlier test of this process has had analysed."""
    service = _services.pop() if _services else make_routes()
    bind(service, app, host=host)
    yield service
    _services.append(service)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def cookie_of(answer: Answer) -> str:
    """The session that an answer begins."""
    assert answer.status == 303, answer
    return SimpleCookie(answer.headers["Set-Cookie"])[COOKIE].value


async def logged_in(api: Api, token: str, **headers: str) -> str:
    return cookie_of(await api.post("/login", data={"token": token}, headers=headers))


async def csrf_of(api: Api, cookie: str) -> str:
    visitor = await api.service.state.authenticator.sessions.find(cookie, now=api.clock.now())
    return str(visitor.csrf)


def app_on(url: str, **settings: Any) -> App:
    """An app that has asked nothing of its database yet."""
    return make_app(Settings(database_url=SecretStr(url), **settings))


@cache
def described_routes() -> FastAPI:
    """Routes to be read, not served: to analyse them takes longer than most tests."""
    return make_routes()


def query_names(of: Dependant) -> set[str]:
    return {each.alias for each in of.query_params}.union(*(query_names(each) for each in of.dependencies))


def api_routes(service: FastAPI) -> list[RouteContext]:
    """Every route there is, be it documented or not. The folder of assets is the only thing that is none."""
    found = list(iter_route_contexts(service.routes))
    assert [each.path for each in found if not isinstance(each.original_route, APIRoute)] == ["/static"]
    return [each for each in found if isinstance(each.original_route, APIRoute)]
