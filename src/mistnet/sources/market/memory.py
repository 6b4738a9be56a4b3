"""Cache what a source answered about an item."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.prices.model import Item, PriceAnswer, PriceSource
from mistnet.shops.model import AnswerBook, CachedAnswer, bounded
from mistnet.sources.market.amounts import remembered_as

_OK: Final = 200
_decode_answer = msgspec.json.Decoder(PriceAnswer).decode


class Remembered:
    """A source of prices with a cache that all workers share. Its answers must depend on the cache key alone."""

    def __init__(
        self, source: PriceSource, *, answers: AnswerBook, clock: Clock, keep: timedelta, with_grade: bool = False
    ) -> None:
        self._source = source
        self._answers = answers
        self._clock = clock
        self._keep = keep
        self._with_grade = with_grade
        # Weak: a lock lives as long as a search uses it.
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def name(self) -> SourceName:
        return self._source.name

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:
        key = bounded(remembered_as(self.name, item, with_grade=self._with_grade))
        async with self._asking.setdefault(key, asyncio.Lock()):  # equal searches at the same time wait for one answer
            stored = None if fresh else await self._answers.get(key)
            if stored is not None and stored.fresh_until > self._clock.now():
                with suppress(msgspec.MsgspecError):  # cached by another version: fetch it again
                    return msgspec.structs.replace(_decode_answer(stored.body), cached=True)
            answer = await self._source.search(item, purpose=purpose, fresh=fresh)
            now, body = self._clock.now(), msgspec.json.encode(answer)
            with suppress(DatabaseError):  # the answer is valid even if it cannot be cached
                await self._answers.put(
                    CachedAnswer(
                        key=key,
                        source=self.name,
                        stored_at=now,
                        fresh_until=now + self._keep,
                        status=_OK,
                        headers={},
                        body=body,
                    )
                )
            return answer


KEPT: Final = timedelta(hours=1)
"""An older page is fetched again: its content may have changed."""


class PageCursors(AnswerBook, Protocol):
    """A cache whose answers can be deleted."""

    async def drop(self, keys: Sequence[str]) -> None: ...


class PageCursor:
    """The pages of one fetch, cached so that a retried job continues after them. Without a job nothing is cached."""

    def __init__(self, book: PageCursors | None, *, clock: Clock, source: SourceName, purpose: CallPurpose) -> None:
        self._book = book if purpose.job_id is not None else None
        self._clock = clock
        self._source = source
        self._job_id = purpose.job_id
        self._used: list[str] = []

    async def recall(self, question: str) -> CachedAnswer | None:
        """The page if this job has read it before."""
        if self._book is None:
            return None
        kept = await self._book.get(self._key(question))
        if kept is None:
            return None
        # Also if it has expired, so that `close` deletes it.
        self._used.append(kept.key)
        return kept if kept.fresh_until > self._clock.now() else None

    async def keep(self, question: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Cache a page that others follow. If that fails, a retry fetches it again."""
        if self._book is None:
            return
        now, key = self._clock.now(), self._key(question)
        self._used.append(key)
        page = CachedAnswer(
            key=key,
            source=self._source,
            stored_at=now,
            fresh_until=now + KEPT,
            status=_OK,
            headers=dict(headers or {}),
            body=body,
        )
        with suppress(DatabaseError):
            await self._book.put(page)

    async def close(self) -> None:
        """Delete the cached pages: the fetch is complete."""
        if self._book is not None and self._used:
            with suppress(DatabaseError):  # they expire with other old answers
                await self._book.drop(sorted(set(self._used)))

    def _key(self, question: str) -> str:
        return bounded(f"page {self._source} {self._job_id} {question}")
