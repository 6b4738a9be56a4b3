"""A visit keeps to its hosts' wishes: robots, turns, hops, kept pages, and whose fault a fault is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mistnet.governor.errors import RateLimited, SourceBlocked, SourceDown
from mistnet.kit.transport import retry_after
from mistnet.queue.errors import NotNow
from mistnet.shops.model import CrawlRefused, Hop, PageVisit, UnsafeAddress
from mistnet.sources.web.client import WebRules, worth_reading
from mistnet.sources.web.port import WebAnswer
from tests.shops import Pages, Visitor, html, redirect
from tests.support import START

HOST = "https://shop.example.com"


def robots(text: str, host: str = HOST) -> dict[str, WebAnswer]:
    return {f"{host}/robots.txt": WebAnswer(status=200, headers={"content-type": "text/plain"}, body=text.encode())}


async def test_robots_txt_is_asked_once_and_honoured() -> None:
    visitor = Visitor(pages=Pages({**robots("User-agent: *\nDisallow: /private/"), f"{HOST}/a": html(b"hello")}))
    assert (await visitor.visit(f"{HOST}/a")).body == b"hello"
    with pytest.raises(CrawlRefused, match=r"robots\.txt"):
        await visitor.visit(f"{HOST}/private/b")
    assert visitor.pages.urls == [f"{HOST}/robots.txt", f"{HOST}/a"]


async def test_rules_for_us_by_name_go_before_rules_for_all() -> None:
    rules = "User-agent: mistnet\nDisallow: /\n\nUser-agent: *\nAllow: /"
    with pytest.raises(CrawlRefused):
        await Visitor(pages=Pages(robots(rules))).visit(f"{HOST}/a")


async def test_another_worker_knows_what_robots_txt_said() -> None:
    first = Visitor(pages=Pages({**robots("User-agent: *\nDisallow: /private/"), f"{HOST}/a": html(b"hello")}))
    await first.visit(f"{HOST}/a")
    second = Visitor(books=first.books)
    with pytest.raises(CrawlRefused):
        await second.visit(f"{HOST}/private/b")
    assert second.pages.urls == []


async def test_robots_txt_is_asked_again_after_a_day() -> None:
    visitor = Visitor(pages=Pages({**robots("User-agent: *\nDisallow: /"), f"{HOST}/a": html(b"hello")}))
    with pytest.raises(CrawlRefused):
        await visitor.visit(f"{HOST}/a")
    visitor.pages.answers |= robots("User-agent: *\nAllow: /")
    visitor.clock.turn(hours=25)
    assert (await visitor.visit(f"{HOST}/a")).body == b"hello"


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_host_that_cannot_say_what_it_allows_is_not_visited(status: int) -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/robots.txt": html(b"", status=status), f"{HOST}/a": html(b"hello")}))
    with pytest.raises(SourceDown, match=r"robots\.txt"):
        await visitor.visit(f"{HOST}/a")
    assert f"{HOST}/a" not in visitor.pages.urls


async def test_a_host_without_robots_txt_allows_everything() -> None:
    assert (await Visitor(pages=Pages({f"{HOST}/a": html(b"hello")})).visit(f"{HOST}/a")).body == b"hello"


async def test_robots_txt_is_not_asked_where_the_settings_say_so() -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/a": html(b"hello")}), rules=WebRules(robots=()))
    await visitor.visit(f"{HOST}/a")
    assert visitor.pages.urls == [f"{HOST}/a"]


async def test_the_redirect_of_a_robots_txt_goes_through_the_same_guard() -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/robots.txt": redirect("http://169.254.169.254/")}))
    with pytest.raises(UnsafeAddress):
        await visitor.visit(f"{HOST}/a")


async def test_a_host_is_visited_at_its_pace_and_those_turned_away_come_back_one_by_one() -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/a": html(b"hello")}), rules=WebRules(host_delay=2))
    await visitor.visit(f"{HOST}/a")
    waits = []
    for _ in range(3):
        with pytest.raises(NotNow) as refusal:
            await visitor.visit(f"{HOST}/a")
        waits.append((refusal.value.until - START).total_seconds())
    assert waits == [2, 4, 6]
    visitor.clock.turn(seconds=2)
    await visitor.visit(f"{HOST}/a")


@pytest.mark.parametrize(
    ("asked", "seconds"), [("Crawl-delay: 7", 7), ("Request-rate: 1/9", 9), ("Crawl-delay: 86400", 60), ("", 1)]
)
async def test_a_host_may_ask_for_longer_pauses_but_not_for_ever(asked: str, seconds: float) -> None:
    pages = Pages({**robots(f"User-agent: *\n{asked}"), f"{HOST}/a": html(b"hello")})
    visitor = Visitor(pages=pages)
    await visitor.visit(f"{HOST}/a")
    assert visitor.books.next_at["shop.example.com"] == START + timedelta(seconds=seconds)


async def test_redirects_are_followed_hop_by_hop_and_each_is_checked() -> None:
    pages = Pages({f"{HOST}/a": redirect("/b"), f"{HOST}/b": redirect("//other.example.com/c")})
    pages.answers["https://other.example.com/c"] = html(b"end")
    visitor = Visitor(pages=pages, rules=WebRules(robots=(), host_delay=0))
    visited = await visitor.visit(f"{HOST}/a")
    assert (visited.final_url, visited.body) == ("https://other.example.com/c", b"end")
    assert list(visited.hops) == [f"{HOST}/a", f"{HOST}/b"]


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1/", "http://2130706433/", "https://[::1]/", "file:///etc/passwd", "http://x:22/"]
)
async def test_a_redirect_to_where_nothing_should_be_fetched_ends_the_visit(location: str) -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/a": redirect(location)}), rules=WebRules(robots=()))
    with pytest.raises(UnsafeAddress):
        await visitor.visit(f"{HOST}/a")
    assert visitor.pages.urls == [f"{HOST}/a"]


async def test_redirects_without_an_end_are_given_up() -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/a": redirect("/a")}), rules=WebRules(robots=(), host_delay=0))
    with pytest.raises(CrawlRefused, match="more than 5 times"):
        await visitor.visit(f"{HOST}/a")
    assert len(visitor.pages.urls) == 6


async def test_a_hop_may_be_taken_note_of_without_being_visited() -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/a": redirect("/login")}), rules=WebRules(robots=()))
    visited = await visitor.visit(f"{HOST}/a", hop=lambda _before, _after: Hop.STOP)
    assert visited.final_url == f"{HOST}/login"
    with pytest.raises(CrawlRefused):
        await Visitor(pages=visitor.pages, rules=visitor.rules).visit(f"{HOST}/a", hop=lambda _b, _a: Hop.REFUSE)


def kept_for_an_hour() -> WebRules:
    return WebRules(robots=(), host_delay=0, cache_ttl=timedelta(hours=1))


async def test_a_kept_page_is_not_asked_for_again_while_it_is_fresh() -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/a": html(b"hello", etag='"1"')}), rules=kept_for_an_hour())
    assert not (await visitor.visit(f"{HOST}/a")).cached
    again = await visitor.visit(f"{HOST}/a")
    assert again.cached
    assert again.body == b"hello"
    assert len(visitor.pages.urls) == 1


async def test_a_stale_page_is_asked_for_only_if_it_changed() -> None:
    visitor = Visitor(
        pages=Pages({f"{HOST}/a": html(b"hello", etag='"1"', last_modified="Sun, 01 Mar 2026 00:00:00 GMT")}),
        rules=kept_for_an_hour(),
    )
    await visitor.visit(f"{HOST}/a")
    visitor.clock.turn(hours=2)
    visitor.pages.answers[f"{HOST}/a"] = WebAnswer(status=304, headers={}, body=b"")
    again = await visitor.visit(f"{HOST}/a")
    assert (again.body, again.cached, again.status) == (b"hello", False, 200)
    sent = visitor.pages.asked[-1][1]
    assert sent["If-None-Match"] == '"1"'
    assert sent["If-Modified-Since"] == "Sun, 01 Mar 2026 00:00:00 GMT"
    await visitor.visit(f"{HOST}/a")
    assert len(visitor.pages.urls) == 2, "fresh again"


@pytest.mark.parametrize("headers", [{"cache_control": "no-store"}, {"vary": "*"}])
async def test_what_its_sender_forbids_to_keep_is_not_kept(headers: dict[str, Any]) -> None:
    visitor = Visitor(pages=Pages({f"{HOST}/a": html(b"hello", **headers)}), rules=kept_for_an_hour())
    await visitor.visit(f"{HOST}/a")
    assert visitor.books.answers == {}


async def test_a_page_that_keeps_us_out_is_not_kept() -> None:
    async def blocked(_seen: PageVisit) -> None:
        raise SourceBlocked("web", "a captcha")

    visitor = Visitor(pages=Pages({f"{HOST}/a": html(b"riddle")}), rules=kept_for_an_hour())
    with pytest.raises(SourceBlocked):
        await visitor.visit(f"{HOST}/a", read=blocked)
    assert visitor.books.answers == {}


async def test_a_host_of_the_open_web_that_fails_is_left_alone_for_a_while() -> None:
    visitor = Visitor(pages=Pages(silent={"shop.example.com"}), rules=WebRules(robots=()))
    with pytest.raises(SourceDown):
        await visitor.visit(f"{HOST}/a")
    with pytest.raises(NotNow):
        await visitor.visit(f"{HOST}/b")
    assert visitor.books.next_at["shop.example.com"] >= START + timedelta(minutes=1)


async def test_too_many_requests_is_a_wait_for_as_long_as_the_host_says() -> None:
    pages = Pages({f"{HOST}/a": html(b"", status=429, retry_after="120")})
    with pytest.raises(NotNow) as refusal:
        await Visitor(pages=pages, rules=WebRules(robots=())).visit(f"{HOST}/a")
    assert refusal.value.until == START + timedelta(seconds=120)
    with pytest.raises(RateLimited):
        await Visitor(pages=pages, rules=WebRules(robots=())).visit(f"{HOST}/a", lane="shopee")


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("30", 30),
        (" 30 ", 30),
        ("Sun, 01 Mar 2026 12:01:00 GMT", 60),
        ("Sun, 01 Mar 2026 12:01:00", 60),
        ("Sun, 01 Mar 2020 12:01:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 -2300", 3_600),
        ("999999", 3_600),
        ("9" * 5_000, 3_600),
        ("0" * 5_000 + "5", 5),
        ("-5", None),
        ("1.5", None),
        ("\u0663", None),
        ("soon", None),
        ("Mon, " + "9" * 5_000 + " Jan 2026 00:00:00 GMT", None),
        ("Mon, 01 Jan 2026 00:00:00 +99999999999", None),
        ("", None),
        (None, None),
    ],
)
def test_a_wait_may_be_told_in_seconds_or_as_a_date(told: str | None, seconds: float | None) -> None:
    found = retry_after({} if told is None else {"Retry-After": told}, START, longest=timedelta(hours=1))
    assert found == (None if seconds is None else timedelta(seconds=seconds))


async def test_a_host_that_asks_for_a_wait_of_5000_digits_is_left_alone_for_an_hour() -> None:
    pages = Pages({f"{HOST}/a": html(b"", status=429, retry_after="9" * 5_000)})
    with pytest.raises(NotNow) as refusal:
        await Visitor(pages=pages, rules=WebRules(robots=())).visit(f"{HOST}/a")
    assert refusal.value.until == START + timedelta(hours=1)


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("text/html; charset=utf-8", True),
        ("application/ld+json", True),
        ("application/json", True),
        ("", True),
        ("image/png", False),
        ("application/pdf", False),
        ("video/mp4", False),
        ("application/octet-stream", False),
    ],
)
def test_only_what_can_be_read_is_read(kind: str, read: bool) -> None:
    assert (worth_reading(200, {"content-type": kind}) is None) is read
