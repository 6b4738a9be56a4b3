"""The calls to the Threads API, and the values decoded from its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from mistnet.governor.errors import UNREADABLE, BrokenAnswer, NotPermitted, reading_answer
from mistnet.governor.model import CallPurpose, Gate
from mistnet.kit.clock import Clock
from mistnet.kit.transport import Transport
from mistnet.social.errors import NotShown
from mistnet.social.feeds import FeedPage, FeedProfile
from mistnet.social.model import THREADS, Gathered, PostId, User
from mistnet.sources.threads.asking import SOURCE, Asker, Heard, ThreadsAnswer, ThreadsRequest
from mistnet.sources.threads.decode import (
    OWN_FIELDS,
    OWN_PROFILE_FIELDS,
    POST_FIELDS,
    REPLY_FIELDS,
    TokenFacts,
    TokenFactsEnvelope,
    TokenPayload,
    gather_posts,
    read_profile,
)
from mistnet.sources.threads.tokens import TokenKeeper

T = TypeVar("T")

VERSION: Final = "/v1.0"
PAGE_SIZE: Final = 100
OWN_PROFILE_HOLDS: Final = timedelta(hours=1)
NO_JOB: Final = CallPurpose()

_token = msgspec.json.Decoder(TokenPayload, strict=False).decode
_facts = msgspec.json.Decoder(TokenFactsEnvelope, strict=False).decode


class ThreadsClient:
    """Calls Threads and raises typed errors. It does not know the jobs that it is called for."""

    platform = THREADS

    def __init__(
        self,
        transport: Transport,
        *,
        gate: Gate,
        clock: Clock,
        keeper: TokenKeeper,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._asker = Asker(transport, gate=gate, clock=clock, keeper=keeper, sleep=sleep)
        self._clock = clock
        self._keeper = keeper
        self._own: tuple[str, datetime, User] | None = None

    async def me(self, *, purpose: CallPurpose = NO_JOB) -> User:
        """The owner of the token. Fetched at most once an hour."""
        token, now = self._keeper.token or "", self._clock.now()
        # Another token may belong to another account.
        if self._own and self._own[0] == token and now - self._own[1] < OWN_PROFILE_HOLDS:
            return self._own[2]
        question = _question("me", {"fields": ",".join(OWN_PROFILE_FIELDS)})
        user = await self._asker.ask(question, _profile_in("me"), purpose)
        self._own = token, now, user
        return user

    async def is_own(self, handle: str, *, purpose: CallPurpose = NO_JOB) -> bool:
        return ((await self.me(purpose=purpose)).handle or "").lower() == handle.lower()

    async def profile(self, handle: str, *, purpose: CallPurpose = NO_JOB) -> FeedProfile | None:
        """The profile of a handle; None if there is no such user, or Threads does not show them."""
        if await self.is_own(handle, purpose=purpose):
            return FeedProfile(user=await self.me(purpose=purpose), own=True)
        question = _question("profile_lookup", {"username": handle})
        try:
            user = await self._asker.ask(question, _profile_in("profile_lookup"), purpose)
        except NotShown:
            return None
        return FeedProfile(user=user, own=False)

    async def posts(
        self, handle: str, *, own: bool, after: str | None = None, purpose: CallPurpose = NO_JOB
    ) -> FeedPage:
        """An account's posts, newest first; without replies."""
        if own:
            return await self._page("me/threads", OWN_FIELDS, after, purpose, author=handle)
        asked = {"username": handle}
        return await self._page("profile_posts", POST_FIELDS, after, purpose, author=handle, asked=asked)

    async def own_replies(self, *, after: str | None = None, purpose: CallPurpose = NO_JOB) -> FeedPage:
        """The replies of the token's owner, newest first."""
        return await self._page("me/replies", REPLY_FIELDS, after, purpose)

    async def conversation(
        self, post_id: PostId, *, after: str | None = None, purpose: CallPurpose = NO_JOB
    ) -> FeedPage:
        """The whole conversation below a post, including replies to replies, newest first."""
        return await self._page(f"{post_id}/conversation", REPLY_FIELDS, after, purpose, asked={"reverse": "true"})

    async def post(self, post_id: PostId, *, purpose: CallPurpose = NO_JOB) -> Gathered | None:
        """One post; None if it was deleted, or is not visible to this token."""

        def read(heard: Heard) -> ThreadsAnswer[Gathered]:
            gathered, own, _ = gather_posts([msgspec.Raw(heard.body)], "media")
            return ThreadsAnswer(gathered, len(own))

        question = _question(str(post_id), {"fields": ",".join(REPLY_FIELDS)}, endpoint="media")
        try:
            return await self._asker.ask(question, read, purpose)
        except (NotShown, NotPermitted):
            return None

    async def token_facts(self) -> TokenFacts:
        """What Threads knows about our token."""

        def read(heard: Heard) -> ThreadsAnswer[TokenFacts]:
            facts = _decoded(_facts, heard.body, "debug_token").data
            if facts is None:
                raise BrokenAnswer(SOURCE, "debug_token", "no 'data' in it")
            return ThreadsAnswer(facts, 1)

        asked = {"input_token": self._asker.require_token()}
        return await self._asker.ask(
            ThreadsRequest(path="/debug_token", endpoint="debug_token", hidden=asked), read, NO_JOB
        )

    async def refresh(self) -> None:
        """Exchange the token for one that expires later, and store it."""
        endpoint = "refresh_access_token"
        question = ThreadsRequest(
            path=f"/{endpoint}", endpoint=endpoint, query={"grant_type": "th_refresh_token"}, bears_token=True
        )
        fresh = await self._asker.ask(
            question, lambda heard: ThreadsAnswer(_decoded(_token, heard.body, endpoint), 1), NO_JOB
        )
        now = self._clock.now()
        expires_at = now + timedelta(seconds=fresh.expires_in) if fresh.expires_in else None
        self._keeper.keep(fresh.access_token, issued_at=now, expires_at=expires_at)
        self._own = None

    async def _page(
        self,
        path: str,
        fields: tuple[str, ...],
        after: str | None,
        purpose: CallPurpose,
        *,
        author: str | None = None,
        asked: Mapping[str, str | None] | None = None,
    ) -> FeedPage:
        first, _, rest = path.partition("/")
        endpoint = f"media/{rest}" if first.isdecimal() else path  # the ledger needs no ids
        query = {"fields": ",".join(fields), "limit": str(PAGE_SIZE), "after": after, **(asked or {})}

        def read(heard: Heard) -> ThreadsAnswer[FeedPage]:
            if bytes(heard.envelope.data) in (b"", b"null"):
                raise BrokenAnswer(SOURCE, endpoint, "no 'data' in it")
            with reading_answer(SOURCE, endpoint):
                elements = msgspec.json.decode(heard.envelope.data, type=list[msgspec.Raw])
            gathered, own, answered = gather_posts(elements, endpoint, author=author)
            # `next` says whether there is a next page; its URL contains a token and is never used.
            paging, cursor = heard.envelope.paging, None
            if paging and paging.next:
                cursor = paging.cursors.after if paging.cursors else None
                if not cursor:
                    raise BrokenAnswer(SOURCE, endpoint, "a page that claims there is more and does not say where")
            page = FeedPage(own=own, gathered=gathered, cursor=cursor, at=heard.at, answered=answered)
            return ThreadsAnswer(page, len(own))

        return await self._asker.ask(_question(path, query, endpoint=endpoint), read, purpose)


def _question(path: str, query: Mapping[str, str | None], *, endpoint: str | None = None) -> ThreadsRequest:
    return ThreadsRequest(path=f"{VERSION}/{path}", endpoint=endpoint or path, query=query)


def _profile_in(endpoint: str) -> Callable[[Heard], ThreadsAnswer[User]]:
    def read(heard: Heard) -> ThreadsAnswer[User]:
        with reading_answer(SOURCE, endpoint):
            return ThreadsAnswer(read_profile(heard.body), 1)

    return read


def _decoded(decode: Callable[[bytes], T], body: bytes, endpoint: str) -> T:
    """The error names only the endpoint, because the body may contain a token."""
    try:
        return decode(body)
    except UNREADABLE:
        raise BrokenAnswer(SOURCE, endpoint, "it lacks what was asked for") from None
