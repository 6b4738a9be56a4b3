"""Where a look at a source has got to: pages it has read already are not asked for again when it has to begin anew.

A look may need several calls, and each may be refused for now: by a rate, a breaker, a fault. Pages are kept for the
job that asked for them alone, and only while it is on its way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

from mistnet.domain.crawling import AnswerBook, CachedAnswer, bounded
from mistnet.domain.errors import DatabaseError
from mistnet.domain.ports import Clock
from mistnet.domain.sources import Errand, SourceName

KEPT: Final = timedelta(hours=1)
"""A page that is older than this is asked for again: what it says may have changed."""

_OK: Final = 200


class PageBook(AnswerBook, Protocol):
    """Answers that can be taken out again."""

    async def drop(self, keys: Sequence[str]) -> None: ...


class Bookmark:
    """One look. Without a job there is nobody who could begin anew, and nothing is kept."""

    def __init__(self, book: PageBook | None, *, clock: Clock, source: SourceName, errand: Errand) -> None:
        self._book = book if errand.job_id is not None else None
        self._clock = clock
        self._source = source
        self._job_id = errand.job_id
        self._used: list[str] = []

    async def recall(self, question: str) -> CachedAnswer | None:
        """The page as this job has read it before, if it has."""
        if self._book is None:
            return None
        kept = await self._book.get(self._key(question))
        if kept is None:
            return None
        self._used.append(kept.key)
        return kept if kept.fresh_until > self._clock.now() else None

    async def keep(self, question: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """For a page that others follow. One that cannot be kept is still read: it is asked for again, at worst."""
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
        """The look is over: its pages are of no use to anybody."""
        if self._book is not None and self._used:
            with suppress(DatabaseError):  # they are forgotten with other old answers, then
                await self._book.drop(sorted(set(self._used)))

    def _key(self, question: str) -> str:
        return bounded(f"page {self._source} {self._job_id} {question}")
