"""Asks TwitterAPI.io and understands its answers, also those its documentation does not mention."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from mistnet.domain.errors import BadRequest, BrokenAnswer, RateLimited, SourceDown, SourceRefused
from mistnet.domain.ports import Clock
from mistnet.domain.redaction import redact, shorten
from mistnet.domain.social import Detail, PostId, User, UserId
from mistnet.upstream.transport import Answer, Request, Transport, Unanswered
from mistnet.upstream.x.decode import Gathered, Illegible, gather_posts, gather_users, number, read_user
from mistnet.upstream.x.payloads import Envelope, PageData

Listed = TypeVar("Listed")

SOURCE: Final = "x"
FREE_KEY_WAIT: Final = timedelta(seconds=5.2)
REFUSED_WAIT: Final = timedelta(hours=1)
KEY_NOT_SEEN_WAIT: Final = timedelta(minutes=5)

_envelope = msgspec.json.Decoder(Envelope, strict=False).decode
_page_data = msgspec.json.Decoder(PageData, strict=False).decode


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of posts: its own, in order, and all that came along."""

    own: Sequence[PostId]
    gathered: Gathered
    has_more: bool
    cursor: str | None


class UserPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a follower or following list, newest first."""

    own: Sequence[UserId]
    gathered: Gathered
    has_more: bool
    cursor: str | None


class IdPage(msgspec.Struct, frozen=True, kw_only=True):
    ids: Sequence[UserId]
    has_more: bool
    cursor: str | None


class XClient:
    """One key's way to TwitterAPI.io. Raises typed errors; decides nothing about retries."""

    def __init__(self, transport: Transport, *, key: str, clock: Clock) -> None:
        self._transport = transport
        self._key = key
        self._clock = clock

    async def user(self, handle: str) -> User | None:
        """The profile behind a handle, or None if there is nobody."""
        answer = await self._ask("/twitter/user/info", userName=handle)
        found = _read(answer, "user/info")
        if _is_null(found.data):
            if "not found" in _told(found).lower() or found.status == "error":
                return None
            raise BrokenAnswer(SOURCE, "user/info", "neither a profile nor a reason")
        try:
            return read_user(found.data, Detail.PROFILE)
        except (msgspec.DecodeError, Illegible, UnicodeDecodeError) as error:
            raise BrokenAnswer(SOURCE, "user/info", str(error)) from error

    async def users(self, ids: Sequence[UserId]) -> Gathered:
        """Profiles by id. Who is missing from the answer does not exist, or not any more."""
        answer = await self._ask("/twitter/user/batch_info_by_ids", userIds=",".join(map(str, ids)))
        found = _succeeded(_read(answer, "user/batch_info_by_ids"), "user/batch_info_by_ids")
        listed = _required(found.users, "users", "user/batch_info_by_ids")
        return gather_users(listed, "user/batch_info_by_ids", Detail.PROFILE)

    async def posts(self, ids: Sequence[PostId]) -> Gathered:
        """Posts by id. Deleted and protected ones are simply absent."""
        answer = await self._ask("/twitter/tweets", tweet_ids=",".join(map(str, ids)))
        found = _succeeded(_read(answer, "tweets"), "tweets")
        listed = _required(found.tweets, "tweets", "tweets")
        return gather_posts([each for each in listed if not _is_hollow(each)], "tweets")[0]

    async def search(self, query: str, *, cursor: str | None = None) -> Page:
        """Newest first, at most 20. Time and id bounds are words of the query."""
        answer = await self._ask("/twitter/tweet/advanced_search", query=query, queryType="Latest", cursor=cursor)
        found = _succeeded(_read(answer, "tweet/advanced_search"), "tweet/advanced_search")
        return _page(found, _required(found.tweets, "tweets", "tweet/advanced_search"), "tweet/advanced_search")

    async def last_posts(self, user_id: UserId, *, cursor: str | None = None) -> Page:
        """A user's latest, native retweets included, as the profile shows them."""
        answer = await self._ask("/twitter/user/last_tweets", userId=str(user_id), includeReplies="true", cursor=cursor)
        found = _succeeded(_read(answer, "user/last_tweets"), "user/last_tweets")
        if _is_null(found.data):
            return _page(found, _required(found.tweets, "data", "user/last_tweets"), "user/last_tweets")
        data = _page_data(found.data)
        listed = _required(data.tweets, "data.tweets", "user/last_tweets")
        return _page(found, listed, "user/last_tweets", nested=data)

    async def replies(self, post_id: PostId, *, cursor: str | None = None) -> Page:
        """What was said below a post, nested answers too, newest first."""
        answer = await self._ask("/twitter/tweet/replies", tweetId=str(post_id), cursor=cursor)
        found = _succeeded(_read(answer, "tweet/replies"), "tweet/replies")
        listed = found.tweets if found.tweets is not None else found.replies
        return _page(found, _required(listed, "tweets", "tweet/replies"), "tweet/replies")

    async def followers(self, handle: str, *, size: int = 200, cursor: str | None = None) -> UserPage:
        found = await self._list("/twitter/user/followers", handle, size, cursor)
        return _user_page(found, _required(found.followers, "followers", "user/followers"), "user/followers")

    async def followings(self, handle: str, *, size: int = 200, cursor: str | None = None) -> UserPage:
        found = await self._list("/twitter/user/followings", handle, size, cursor)
        return _user_page(found, _required(found.followings, "followings", "user/followings"), "user/followings")

    async def follower_ids(self, user_id: UserId, *, size: int = 5000, cursor: str | None = None) -> IdPage:
        answer = await self._ask("/twitter/user/followers_ids", userId=str(user_id), count=str(size), cursor=cursor)
        found = _succeeded(_read(answer, "user/followers_ids"), "user/followers_ids")
        try:
            ids = [UserId(number(each, "id")) for each in _required(found.ids, "ids", "user/followers_ids")]
        except Illegible as error:
            raise BrokenAnswer(SOURCE, "user/followers_ids", str(error)) from error
        return IdPage(ids=ids, has_more=found.has_next_page is True, cursor=found.next_cursor or None)

    async def balance(self) -> int:
        """Credits left, bought and given. Lags a minute behind what was spent."""
        found = _read(await self._ask("/oapi/my/info"), "my/info")
        if found.recharge_credits is None:
            raise BrokenAnswer(SOURCE, "my/info", "no recharge_credits")
        return found.recharge_credits + (found.total_bonus_credits or 0)

    async def _list(self, path: str, handle: str, size: int, cursor: str | None) -> Envelope:
        """These lists are asked for by handle; an id is not known to be accepted."""
        answer = await self._ask(path, userName=handle, pageSize=str(size), cursor=cursor)
        endpoint = path.removeprefix("/twitter/")
        return _succeeded(_read(answer, endpoint), endpoint)

    async def _ask(self, path: str, **query: str | None) -> Answer:
        given = {name: value for name, value in query.items() if value}
        request = Request(path=path, query=given, headers={"X-API-Key": self._key})
        try:
            answer = await self._transport.send(request)
        except Unanswered as error:
            raise SourceDown(SOURCE, redact(str(error), [self._key])) from error
        if answer.status != 200:
            self._refuse(answer, path)
        return answer

    def _refuse(self, answer: Answer, path: str) -> None:
        """Every status but 200, named for what it means to us."""
        now = self._clock.now()
        problem = shorten(redact(_problem(answer.body), [self._key]), 300)
        if answer.status == 429:
            raise RateLimited(SOURCE, now + _retry_after(answer, FREE_KEY_WAIT))
        if answer.status == 402 or "credit" in problem.lower():
            raise SourceRefused(SOURCE, now + REFUSED_WAIT, f"no credits left ({problem})")
        if answer.status == 403 and "api key required" in problem.lower():
            raise RateLimited(
                SOURCE, now + _retry_after(answer, KEY_NOT_SEEN_WAIT)
            )  # it was sent: a form of throttling
        if answer.status in (401, 403):
            raise SourceRefused(SOURCE, now + REFUSED_WAIT, f"the key is refused ({problem})")
        if answer.status >= 500 or answer.status in (408, 425):
            raise SourceDown(SOURCE, f"{answer.status} {problem}")
        raise BadRequest(SOURCE, path, answer.status, problem)


def _retry_after(answer: Answer, otherwise: timedelta) -> timedelta:
    said = next((value for name, value in answer.headers.items() if name.lower() == "retry-after"), "")
    return timedelta(seconds=min(float(said), 3600.0)) if said.isdecimal() else otherwise


def _read(answer: Answer, endpoint: str) -> Envelope:
    try:
        return _envelope(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BrokenAnswer(SOURCE, endpoint, str(error)) from error


def _succeeded(found: Envelope, endpoint: str) -> Envelope:
    """200 is not success: the body may say otherwise."""
    if found.status == "error":
        raise BrokenAnswer(SOURCE, endpoint, _told(found) or "an error without a reason")
    return found


def _required(listed: list[Listed] | None, key: str, endpoint: str) -> list[Listed]:
    """A missing list is a failure; an empty one is an answer."""
    if listed is None:
        raise BrokenAnswer(SOURCE, endpoint, f"no {key!r} in it")
    return listed


def _page(found: Envelope, listed: Sequence[msgspec.Raw], endpoint: str, nested: PageData | None = None) -> Page:
    gathered, own = gather_posts(listed, endpoint)
    has_more = found.has_next_page if found.has_next_page is not None else bool(nested and nested.has_next_page)
    cursor = found.next_cursor or (nested.next_cursor if nested else None)
    return Page(own=own, gathered=gathered, has_more=has_more is True, cursor=cursor or None)


def _user_page(found: Envelope, listed: Sequence[msgspec.Raw], endpoint: str) -> UserPage:
    gathered = gather_users(listed, endpoint, Detail.LISTED)
    return UserPage(
        own=list(gathered.users),
        gathered=gathered,
        has_more=found.has_next_page is True,
        cursor=found.next_cursor or None,
    )


def _is_null(raw: msgspec.Raw) -> bool:
    return bytes(raw).strip() in (b"null", b"")


def _is_hollow(raw: msgspec.Raw) -> bool:
    """Some missing posts come as an element with empty fields instead of not at all."""
    try:
        shown = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return False
    return isinstance(shown, dict) and not shown.get("id") and not shown.get("text")


def _told(found: Envelope) -> str:
    """The first reason given, under whichever of its names."""
    return next((said for said in (found.detail, found.msg, found.message, found.error) if isinstance(said, str)), "")


def _problem(body: bytes) -> str:
    try:
        found = _envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:300].decode("utf-8", "replace")
    return _told(found) or body[:300].decode("utf-8", "replace")
