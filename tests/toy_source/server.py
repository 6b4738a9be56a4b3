"""The toy platform itself: people and their notes, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

TOKEN = "toy-token-of-the-tests"
PAGE = 5


def note(n: int, by: int, says: str, at: int, **more: int) -> dict[str, Any]:
    return {"n": n, "by": by, "says": says, "at": at, **more}


class ToyPlatform:
    """Serves what its lists hold; `calls` counts requests."""

    def __init__(self, people: Sequence[dict[str, Any]], notes: Sequence[dict[str, Any]]) -> None:
        self.people, self.notes, self.calls = list(people), list(notes), 0

    async def _people(self, request: web.Request) -> web.Response:
        name, ids = request.query.get("name"), request.query.get("ids", "").split(",")
        found = [each for each in self.people if each["name"] == name or str(each["id"]) in ids]
        return web.json_response({"people": found})

    async def _notes(self, request: web.Request) -> web.Response:
        query = request.query
        if "ids" in query:
            wanted = query["ids"].split(",")
            return self._with_authors([each for each in self.notes if str(each["n"]) in wanted])
        authors = {each["id"] for each in self.people if each["name"] in query["by"].split(",")}
        floor, ceiling = int(query["over"]), int(query.get("upto", 2**62))
        found = [each for each in self.notes if each["by"] in authors and floor < each["n"] <= ceiling]
        found.sort(key=lambda each: -each["n"])
        return self._with_authors(found[:PAGE], more=len(found) > PAGE)

    def _with_authors(self, notes: Sequence[dict[str, Any]], *, more: bool = False) -> web.Response:
        authors = {each["by"] for each in notes}
        people = [each for each in self.people if each["id"] in authors]
        return web.json_response({"people": people, "notes": notes, "more": more})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yields its URL."""
        app = web.Application(middlewares=[self._admit])
        app.add_routes([web.get("/people", self._people), web.get("/notes", self._notes)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls += 1
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        answer: web.StreamResponse = await handler(request)
        return answer
