"""The client against answers of every kind: each status and each envelope means one thing."""

import json
from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from mistnet.governor.errors import BadRequest, BrokenAnswer, RateLimited, SourceDown, SourceRefused
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered
from mistnet.queue.errors import NotNow, WorkError
from mistnet.social.model import PostId, UserId
from mistnet.sources.x.client import XClient
from tests.support import START, OpenGate, TurnedClock, no_wait
from tests.unit.test_x_decode import AUTHOR, POST

KEY = "new1_sesame12"


class Canned:
    """Answers every question the same way, and remembers what was asked."""

    def __init__(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.headers = headers or {}
        self.asked: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(request)
        return HttpAnswer(status=self.status, headers=self.headers, body=self.body)


class Silent:
    async def send(self, request: HttpRequest) -> HttpAnswer:
        raise Unanswered(f"no route to host, header {request.headers['X-API-Key']}")


def client(transport: Any) -> XClient:
    return XClient(transport, gate=OpenGate(KEY), clock=TurnedClock(), sleep=no_wait)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, {"detail": "userName is required"}, BadRequest),
        (400, {"error": 5, "message": "bad"}, BadRequest),
        (401, {"error": "Unauthorized", "message": "API key is invalid"}, SourceRefused),
        (401, {"error": "Unauthorized", "message": "Credits is not enough.Please recharge"}, SourceRefused),
        (402, {"error": "Unauthorized", "message": "Credits is not enough.Please recharge"}, SourceRefused),
        (403, {"error": "Forbidden", "message": "API key required. Please include x-api-key"}, RateLimited),
        (403, {"error": "Forbidden", "message": "account closed"}, SourceRefused),
        (404, b"<html>nothing here</html>", BadRequest),
        (405, b"", BadRequest),
        (422, {"detail": [{"type": "missing", "loc": ["body", "file"]}]}, BadRequest),
        (429, {"error": "Too Many Requests", "message": "wait"}, RateLimited),
        (500, {"message": "boom"}, SourceDown),
        (502, b"<html>bad gateway</html>", SourceDown),
        (503, b"", SourceDown),
        (200, b"{", BrokenAnswer),
        (200, b'{"tweets": [', BrokenAnswer),
        (200, {"status": "error", "msg": "try later"}, BrokenAnswer),
        (200, {"has_next_page": False}, BrokenAnswer),
        (200, {"tweets": None}, BrokenAnswer),
        (200, {"tweets": {"id": 1}}, BrokenAnswer),
        (200, [], BrokenAnswer),
    ],
)
async def test_every_refusal_has_its_own_error(status: int, body: object, error: type[WorkError]) -> None:
    with pytest.raises(error) as raised:
        await client(Canned(status, body)).search("from:ann")
    assert type(raised.value) is error
    if isinstance(raised.value, NotNow):
        assert raised.value.until > START


async def test_a_wait_the_source_names_is_honoured() -> None:
    in_a_minute = format_datetime(START + timedelta(minutes=1), usegmt=True)
    for written, seconds in (("17", 17), (in_a_minute, 60), ("9" * 5_000, 3_600)):
        with pytest.raises(RateLimited) as raised:
            await client(Canned(429, {}, {"Retry-After": written})).search("from:ann")
        assert raised.value.until == START + timedelta(seconds=seconds)


async def test_no_answer_is_a_source_that_is_down_and_the_key_stays_secret() -> None:
    with pytest.raises(SourceDown) as raised:
        await client(Silent()).balance()
    assert KEY not in str(raised.value)
    canned = Canned(200, {"recharge_credits": 5, "total_bonus_credits": 7})
    assert await client(canned).balance() == 12
    assert canned.asked[0].headers["X-API-Key"] == KEY
    assert KEY not in repr(canned.asked[0])


async def test_an_unknown_handle_is_no_error() -> None:
    assert await client(Canned(200, {"status": "error", "msg": "user not found", "data": None})).user("nobody") is None


async def test_a_search_page_tells_its_posts_and_whether_there_are_more() -> None:
    canned = Canned(200, {"tweets": [POST, POST], "has_next_page": True, "next_cursor": "abc"})
    page = await client(canned).search("from:ann max_id:5", cursor="xyz")
    assert (page.own, page.has_more, page.cursor) == ([PostId(int(POST["id"]))], True, "abc")
    assert canned.asked[0].query == {"query": "from:ann max_id:5", "queryType": "Latest", "cursor": "xyz"}


async def test_hollow_posts_are_absent_ones() -> None:
    hollow = {"id": "", "text": "", "author": {}}
    found = await client(Canned(200, {"status": "success", "tweets": [hollow, POST]})).posts([PostId(1), PostId(2)])
    assert list(found.posts) == [int(POST["id"])]
    assert found.unreadable == []


async def test_lists_of_people_are_read() -> None:
    body = {"status": "success", "followers": [AUTHOR], "followings": [AUTHOR], "users": [AUTHOR]}
    asking = client(Canned(200, body))
    assert list((await asking.users([UserId(11)])).users) == [11]
    assert (await asking.followers("ann")).own == [11]
    assert (await asking.followings("ann")).own == [11]


async def test_a_list_that_is_missing_is_a_failure_not_an_empty_graph() -> None:
    asking = client(Canned(200, {"status": "success", "code": 0}))
    for question in (asking.followers("ann"), asking.users([UserId(1)])):
        with pytest.raises(BrokenAnswer, match="no '"):
            await question


@pytest.mark.parametrize(
    "body",
    [
        {"status": "success", "message": "success"},
        {"status": "success", "message": "success", "data": None},
        {"status": "success", "message": "success", "data": {"following": True}},
        {"status": "success", "message": "success", "data": {"following": "false", "followed_by": False}},
        {"status": "error", "message": "try later"},
    ],
)
async def test_whether_one_follows_another_is_never_guessed(body: object) -> None:
    with pytest.raises(BrokenAnswer):
        await client(Canned(200, body)).relation("ann", "bea")


async def test_an_unknown_user_has_no_relation() -> None:
    canned = Canned(200, {"status": "error", "msg": "user not found", "data": None})
    assert await client(canned).relation("ann", "bea") is None
    assert canned.asked[0].query == {"source_user_name": "ann", "target_user_name": "bea"}
