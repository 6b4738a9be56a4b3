"""A libSQL server that answers badly: every fault has a name, and none is taken for success."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from sqlalchemy import text
from sqlalchemy.engine import make_url

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseBusy, DatabaseError, DatabaseUnreachable
from mistnet.kit.libsql.client import LibsqlServer
from mistnet.kit.libsql.driver import Connection
from mistnet.kit.libsql.server import ServerBusy, ServerGone, StreamLost, TokenRefused, TransactionLost, address_of
from tests.services.middleman import serving

EMPTY = {"cols": [], "rows": [], "affected_row_count": 0, "last_insert_rowid": None}
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(results: list[Any], baton: str | None = None, **more: Any) -> web.Response:
    return web.json_response({"baton": baton, "base_url": None, "results": results, **more})


def fine(request: dict[str, Any]) -> dict[str, Any]:
    """As a server would answer one request."""
    if request["type"] == "execute":
        return {"type": "ok", "response": {"type": "execute", "result": EMPTY}}
    if request["type"] == "batch":
        steps = len(request["batch"]["steps"])
        result = {"step_results": [EMPTY] * steps, "step_errors": [None] * steps}
        return {"type": "ok", "response": {"type": "batch", "result": result}}
    return {"type": "ok", "response": {"type": request["type"]}}


@asynccontextmanager
async def faulty(answering: Answering) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v3/pipeline", answering)
    async with serving(app) as port:
        yield f"libsql+http://127.0.0.1:{port}?authToken=a.very-secret.token"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    server = LibsqlServer(address_of(make_url(url)))
    try:
        yield Connection(server)
    finally:
        await server.close()


async def cut(request: web.Request) -> web.StreamResponse:
    """Promises more than it sends."""
    response = web.StreamResponse(headers={"Content-Length": "10000"})
    await response.prepare(request)
    await response.write(b'{"baton": null, "results": [{"type":')
    assert request.transport is not None
    request.transport.abort()
    return response


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def always(status: int, body: str) -> Answering:
    async def answering(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body)

    return answering


BAD: dict[str, tuple[Answering, type[sqlite3.Error], type[DatabaseError]]] = {
    "500": (always(500, "oh no"), ServerGone, DatabaseUnreachable),
    "502 with a page": (always(502, "<html>\n<h1>Bad gateway</h1>"), ServerGone, DatabaseUnreachable),
    "404": (always(404, '{"error":"Namespace `x` doesn\'t exist"}'), ServerGone, DatabaseUnreachable),
    "401": (always(401, '{"error":"Unauthorized"}'), TokenRefused, DatabaseUnreachable),
    "429": (always(429, '{"error":"slow down"}'), ServerBusy, DatabaseBusy),
    "307": (always(307, ""), ServerGone, DatabaseUnreachable),
    "cut body": (cut, ServerGone, DatabaseUnreachable),
    "hang up": (hang_up, ServerGone, DatabaseUnreachable),
    "no JSON": (always(200, "hello"), ServerGone, DatabaseUnreachable),
    "not UTF-8": (
        always(200, '{"results": "\udcff"}'.encode("utf-8", "surrogatepass").decode("latin-1")),
        ServerGone,
        DatabaseUnreachable,
    ),
    "other JSON": (always(200, '{"results": 5}'), ServerGone, DatabaseUnreachable),
    "no results": (always(200, '{"baton": null, "results": []}'), ServerGone, DatabaseUnreachable),
    "result missing": (
        always(200, '{"results": [{"type": "ok", "response": {"type": "execute"}}, {"type": "ok"}]}'),
        ServerGone,
        DatabaseUnreachable,
    ),
    "neither": (always(200, '{"results": [{"type": "?"}, {"type": "?"}]}'), ServerGone, DatabaseUnreachable),
    "result of another shape": (
        always(200, '{"results": [{"type": "ok", "response": {"type": "x", "result": {"rows": 1}}}, {"type": "ok"}]}'),
        ServerGone,
        DatabaseUnreachable,
    ),
}


@pytest.mark.parametrize("fault", BAD)
async def test_a_bad_answer_to_a_single_statement(fault: str) -> None:
    answering, error, _ = BAD[fault]
    async with faulty(answering) as url, connected(url) as connection:
        with pytest.raises(error) as raised:
            await connection.run("SELECT 1")
        assert "very-secret" not in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("fault", BAD)
async def test_a_bad_answer_within_a_transaction_is_told_in_our_words(fault: str) -> None:
    answering, _, error = BAD[fault]
    async with faulty(answering) as url:
        database = Database(url)
        try:
            with pytest.raises(error) as raised:
                async with database.transaction() as connection:
                    await connection.execute(text("SELECT 1"))
            assert "very-secret" not in str(raised.value)
        finally:
            await database.close()


def then(status: int, body: str) -> Answering:
    """The first request goes well; the second has this answer."""

    async def answering(request: web.Request) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())
        if asked["baton"] is None:
            return answer([fine(each) for each in asked["requests"]], baton="one")
        return web.Response(status=status, text=body)

    return answering


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, '{"message":"The stream has expired due to inactivity","code":"STREAM_EXPIRED"}', TransactionLost),
        (400, "Received an invalid baton", StreamLost),
        (404, "no such stream", StreamLost),
        (500, "oh no", ServerGone),
        (401, "", TokenRefused),
    ],
)
async def test_a_stream_that_is_gone_is_named_and_stays_gone(
    status: int, body: str, error: type[sqlite3.Error]
) -> None:
    async with faulty(then(status, body)) as url, connected(url) as connection:
        connection.begin()
        await connection.run("SELECT 1")
        for _ in range(2):
            with pytest.raises(error):
                await connection.run("SELECT 2")
        with pytest.raises(error):
            await connection.commit()
        await connection.rollback()
        await connection.run("SELECT 3")


async def test_a_stream_the_server_closed_is_not_taken_for_a_transaction() -> None:
    async def answering(request: web.Request) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())
        return answer([fine(each) for each in asked["requests"]], baton=None)

    async with faulty(answering) as url, connected(url) as connection:
        connection.begin()
        await connection.run("INSERT INTO a VALUES (1)")
        with pytest.raises(StreamLost):
            await connection.commit()


async def test_steps_that_were_left_out_are_no_success() -> None:
    async def answering(request: web.Request) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())
        found = [fine(each) for each in asked["requests"]]
        if asked["baton"]:
            found[0]["response"]["result"] = {"step_results": [None], "step_errors": [None]}
        return answer(found, baton="more")

    async with faulty(answering) as url, connected(url) as connection:
        connection.begin()
        await connection.run("SELECT 1")
        with pytest.raises(TransactionLost):
            await connection.run("INSERT INTO a VALUES (1)")
        with pytest.raises(TransactionLost):
            await connection.commit()


async def test_a_busy_server_is_busy_from_the_start() -> None:
    async def answering(request: web.Request) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())
        found = [fine(each) for each in asked["requests"]]
        result = found[0]["response"]["result"]
        result["step_results"][1:] = [None] * (len(result["step_results"]) - 1)
        result["step_errors"][1] = {"message": "SQLite error: database is locked", "code": "SQLITE_BUSY"}
        return answer(found, baton="more")

    async with faulty(answering) as url:
        database = Database(url)
        try:
            with pytest.raises(DatabaseBusy, match="locked"):
                async with database.transaction() as connection:
                    await connection.execute(text("SELECT 1"))
        finally:
            await database.close()


async def test_a_stream_goes_on_where_the_server_says() -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append("elsewhere")
        asked = msgspec.json.decode(await request.read())
        return answer([fine(each) for each in asked["requests"]], baton="two")

    app = web.Application()
    app.router.add_post("/there/v3/pipeline", elsewhere)
    async with serving(app) as port:

        async def here(request: web.Request) -> web.StreamResponse:
            seen.append("here")
            asked = msgspec.json.decode(await request.read())
            there = f"http://127.0.0.1:{port}/there/"
            return answer([fine(each) for each in asked["requests"]], baton="one", base_url=there)

        async with faulty(here) as url, connected(url) as connection:
            connection.begin()
            await connection.run("SELECT 1")
            await connection.run("SELECT 2")
            await connection.commit()
            await connection.run("SELECT 3")
    assert seen == ["here", "elsewhere", "elsewhere", "here"]


def test_a_server_cannot_take_encryption_away() -> None:
    server = LibsqlServer(address_of(make_url("libsql://host?authToken=abc")))
    assert server.following("https://other.example/", None) == "https://other.example"
    with pytest.raises(ServerGone, match="encryption"):
        server.following("http://other.example", None)
