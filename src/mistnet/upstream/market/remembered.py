"""Remembers what a source said of an item for a while: a question asked twice costs one call."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from mistnet.domain.crawling import AnswerBook, CachedAnswer, bounded
from mistnet.domain.errors import DatabaseError
from mistnet.domain.items import Answer, Item, PriceSource
from mistnet.domain.ports import Clock
from mistnet.domain.sources import Errand, SourceName
from mistnet.upstream.market.wording import remembered_as

_OK: Final = 200
_answer = msgspec.json.Decoder(Answer).decode


class Remembered:
    """A source of prices with a memory that all workers share. What is asked of it must depend on its key alone."""

    def __init__(
        self, source: PriceSource, *, answers: AnswerBook, clock: Clock, keep: timedelta, with_grade: bool = False
    ) -> None:
        self._source = source
        self._answers = answers
        self._clock = clock
        self._keep = keep
        self._with_grade = with_grade
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def name(self) -> SourceName:
        return self._source.name

    async def search(self, item: Item, *, errand: Errand, fresh: bool = False) -> Answer:
        key = bounded(remembered_as(self.name, item, with_grade=self._with_grade))
        async with self._asking.setdefault(key, asyncio.Lock()):  # who asks the same at once waits for the one answer
            found = None if fresh else await self._recalled(key)
            if found is not None:
                return found
            told = await self._source.search(item, errand=errand, fresh=fresh)
            await self._keep_in_mind(key, told)
            return told

    async def _recalled(self, key: str) -> Answer | None:
        stored = await self._answers.get(key)
        if stored is None or stored.fresh_until <= self._clock.now():
            return None
        try:
            told = _answer(stored.body)
        except msgspec.MsgspecError:  # kept by another version: asked for anew
            return None
        return msgspec.structs.replace(told, cached=True)

    async def _keep_in_mind(self, key: str, told: Answer) -> None:
        """What was told is told, even if it cannot be remembered."""
        now = self._clock.now()
        answer = CachedAnswer(
            key=key,
            source=self.name,
            stored_at=now,
            fresh_until=now + self._keep,
            status=_OK,
            headers={},
            body=msgspec.json.encode(told),
        )
        with suppress(DatabaseError):
            await self._answers.put(answer)
