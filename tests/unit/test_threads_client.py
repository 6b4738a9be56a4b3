"""The Threads client: what it asks, how it names errors, heeds usage, keeps its token to itself and refreshes it."""

import json
import stat
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mistnet.governor.errors import (
    BadRequest,
    BrokenAnswer,
    NotPermitted,
    RateLimited,
    SourceDown,
    SourcePaused,
    SourceRefused,
)
from mistnet.kit.errors import MistnetError, SettingsError
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered
from mistnet.queue.errors import NotNow, WorkError
from mistnet.social.errors import NotShown
from mistnet.social.model import PostId
from mistnet.sources.threads.asking import Usage, pause_after, usage_of
from mistnet.sources.threads.client import ThreadsClient
from mistnet.sources.threads.tokens import TokenKeeper
from tests.support import OpenGate, TurnedClock, no_wait

TOKEN = "THAA-very-secret-token"
POST = {"id": "17889615691921648", "username": "ann", "text": "look", "timestamp": "2024-09-12T23:17:39+0000"}


def answer(value: object, status: int = 200, **headers: str) -> HttpAnswer:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return HttpAnswer(
        status=status, headers={name.replace("_", "-"): each for name, each in headers.items()}, body=body
    )


def error(code: int, status: int = 400, **more: Any) -> HttpAnswer:
    told = {"message": f"it broke for {TOKEN}", "type": "OAuthException", "code": code, **more}
    return answer({"error": told}, status)


class Wire:
    """Answers in turn, and remembers what was asked."""

    def __init__(self, *answers: HttpAnswer | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpAnswer:
        self.requests.append(request)
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def client(
    *answers: HttpAnswer | Exception, file: Path | None = None, token: str | None = TOKEN
) -> tuple[ThreadsClient, Wire, TurnedClock]:
    wire, clock = Wire(*answers), TurnedClock()
    keeper = TokenKeeper(token, file)
    return ThreadsClient(wire, gate=OpenGate("-"), clock=clock, keeper=keeper, sleep=no_wait), wire, clock


def page(*posts: Mapping[str, Any], after: str | None = None) -> HttpAnswer:
    paging: dict[str, Any] = {"cursors": {"before": "b", "after": after or "z"}}
    if after:
        paging["next"] = f"https://graph.threads.net/v1.0/x?access_token={TOKEN}&after={after}"
    return answer({"data": list(posts), "paging": paging})


async def test_posts_of_others_and_own_ones_are_asked_for_in_their_own_ways() -> None:
    threads, wire, _ = client(page(POST), page(POST), page(POST), page(POST))
    await threads.posts("ann", own=False, after="c1")
    await threads.posts("ann", own=True)
    await threads.own_replies()
    await threads.conversation(PostId(5))
    paths = ["profile_posts", "me/threads", "me/replies", "5/conversation"]
    assert [each.path for each in wire.requests] == [f"/v1.0/{path}" for path in paths]
    first = wire.requests[0]
    assert (first.query["username"], first.query["after"], first.query["limit"]) == ("ann", "c1", "100")
    assert {"link_attachment_url", "quoted_post", "has_replies", "timestamp"} <= set(first.query["fields"].split(","))
    assert "text_attachment{plaintext,link_attachment_url}" in first.query["fields"]
    assert "root_post" in wire.requests[3].query["fields"]
    assert "owner" in wire.requests[1].query["fields"]


async def test_the_token_travels_hidden_and_is_shown_by_nothing() -> None:
    threads, wire, _ = client(page(POST, after="c2"))
    found = await threads.posts("ann", own=False)
    (request,) = wire.requests
    assert request.hidden == {"access_token": TOKEN}
    assert TOKEN not in repr(request)
    assert found.cursor == "c2"
    assert TOKEN.encode() not in found.gathered.posts[found.own[0]].raw


async def test_a_token_that_comes_back_inside_a_post_is_not_kept() -> None:
    nested = {**POST, "children": {"data": [], "paging": {"next": f"https://g/?access_token={TOKEN}"}}}
    bad = {"id": "5", "text": f"no time, and {TOKEN}"}
    threads, *_ = client(page(nested, bad))
    found = await threads.posts("ann", own=False)
    kept = [post.raw for post in found.gathered.posts.values()] + [each.payload for each in found.gathered.unreadable]
    assert len(kept) == 2
    assert all(TOKEN.encode() not in each for each in kept)


async def test_pages_end_where_no_next_is_named_and_never_without_saying_where() -> None:
    threads, *_ = client(
        page(POST), answer({"data": []}), answer({"data": [], "paging": {"next": "https://g/"}}), answer({"paging": {}})
    )
    assert (await threads.posts("ann", own=False)).cursor is None
    assert (await threads.posts("ann", own=False)).is_empty_end
    for _ in range(2):
        with pytest.raises(BrokenAnswer):
            await threads.posts("ann", own=False)


MEANINGS: list[tuple[HttpAnswer, type[WorkError]]] = [
    *((error(code), SourceDown) for code in (1, 2)),
    (error(9999, is_transient=True), SourceDown),
    (error(100, 503), SourceDown),
    (answer(b"<html>502</html>", 502), SourceDown),
    *((error(code, 403), RateLimited) for code in (4, 17, 32, 341, 368, 613)),
    (answer({}, 429), RateLimited),
    *((error(code, 401), SourceRefused) for code in (102, 190)),
    (answer({}, 401), SourceRefused),
    *((error(code, 403), NotPermitted) for code in (3, 10, 200, 299)),
    (error(100, error_subcode=33), NotShown),
    (answer({}, 404), NotShown),
    (error(100), BadRequest),
    (answer({"error_message": "No app ID", "error_code": 4476002}, 400), BadRequest),
    (answer({"error": {"message": "in a 200", "code": 190}}), SourceRefused),
    (answer(b"[1,2"), BrokenAnswer),
    (answer(b"\\xff\\xfe"), BrokenAnswer),
]


@pytest.mark.parametrize(("came", "meaning"), MEANINGS, ids=lambda each: getattr(each, "__name__", ""))
async def test_every_error_is_named_for_what_it_means(came: HttpAnswer, meaning: type[WorkError]) -> None:
    threads, *_ = client(came)
    with pytest.raises(meaning) as caught:
        await threads.posts("ann", own=False)
    assert type(caught.value) is meaning
    kept = caught.value.exchange
    assert kept is not None
    assert TOKEN not in f"{caught.value} {kept.body} {kept.headers}"


async def test_a_limit_waits_as_long_as_it_is_told() -> None:
    long = answer({"error": {"code": 17}}, 429, retry_after="9" * 5_000)
    threads, _, clock = client(answer({"error": {"code": 17}}, 429, retry_after="90"), error(368, 403), long)
    for wait in (timedelta(seconds=90), timedelta(hours=1), timedelta(days=1)):
        with pytest.raises(RateLimited) as caught:
            await threads.posts("ann", own=False)
        assert caught.value.until == clock.now() + wait


async def test_a_failed_connection_is_tried_once_more_and_shows_no_address() -> None:
    lost = Unanswered(f"cannot connect to https://graph.threads.net/v1.0/me?access_token={TOKEN}")
    threads, wire, _ = client(lost, page(POST))
    assert (await threads.posts("ann", own=False)).own
    assert len(wire.requests) == 2
    threads, *_ = client(lost, lost)
    with pytest.raises(SourceDown) as caught:
        await threads.posts("ann", own=False)
    assert TOKEN not in f"{caught.value} {caught.value.exchange} {caught.value.__cause__} {caught.value!r}"


async def test_whose_token_it_is_is_asked_once_an_hour() -> None:
    me = answer({"id": "1", "username": "Ann"})
    other = answer({"username": "bob", "follower_count": 7})
    threads, wire, clock = client(me, other, error(100), me)
    own = await threads.profile("ann")
    assert own
    assert own.own
    found = await threads.profile("bob")
    assert found
    assert (found.own, found.user.followers_count) == (False, 7)
    assert await threads.profile("nobody") is None
    clock.turn(hours=2)
    assert await threads.is_own("ann")
    assert [each.path for each in wire.requests] == [f"/v1.0/{p}" for p in ("me", *["profile_lookup"] * 2, "me")]


async def test_a_post_that_is_gone_or_not_ours_to_see_is_none() -> None:
    threads, *_ = client(error(100, error_subcode=33), error(10, 403), answer(POST))
    assert await threads.post(PostId(5)) is None
    assert await threads.post(PostId(5)) is None
    found = await threads.post(PostId(17889615691921648))
    assert found
    assert list(found.posts) == [17889615691921648]


async def test_without_a_token_nothing_is_asked() -> None:
    threads, wire, _ = client(token=None)
    with pytest.raises(SourcePaused, match="no token"):
        await threads.posts("ann", own=False)
    assert wire.requests == []


async def test_usage_near_its_limit_slows_down_and_then_stops_calls() -> None:
    def used(percent: int) -> HttpAnswer:
        return answer({"data": []}, X_App_Usage=json.dumps({"call_count": 1, "total_time": percent}))

    threads, wire, clock = client(used(50), used(85), used(99), used(10), used(10))
    await threads.posts("ann", own=False)
    await threads.posts("ann", own=False)
    with pytest.raises(NotNow, match="85 % of what it allows is used") as slowed:
        await threads.posts("ann", own=False)
    assert timedelta(seconds=1) < slowed.value.until - clock.now() < timedelta(seconds=30)
    clock.turn(seconds=30)
    await threads.posts("ann", own=False)
    with pytest.raises(NotNow) as stopped:
        await threads.posts("ann", own=False)
    assert stopped.value.until - clock.now() == timedelta(minutes=5)
    clock.turn(minutes=5)
    await threads.posts("ann", own=False)
    await threads.posts("ann", own=False)
    assert len(wire.requests) == 5


def test_usage_is_read_from_both_headers_and_never_trusted_to_be_sane() -> None:
    business = {"17": [{"call_count": 97, "estimated_time_to_regain_access": 30}]}
    assert usage_of({"x-business-use-case-usage": json.dumps(business)}) == Usage(97.0, timedelta(minutes=30))
    assert pause_after(Usage(97.0, timedelta(minutes=30))) == timedelta(minutes=30)
    for nonsense in ("", "null", "[1]", "{", '{"call_count": "many"}', '{"call_count": -5}', '{"call_count": 1e300}'):
        assert usage_of({"X-App-Usage": nonsense}) == Usage()
    pauses = [pause_after(Usage(percent)) or timedelta() for percent in range(101)]
    assert pauses == sorted(pauses)


async def test_a_refreshed_token_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "token"
    fresh = answer({"access_token": "THAA-the-fresh-one", "token_type": "bearer", "expires_in": 5_184_000})
    threads, wire, clock = client(fresh, page(POST), file=file)
    await threads.refresh()
    assert (wire.requests[0].path, wire.requests[0].query) == (
        "/refresh_access_token",
        {"grant_type": "th_refresh_token"},
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["token"]
    await threads.posts("ann", own=False)
    assert wire.requests[1].hidden == {"access_token": "THAA-the-fresh-one"}
    other = TokenKeeper(TOKEN, file)
    assert (other.token, other.state.expires_at) == ("THAA-the-fresh-one", clock.now() + timedelta(days=60))
    assert other.state.refreshed
    assert TokenKeeper("THAA-another-configured", file).token == "THAA-another-configured"
    assert TokenKeeper(None, file).token == "THAA-the-fresh-one"
    assert "fresh" not in repr(other.kept)


async def test_an_answer_with_a_token_that_cannot_be_read_is_not_kept(tmp_path: Path) -> None:
    threads, *_ = client(answer({"access_token": {"nested": "THAA-the-fresh-one"}}), file=tmp_path / "token")
    with pytest.raises(BrokenAnswer) as caught:
        await threads.refresh()
    assert "the-fresh-one" not in f"{caught.value} {caught.value.exchange}"


def test_a_file_that_others_may_read_or_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    TokenKeeper(TOKEN, file).keep(TOKEN, issued_at=None, expires_at=None)
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        _ = TokenKeeper(TOKEN, file).token
    file.chmod(0o600)
    file.write_text("something else")
    with pytest.raises(SettingsError, match="does not hold a token"):
        _ = TokenKeeper(TOKEN, file).token
    with pytest.raises(SettingsError, match="cannot be written"):
        TokenKeeper(TOKEN, tmp_path / "no" / "folder").keep(TOKEN, issued_at=None, expires_at=None)


def test_a_file_changed_by_another_process_counts_at_once(tmp_path: Path) -> None:
    here, there = (TokenKeeper(TOKEN, tmp_path / "token") for _ in range(2))
    assert here.token == TOKEN
    there.keep("THAA-second", issued_at=None, expires_at=None)
    assert here.token == "THAA-second"
    there.keep("THAA-third", issued_at=None, expires_at=None)
    assert here.token == "THAA-third"
    assert isinstance(SettingsError("a", "b", "c"), MistnetError)
