"""Call TwitterAPI.io and decode its answers, including those its documentation does not mention."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Generic, Literal, TypeVar

import msgspec

from mistnet.governor.errors import (
    UNREADABLE,
    BadRequest,
    BrokenAnswer,
    RateLimited,
    SourceDown,
    SourceRefused,
    reading_answer,
)
from mistnet.governor.grants import repeat_if_unanswered
from mistnet.governor.model import X_SOURCE, CallPurpose, Costs, Gate
from mistnet.graph.follows.model import Relation
from mistnet.kit.clock import Clock
from mistnet.kit.text import redact, shorten
from mistnet.kit.transport import Exchange, HttpAnswer, HttpRequest, Transport, Unanswered, Unreached, retry_after
from mistnet.queue.errors import WorkError
from mistnet.social.ingests import BODY_LIMIT, exchange_of
from mistnet.social.model import Detail, Gathered, Page, PostId, Span, User, UserId, UserPage, X
from mistnet.sources.x.decode import MISSING, XEnvelope, gather_posts, gather_users, read_user

CREDITS_PER_DOLLAR: Final = 100_000
MINIMUM: Final = 15
POST: Final = 15
PROFILE: Final = 18
RELATION: Final = 100
FULL_BATCH: Final = 100
"""With at least this many ids in one call, a profile costs one credit instead of eighteen."""

POSTS_PER_PAGE: Final = 20


def posts(returned: int) -> int:
    return max(MINIMUM, POST * returned)


def profiles(asked: int, returned: int) -> int:
    return max(MINIMUM, returned if asked >= FULL_BATCH else PROFILE * returned)


def follow_page(returned: int) -> int:
    rate = 1 if returned >= 200 else 2 if returned >= 100 else 3
    return max(MINIMUM, rate * returned)


def follow_page_at_most(size: int) -> int:
    """A page that is not quite full costs more than a full one."""
    return max(follow_page(returned) for returned in {size, min(size, 199), min(size, 99)})


def failure(status: int | None, most: int) -> int:
    """The most that a call without a readable answer can have cost; `most` is what a successful one costs.

    X bills each page it sends, even if we cannot read it or it does not reach us. Refused calls are free.
    """
    if status in (401, 402, 403, 429):
        return 0
    return most if status in (None, 200) else min(MINIMUM, most)


def backfill(posts_count: int, *, looks: int = 1) -> int:
    """Roughly what all posts of one account cost: each post, and the empty pages that confirm the end."""
    return POST * posts_count + looks * MINIMUM


COSTS: Final = Costs(least=MINIMUM, post=POST, page=posts(POSTS_PER_PAGE))


def format_dollars(credits_spent: int) -> str:
    """What credits cost, for people: `$0.80`. A small amount is not zero: `<$0.01`."""
    if credits_spent < 0:
        return f"-{format_dollars(-credits_spent)}"
    if 0 < credits_spent < CREDITS_PER_DOLLAR // 100:
        return "<$0.01"
    return f"${credits_spent / CREDITS_PER_DOLLAR:,.2f}"


T = TypeVar("T")

SOURCE: Final = X_SOURCE
# A free key may call every five seconds; a little more, so that clocks need not agree.
FREE_KEY_WAIT: Final = timedelta(seconds=5.2)
PAID_KEY_WAIT: Final = timedelta(seconds=1)
REFUSED_WAIT: Final = timedelta(hours=1)
LONGEST_WAIT: Final = timedelta(hours=1)
KEY_UNSEEN_WAIT: Final = timedelta(seconds=10)
_PAGE: Final = posts(POSTS_PER_PAGE)
_GONE_WORDS: Final = ("not found", "not exist", "suspended", "deactivated", "unavailable")
NO_JOB: Final = CallPurpose()

_envelope = msgspec.json.Decoder(XEnvelope, strict=False).decode
_relation = msgspec.json.Decoder(Relation).decode


class Priced(msgspec.Struct, Generic[T], frozen=True):
    """A decoded answer, how many items it holds, and what they cost."""

    value: T
    items: int
    credits: int


def query_of(handles: Collection[str], span: Span, *, reposts: bool = False) -> str:
    """`from:` never returns native retweets; the filter returns only those. Both bounds are ids."""
    authors = " OR ".join(f"from:{handle}" for handle in sorted(handles))
    words = [f"({authors})" if len(handles) > 1 else authors]
    if reposts:
        words.append("filter:nativeretweets")
    if span.floor:
        words.append(f"since_id:{span.floor}")
    if span.ceiling is not None:
        words.append(f"max_id:{span.ceiling}")
    return " ".join(words)


class XClient:
    """Calls TwitterAPI.io and raises typed errors. It does not know the jobs that it is called for."""

    platform = X
    separate_reposts = True
    # Six profiles at 18 credits cost more than a hundred at one.
    full_batch_from = 6

    def __init__(
        self,
        transport: Transport,
        *,
        gate: Gate,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._gate = gate
        self._clock = clock
        self._sleep = sleep

    async def user(self, handle: str, *, purpose: CallPurpose = NO_JOB) -> User | None:
        """The profile of a handle, or None if there is no such user."""

        def read(found: XEnvelope) -> Priced[User | None]:
            # null means that there is no such user; without the key the answer says nothing about them.
            if found.data is MISSING:
                raise BrokenAnswer(SOURCE, "user/info", _reason(found) or "neither a profile nor a reason")
            if found.status == "error" and not any(word in _reason(found).lower() for word in _GONE_WORDS):
                raise BrokenAnswer(SOURCE, "user/info", _reason(found) or "an error without a reason")
            if _is_null(found.data):
                return Priced(None, 0, MINIMUM)
            with reading_answer(SOURCE, "user/info"):
                return Priced(read_user(found.data, Detail.PROFILE), 1, PROFILE)

        return await self._ask("/twitter/user/info", read, PROFILE, purpose, userName=handle)

    async def users(self, ids: Sequence[UserId], *, purpose: CallPurpose = NO_JOB) -> Gathered:
        """Profiles by id. A user missing from the answer does not exist, or no longer does."""

        def read(found: XEnvelope) -> Priced[Gathered]:
            listed = _listed(found, found.users, "users", endpoint)
            gathered = gather_users(listed, endpoint, Detail.PROFILE)
            return Priced(gathered, len(listed), profiles(len(ids), len(listed)))

        endpoint, most = "user/batch_info_by_ids", profiles(len(ids), len(ids))
        return await self._ask(f"/twitter/{endpoint}", read, most, purpose, userIds=",".join(map(str, ids)))

    async def posts(self, ids: Sequence[PostId], *, purpose: CallPurpose = NO_JOB) -> Gathered:
        """Posts by id. Deleted and protected ones are simply absent."""

        def read(found: XEnvelope) -> Priced[Gathered]:
            shown = [each for each in _listed(found, found.tweets, "tweets", "tweets") if not _is_hollow(each)]
            return Priced(gather_posts(shown, "tweets")[0], len(shown), posts(len(shown)))

        return await self._ask("/twitter/tweets", read, posts(len(ids)), purpose, tweet_ids=",".join(map(str, ids)))

    async def search(self, query: str, *, cursor: str | None = None, purpose: CallPurpose = NO_JOB) -> Page:
        """Newest first, at most 20. Time and id bounds are words of the query."""

        def read(found: XEnvelope) -> Priced[Page]:
            listed = _listed(found, found.tweets, "tweets", endpoint)
            gathered, own = gather_posts(listed, endpoint)
            has_more = found.has_next_page is True
            page = Page(own=own, gathered=gathered, has_more=has_more, cursor=found.next_cursor or None)
            return Priced(page, len(listed), posts(len(listed)))

        endpoint = "tweet/advanced_search"
        return await self._ask(
            f"/twitter/{endpoint}", read, _PAGE, purpose, query=query, queryType="Latest", cursor=cursor
        )

    async def search_posts(
        self, handles: Collection[str], span: Span, *, reposts: bool = False, purpose: CallPurpose = NO_JOB
    ) -> Page:
        return await self.search(query_of(handles, span, reposts=reposts), purpose=purpose)

    async def followers(
        self, handle: str, *, size: int = 200, cursor: str | None = None, purpose: CallPurpose = NO_JOB
    ) -> UserPage:
        """By handle: whether X accepts an id is not known."""

        return await self._follow_page("followers", handle, size, cursor, purpose)

    async def followings(
        self, handle: str, *, size: int = 200, cursor: str | None = None, purpose: CallPurpose = NO_JOB
    ) -> UserPage:
        return await self._follow_page("followings", handle, size, cursor, purpose)

    async def _follow_page(
        self, side: Literal["followers", "followings"], handle: str, size: int, cursor: str | None, purpose: CallPurpose
    ) -> UserPage:
        endpoint = f"user/{side}"

        def read(found: XEnvelope) -> Priced[UserPage]:
            listed = _listed(found, found.followers if side == "followers" else found.followings, side, endpoint)
            gathered = gather_users(listed, endpoint, Detail.LISTED)
            has_more, after = found.has_next_page is True, found.next_cursor or None
            page = UserPage(own=list(gathered.users), gathered=gathered, has_more=has_more, cursor=after)
            return Priced(page, len(listed), follow_page(len(listed)))

        names = {"userName": handle, "pageSize": str(size), "cursor": cursor}
        return await self._ask(f"/twitter/{endpoint}", read, follow_page_at_most(size), purpose, **names)

    async def relation(self, source: str, target: str, *, purpose: CallPurpose = NO_JOB) -> Relation | None:
        """Whether one user follows the other, by handles; None if one of them does not exist."""
        endpoint = "user/check_follow_relationship"

        def read(found: XEnvelope) -> Priced[Relation | None]:
            if found.status == "error" and any(word in _reason(found).lower() for word in _GONE_WORDS):
                return Priced(None, 0, RELATION)
            _require_success(found, endpoint)
            if _is_null(found.data):
                raise BrokenAnswer(SOURCE, endpoint, "no 'data' in it")
            with reading_answer(SOURCE, endpoint):
                return Priced(_relation(found.data), 1, RELATION)

        path, names = f"/twitter/{endpoint}", {"source_user_name": source, "target_user_name": target}
        return await self._ask(path, read, RELATION, purpose, **names)

    async def balance(self) -> int:
        """Credits left, bought and granted. The answer lags a minute behind the spending."""

        def read(found: XEnvelope) -> Priced[int]:
            if found.recharge_credits is None:
                raise BrokenAnswer(SOURCE, "my/info", "no recharge_credits")
            return Priced(found.recharge_credits + (found.total_bonus_credits or 0), 1, 0)

        return await self._ask("/oapi/my/info", read, 0, NO_JOB)

    async def _ask(
        self, path: str, read: Callable[[XEnvelope], Priced[T]], most: int, purpose: CallPurpose, **query: str | None
    ) -> T:
        return await repeat_if_unanswered(lambda: self._ask_once(path, read, most, purpose, query), self._sleep)

    async def _ask_once(
        self,
        path: str,
        read: Callable[[XEnvelope], Priced[T]],
        most: int,
        purpose: CallPurpose,
        query: Mapping[str, str | None],
    ) -> T:
        endpoint = path.removeprefix("/twitter/").removeprefix("/oapi/")
        async with self._gate.call(endpoint, most=most, purpose=purpose) as call:
            given = {name: value for name, value in query.items() if value}
            request = HttpRequest(path=path, query=given, headers={"X-API-Key": call.key})
            try:
                answer = await self._transport.send(request)
            except Unanswered as error:
                # Nothing was sent, so nothing can have been billed.
                if isinstance(error, Unreached):
                    call.settle(items=0, credits_due=0)
                problem = redact(str(error), [call.key])
                down = SourceDown(SOURCE, problem)
                down.exchange = Exchange(endpoint=endpoint, status=None, body=problem[:BODY_LIMIT])
                raise down from error
            try:
                if answer.status != 200:
                    self._refuse(answer, endpoint, call.key)
                with reading_answer(SOURCE, endpoint):
                    found = _envelope(answer.body)
                decoded = read(found)
            except WorkError as error:
                # The error carries the answer that caused it, so that an operator can see what X sent.
                error.exchange = exchange_of(
                    endpoint, status=answer.status, headers=answer.headers, body=answer.body, secrets=[call.key]
                )
                raise
            call.settle(items=decoded.items, credits_due=decoded.credits)
        return decoded.value

    def _refuse(self, answer: HttpAnswer, endpoint: str, key: str) -> None:
        """Raise the typed error for a status other than 200."""
        now, status, reason = self._clock.now(), answer.status, ""
        with suppress(*UNREADABLE):
            reason = _reason(_envelope(answer.body))
        problem = shorten(redact(reason or answer.body[:300].decode("utf-8", "replace"), [key]), 300)
        if status == 429:
            free_tier = "free-tier" in problem.lower()
            wait = self._wait(answer, FREE_KEY_WAIT if free_tier else PAID_KEY_WAIT)
            raise RateLimited(SOURCE, now + wait, free_tier=free_tier)
        if status == 402 or (status in (401, 403) and "credit" in problem.lower()):
            raise SourceRefused(SOURCE, now + REFUSED_WAIT, f"no credits left ({problem})", status=status)
        if status == 403 and "api key required" in problem.lower():  # the key was sent: X throttles us in this way
            raise RateLimited(SOURCE, now + self._wait(answer, KEY_UNSEEN_WAIT), key_unseen=True)
        if status in (401, 403):
            raise SourceRefused(SOURCE, now + REFUSED_WAIT, f"the key is refused ({problem})", status=status)
        if status >= 500 or status in (408, 425):
            raise SourceDown(SOURCE, f"{status} {problem}", status=status)
        raise BadRequest(SOURCE, endpoint, status, problem)

    def _wait(self, answer: HttpAnswer, otherwise: timedelta) -> timedelta:
        asked = retry_after(answer.headers, self._clock.now(), longest=LONGEST_WAIT)
        return otherwise if asked is None else asked


def _require_success(found: XEnvelope, endpoint: str) -> None:
    """Status 200 does not mean success: the body may contain an error."""
    if found.status == "error":
        raise BrokenAnswer(SOURCE, endpoint, _reason(found) or "an error without a reason")


def _listed(found: XEnvelope, listed: list[msgspec.Raw] | None, key: str, endpoint: str) -> list[msgspec.Raw]:
    """A missing list is an error; an empty list is a valid answer."""
    _require_success(found, endpoint)
    if listed is None:
        raise BrokenAnswer(SOURCE, endpoint, f"no {key!r} in it")
    return listed


def _is_null(raw: msgspec.Raw) -> bool:
    return bytes(raw).strip() in (b"null", b"")


def _is_hollow(raw: msgspec.Raw) -> bool:
    """X returns some deleted posts as elements with empty fields instead of leaving them out."""
    try:
        shown = msgspec.json.decode(raw)
    except UNREADABLE:
        return False
    return isinstance(shown, dict) and not shown.get("id") and not shown.get("text")


def _reason(found: XEnvelope) -> str:
    """The first reason in the answer; X uses four names for the field."""
    return next((said for said in (found.detail, found.msg, found.message, found.error) if isinstance(said, str)), "")
