"""The simulated Threads speaks as the real one: tokens, pages, errors, faults; and says what is true."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.faults import Faults, SimFault
from mistnet.sim.service import NeverAnswers, SimAnswer
from mistnet.sim.shelf import SHELF
from mistnet.sim.threads import DEFAULT_TOKEN, ThreadsService
from tests.feeds import FeedOracle, threads_of


async def ask(service: ThreadsService, path: str, token: str = DEFAULT_TOKEN, **params: str) -> SimAnswer:
    return await service.handle("GET", path, urlencode({**params, "access_token": token}), {})


async def told(service: ThreadsService, path: str, **params: str) -> Any:
    answer = await ask(service, path, **params)
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def error(service: ThreadsService, path: str, token: str = DEFAULT_TOKEN, **params: str) -> Any:
    answer = await ask(service, path, token, **params)
    assert answer.status >= 400
    return json.loads(answer.body)["error"]


async def test_cursors_lead_through_a_whole_profile_and_next_bears_the_token() -> None:
    service = threads_of(3)
    handle = FeedOracle(service).open_handles[1]
    found: list[int] = []
    after = ""
    while True:
        page = await told(service, "/v1.0/profile_posts", username=handle, limit="7", after=after)
        found += [int(each["id"]) for each in page["data"]]
        assert len(page["data"]) <= 7
        if "next" not in page["paging"]:
            break
        assert f"access_token={DEFAULT_TOKEN}" in page["paging"]["next"]
        after = page["paging"]["cursors"]["after"]
    assert found == list(FeedOracle(service).feed(handle).posts)


async def test_fields_are_those_asked_for_and_the_id() -> None:
    service = threads_of(3)
    handle = FeedOracle(service).open_handles[1]
    page = await told(service, "/v1.0/profile_posts", username=handle, fields="text,poll_attachment{option_a}")
    assert {name for each in page["data"] for name in each} == {"id", "text"}
    assert set((await told(service, "/v1.0/profile_posts", username=handle))["data"][0]) == {"id"}


async def test_every_sort_of_refusal_has_its_number() -> None:
    service = threads_of(3)
    oracle = FeedOracle(service)
    lookup = "/v1.0/profile_lookup"
    assert (await error(service, lookup, username="nobody.at.all"))["error_subcode"] == 33
    assert (await error(service, lookup, username=oracle.truth.closed(WORLD_START_AT)[0]))["code"] == 100
    assert (await error(service, "/v1.0/5/conversation"))["error_subcode"] == 33
    assert (await error(service, "/v1.0/me", "wrong"))["code"] == 190
    assert (await error(service, "/v1.0/me/threads", after="broken"))["code"] == 100
    service.tokens[DEFAULT_TOKEN].scopes = ("threads_basic",)
    assert (await error(service, lookup, username=oracle.open_handles[0]))["code"] == 10
    service.tokens[DEFAULT_TOKEN].expires_at = WORLD_START_AT
    assert (await error(service, "/v1.0/me"))["error_subcode"] == 463


async def test_tokens_are_refreshed_when_they_are_a_day_old() -> None:
    at = [WORLD_START_AT]
    service = threads_of(3, now=lambda: at[0])
    refresh = {"grant_type": "th_refresh_token"}
    fresh = (await told(service, "/refresh_access_token", **refresh))["access_token"]
    assert (await error(service, "/refresh_access_token", fresh, **refresh))["code"] == 100
    at[0] += timedelta(days=59)
    facts = json.loads((await ask(service, "/debug_token", fresh, input_token=fresh)).body)["data"]
    assert facts["expires_at"] - facts["issued_at"] == 60 * 86_400
    assert (await error(service, "/v1.0/me"))["code"] == 190
    assert (await ask(service, "/v1.0/me", fresh)).status == 200


async def test_conversations_hold_what_everybody_said_newest_first_or_last() -> None:
    service = threads_of(3)
    feed = FeedOracle(service).feed(FeedOracle(service).open_handles[1])
    own = service.threads.post(feed.replies[0])
    assert own
    latest = await told(service, f"/v1.0/{own.root}/conversation", fields="timestamp,username", limit="100")
    first = await told(service, f"/v1.0/{own.root}/conversation", reverse="false", limit="100")
    assert [each["id"] for each in latest["data"]] == [each["id"] for each in first["data"]][::-1]
    assert str(own.id) in {each["id"] for each in latest["data"]}


def test_links_stand_in_every_place_and_lead_to_shops_that_answer() -> None:
    service = threads_of(3)
    links = [
        links
        for handle in FeedOracle(service).open_handles
        for links in FeedOracle(service).feed(handle).links.values()
    ]
    assert {place for each in links for place in each} == {
        "text",
        "attachment",
        "text_attachment",
        "text_attachment_link",
    }
    posted = "\n".join(url for each in links for url in each.values())
    assert sum(thing.canonical in posted for thing in SHELF) > 10


@pytest.mark.parametrize(
    "fault",
    sorted(
        set(SimFault)
        - {SimFault.LIST_CUT_OPEN, SimFault.LIST_CUT_SHORT, SimFault.LIST_HIDES_SOME, SimFault.EMPTY_AT_FIRST}
    ),
)
async def test_every_fault_can_strike(fault: SimFault) -> None:
    service = threads_of(3)
    handle = FeedOracle(service).open_handles[1]
    first = await told(service, "/v1.0/profile_posts", username=handle)
    service.faults = Faults(1, {fault: 1.0})
    asked = {"username": handle, "fields": "id,text,username,timestamp", "after": first["paging"]["cursors"]["after"]}
    try:
        answer = await ask(service, "/v1.0/profile_posts", **asked)
    except NeverAnswers:
        assert fault is SimFault.TIMEOUT
    else:
        service.faults = Faults()
        assert answer != await ask(service, "/v1.0/profile_posts", **asked)
    assert service.stats.faults[fault] == 1


async def test_usage_and_time_are_told_with_every_answer() -> None:
    service = threads_of(3)
    service.usage = 80
    answer = await ask(service, "/v1.0/me")
    assert json.loads(answer.headers["x-app-usage"])["call_count"] == 80
    assert answer.headers["date"] == "Thu, 01 Oct 2026 00:00:00 GMT"


async def test_the_first_answer_says_what_later_ones_say() -> None:
    fields = "id,is_quote_post,quoted_post,reposted_post,text"
    for seed in range(20):
        handle = FeedOracle(threads_of(seed)).open_handles[0]
        service = threads_of(seed)
        first, second = [
            await told(service, "/v1.0/profile_posts", username=handle, limit="50", fields=fields) for _ in range(2)
        ]
        assert first["data"] == second["data"], f"seed {seed}"
