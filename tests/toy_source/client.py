"""Calls the toy platform. Every call goes through the governor, and every fault becomes an error of mistnet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from mistnet import (
    BrokenAnswer,
    CallPurpose,
    Clock,
    Gate,
    Gathered,
    HttpRequest,
    Page,
    PostId,
    RateLimited,
    SourceDown,
    SourceRefused,
    Span,
    Transport,
    Unanswered,
    User,
    UserId,
)
from tests.toy_source.decode import TOY, ids, read_answer, read_page


class ToyClient:
    """What mistnet asks of a social source."""

    platform = TOY
    separate_reposts = False
    full_batch_from = None

    def __init__(self, http: Transport, gate: Gate, clock: Clock) -> None:
        self._http, self._gate, self._clock = http, gate, clock

    async def user(self, handle: str, *, purpose: CallPurpose) -> User | None:
        page = await self._call("people", purpose, name=handle)
        return next(iter(page.gathered.users.values()), None)

    async def users(self, user_ids: Sequence[UserId], *, purpose: CallPurpose) -> Gathered:
        return (await self._call("people", purpose, ids=ids(user_ids))).gathered

    async def posts(self, post_ids: Sequence[PostId], *, purpose: CallPurpose) -> Gathered:
        return (await self._call("notes", purpose, ids=ids(post_ids))).gathered

    async def search_posts(
        self, handles: Collection[str], span: Span, *, reposts: bool = False, purpose: CallPurpose
    ) -> Page:
        if reposts:
            return Page(own=[], gathered=Gathered({}, {}, []), has_more=False)
        query = {"by": ",".join(handles), "over": str(span.floor)}
        if span.ceiling is not None:
            query["upto"] = str(span.ceiling)
        return await self._call("notes", purpose, **query)

    async def _call(self, endpoint: str, purpose: CallPurpose, **query: str) -> Page:
        async with self._gate.call(endpoint, most=0, purpose=purpose) as call:
            request = HttpRequest(path=f"/{endpoint}", query=query, headers={"Authorization": f"Bearer {call.key}"})
            try:
                answer = await self._http.send(request)
            except Unanswered as error:
                raise SourceDown(TOY, str(error)) from error
            if answer.status == 429:
                raise RateLimited(TOY, self._clock.now() + timedelta(seconds=5))
            if answer.status == 401:
                later = self._clock.now() + timedelta(minutes=5)
                raise SourceRefused(TOY, later, "the token is refused", status=401)
            if answer.status != 200:
                raise SourceDown(TOY, f"{answer.status}", status=answer.status)
            try:
                page = read_page(read_answer(answer.body), endpoint)
            except ValueError as error:
                raise BrokenAnswer(TOY, endpoint, str(error)) from error
            call.settle(items=len(page.own) + len(page.gathered.users), credits_due=0)
        return page
