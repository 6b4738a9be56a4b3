"""Random posts, links and offers, put into a database, and a plain model of what lineage must say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as some
from sqlalchemy import delete, insert, update

from mistnet.kit.database import Database
from mistnet.shops.tables import links, offers, post_links, products
from mistnet.social.model import THREADS, Platform, X
from mistnet.social.store.post_listing import SEARCH_ROWS
from mistnet.social.tables import missing, posts, users
from tests.support import START

HOUR = timedelta(hours=1)
AUTHORS = (11, 12)
PLACES = ("text", "entity", "quoted")


@dataclass(frozen=True)
class Written:
    """A post and the links it has, by place."""

    platform: Platform
    id: int
    author: int
    hour: int
    reposted: bool
    gone: bool
    links: frozenset[tuple[int, str]]

    @property
    def at(self) -> datetime:
        return START + self.hour * HOUR


@dataclass(frozen=True)
class Offered:
    id: int
    product: int
    hour: int
    lasting: int
    amount: Decimal | None
    currency: str
    doubted: bool

    @property
    def at(self) -> datetime:
        return START + self.hour * HOUR

    @property
    def last(self) -> datetime:
        return self.at + self.lasting * HOUR


@dataclass(frozen=True)
class Story:
    """Link `n` names the product `names[n]` and leads on to the link `leads[n]`, if any."""

    products: int
    names: Mapping[int, int | None]
    leads: Mapping[int, int | None]
    posts: Sequence[Written]
    offers: Sequence[Offered]
    now: datetime = field(default=START + 40 * 24 * HOUR)

    def products_of(self, link: int) -> set[int]:
        found: set[int] = set()
        passed: set[int] = set()
        at: int | None = link
        while at is not None and at not in passed:
            passed.add(at)
            if (named := self.names[at]) is not None:
                found.add(named)
            at = self.leads[at]
        return found

    def promoting(self, product: int) -> list[Written]:
        return [post for post in self.posts if any(product in self.products_of(link) for link, _ in post.links)]

    def kind(self, post: Written, product: int) -> str:
        places = {place for link, place in post.links if product in self.products_of(link)}
        return "repost" if post.reposted else "quote" if places == {"quoted"} else "own"

    def course(self, product: int) -> list[Offered]:
        known = [each for each in self.offers if each.product == product and not each.doubted]
        return sorted((each for each in known if each.amount is not None), key=lambda each: (each.at, each.id))


HOURS = some.integers(0, 24 * 60)


@some.composite
def stories(draw: some.DrawFn) -> Story:
    count, known = draw(some.integers(1, 3)), draw(some.integers(1, 7))
    names = {n: draw(some.none() | some.integers(1, count)) for n in range(1, known + 1)}
    leads = {n: draw(some.none() | some.integers(1, known)) for n in range(1, known + 1)}
    keys = some.tuples(some.sampled_from([X, THREADS]), some.integers(1, 60))
    mentions = some.frozensets(some.tuples(some.integers(1, known), some.sampled_from(PLACES)), max_size=4)
    posted = [
        Written(
            platform=platform,
            id=number,
            author=draw(some.sampled_from(AUTHORS)),
            hour=draw(HOURS),
            reposted=draw(some.booleans()),
            gone=draw(some.booleans()),
            links=draw(mentions),
        )
        for platform, number in draw(some.lists(keys, unique=True, max_size=9))
    ]
    amounts = some.none() | some.sampled_from([Decimal(each) for each in ("0", "9", "10", "100.50", "1000", "0.07")])
    offered = [
        Offered(
            id=place + 1,
            product=draw(some.integers(1, count)),
            hour=draw(HOURS),
            lasting=draw(some.integers(0, 24 * 20)),
            amount=draw(amounts),
            currency=draw(some.sampled_from(["TWD", "TWD", "USD"])),
            doubted=draw(some.booleans()) and draw(some.booleans()),
        )
        for place in range(draw(some.integers(0, 9)))
    ]
    return Story(count, names, leads, posted, offered)


async def tell_story(database: Database, story: Story) -> None:
    """Replace the story that was stored before."""
    async with database.transaction() as connection:
        for table in (post_links, missing, offers, posts, users, links, products):
            await connection.execute(delete(table))
        if database.dialect == "sqlite":
            await connection.execute(delete(SEARCH_ROWS))  # they number posts for good, even those that are gone
        for table, rows in _rows(story):
            if rows:
                await connection.execute(insert(table), rows)
        for number, target in story.leads.items():
            await connection.execute(update(links).where(links.c.id == number).values(leads_to=target))


def _rows(story: Story) -> Sequence[tuple[Any, list[dict[str, Any]]]]:
    seen = {"first_seen_at": START, "last_seen_at": START}
    people = [
        {"platform": platform, "id": author, "handle": f"{platform}{author}", "handle_key": f"{platform}{author}"}
        for platform in (X, THREADS)
        for author in AUTHORS
    ]
    about = {"detail": "profile", "raw": b"{}", "first_seen_at": START, "last_updated_at": START}
    return [
        (
            products,
            [
                {"id": n, "platform": "shopee", "item_id": str(n), "url": f"https://shop.example/{n}", **seen}
                for n in range(1, story.products + 1)
            ],
        ),
        (links, [_link(story, n) for n in sorted(story.names)]),
        (users, [{**each, **about} for each in people]),
        (posts, [_post(each) for each in story.posts]),
        (
            missing,
            [
                {"platform": each.platform, "what": "post", "id": each.id, "reason": "gone", "asked_at": START}
                for each in story.posts
                if each.gone
            ],
        ),
        (post_links, [row for each in story.posts for row in _mentions(each)]),
        (offers, [_offer(each) for each in story.offers]),
    ]


def _link(story: Story, number: int) -> dict[str, Any]:
    name = f"https://shop.example/link/{number}"
    return {
        "id": number,
        "url_norm": name,
        "url": name,
        "host": "shop.example",
        "lane": "shopee",
        "platform": "shopee",
        "kind": "item",
        "state": "crawled",
        "first_seen_at": START,
        "product_id": story.names[number],
    }


def _post(each: Written) -> dict[str, Any]:
    said = f"look at this {each.id}"
    return {
        "platform": each.platform,
        "id": each.id,
        "author_id": each.author,
        "text": said,
        "text_clean": said,
        "created_at": each.at,
        "raw": b"{}",
        "first_seen_at": START,
        "last_updated_at": START,
        "reposted_id": 7 if each.reposted else None,
    }


def _mentions(each: Written) -> list[dict[str, Any]]:
    return [
        {
            "platform": each.platform,
            "post_id": each.id,
            "link_id": link,
            "place": place,
            "nr": 0,
            "url": "https://s.example/x",
            "seen_at": START,
        }
        for link, place in sorted(each.links)
    ]


def _offer(each: Offered) -> dict[str, Any]:
    return {
        "id": each.id,
        "product_id": each.product,
        "observed_at": each.at,
        "last_seen_at": each.last,
        "amount": each.amount,
        "currency": each.currency,
        "content_hash": "h",
        "path": "p",
        "confidence": 1.0,
        "evidence": b"[]",
        "doubt": "no" if each.doubted else None,
    }
