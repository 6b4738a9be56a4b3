"""Somebody who asks a service in the same process, without HTTP."""

import json
from typing import Any
from urllib.parse import urlencode

from mistnet.sim.service import DEFAULT_KEY, Answer, XService

SEARCH_PATH = "/twitter/tweet/advanced_search"


class Visitor:
    def __init__(self, service: XService, key: str = DEFAULT_KEY.name) -> None:
        self._service, self._key = service, key

    async def ask(self, path: str, **params: object) -> Answer:
        return await self._service.handle("GET", path, urlencode(params), {"X-API-Key": self._key})

    async def get(self, path: str, **params: object) -> Any:
        """The JSON of an answer that must be a 200."""
        answer = await self.ask(path, **params)
        if answer.status != 200:
            raise AssertionError(f"{answer.status}: {answer.body.decode()}")
        return json.loads(answer.body)

    async def search(self, query: str, cursor: str = "") -> Any:
        return await self.get(SEARCH_PATH, query=query, queryType="Latest", cursor=cursor)
