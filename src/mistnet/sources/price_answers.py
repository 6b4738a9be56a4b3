"""What price sources share: amounts and times as shops write them, and the cache of what they answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from mistnet.governor.errors import IllegiblePayload
from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.prices.model import Item, ItemRequest, PriceAnswer, PriceSource
from mistnet.shops.extraction.currencies import CODES
from mistnet.shops.model import AnswerBook, CachedAnswer, bounded

MOST: Final = Decimal(10) ** 15
"""A larger number is an article number or a mistake."""

# As seconds this is the year 5138, as milliseconds 1973.
_MILLISECONDS: Final = 10**11
_FINEST: Final = -9
_LONGEST_COUNT: Final = 9
_DIGITS: Final = re.compile(r"\d[\d.,' ]*")


class IllegibleAmount(IllegiblePayload):
    """A value that cannot be read, and why."""


def exact(value: object) -> Decimal:
    """A number: a JSON number, or a text that contains only a number."""
    # bool is an int in Python, but true is no amount.
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise IllegibleAmount(f"{_shown(value)} is no amount")
    try:
        return believable(Decimal(value.strip() if isinstance(value, str) else value))
    except InvalidOperation:
        raise IllegibleAmount(f"{_shown(value)} is no amount") from None


def believable(amount: Decimal) -> Decimal:
    if not amount.is_finite() or not 0 < amount < MOST:
        raise IllegibleAmount(f"{_shown(amount)} is no price")
    exponent = amount.as_tuple().exponent
    if isinstance(exponent, int) and exponent < _FINEST:
        raise IllegibleAmount(f"{_shown(amount)} has more digits than any currency")
    return amount


def currency(value: object) -> str:
    code = value.strip().upper() if isinstance(value, str) else ""
    if code not in CODES:
        raise IllegibleAmount(f"{_shown(value)} is no currency; an ISO code such as USD is needed")
    return code


def moment(value: object) -> datetime:
    """A time in ISO 8601, as in e-mail, or in seconds or milliseconds since 1970. Without a zone it is UTC."""
    text = str(value).strip() if isinstance(value, int | str | Decimal) and not isinstance(value, bool) else ""
    try:
        if text.isdecimal():
            seconds = int(text) / 1000 if int(text) >= _MILLISECONDS else int(text)
            return datetime.fromtimestamp(seconds, UTC)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = parsedate_to_datetime(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        raise IllegibleAmount(
            f"{_shown(value)} is no time; ISO 8601 such as 2026-01-31T12:00:00Z can be read"
        ) from None


def count(value: object) -> int:
    """A number, or the first one in a text such as `3 bids`."""
    found = _DIGITS.search(value) if isinstance(value, str) else None
    text = re.sub(r"\D", "", found[0]) if found else ""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST:
        return value
    if not text or len(text) > _LONGEST_COUNT:
        raise IllegibleAmount(f"{_shown(value)} is no count")
    return int(text)


def _shown(value: object) -> str:
    return repr(str(value)[:60]) if value is not None else "nothing"


ASKED: Final = ("year", "mint_mark", "denomination", "series")
"""The attributes that a search contains. A cached answer is keyed by the same."""


def query_of(item: ItemRequest) -> str:
    """The title, and the attributes that it does not contain."""
    said = item.title.casefold()
    words = [item.title]
    for name in ASKED:
        value = item.attributes.get(name)
        if value and value.casefold() not in said:
            words.append(value)
    return " ".join(" ".join(words).split())


def remembered_as(source: str, item: ItemRequest, *, with_grade: bool = False) -> str:
    """`source|year|mintmark|denomination|series|title`. A `|` inside a value is escaped."""
    values = [item.attributes.get(name, "") for name in ASKED]
    values += [item.title, *([item.attributes.get("grade", "")] if with_grade else [])]
    return "|".join([source, *(value.replace("%7C", "%257C").replace("|", "%7C") for value in values)])


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
                    CachedAnswer(key=key, source=self.name, stored_at=now, fresh_until=now + self._keep, body=body)
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
