"""A list for commands, routes and pages: its order, its pages, its filters and its records."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import Boolean, Integer, Select, Text, literal, select
from sqlalchemy.types import TypeEngine

from mistnet.kit.database import Database
from mistnet.kit.view import View, columns_of


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Bird(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    size: Size
    ringed: bool


KINDS: dict[str, TypeEngine[Any]] = {"id": Integer(), "name": Text(), "size": Text(), "ringed": Boolean()}
ROWS = [(1, "wren", "small", True), (2, "crow", "large", False), (3, "tit", "small", False), (4, "owl", "large", True)]


def _row(*values: object) -> Select[Any]:
    pairs = zip(KINDS.items(), values, strict=True)
    return select(*(literal(value, kind).label(name) for (name, kind), value in pairs))


FIRST, *OTHERS = (_row(*values) for values in ROWS)
FLOCK = FIRST.union_all(*OTHERS).subquery()
NEWEST = View(Bird, select(*columns_of(Bird, FLOCK)), FLOCK.c.id)
BY_SIZE = View(Bird, select(*columns_of(Bird, FLOCK)), FLOCK.c.size, FLOCK.c.id, descending=False)


async def test_pages_follow_one_another_without_a_gap(url: str) -> None:
    async with closing_database(url) as database:
        first = await NEWEST.page(database, limit=3)
        assert ([bird.name for bird in first.items], first.next) == (["owl", "tit", "crow"], 2)
        second = await NEWEST.page(database, after=first.next, limit=3)
        assert ([bird.name for bird in second.items], second.next) == (["wren"], None)


async def test_an_order_of_two_columns_has_pages_too(url: str) -> None:
    async with closing_database(url) as database:
        names = [[bird.name for bird in page] async for page in BY_SIZE.pages(database, size=2)]
    assert names == [["crow", "owl"], ["wren", "tit"]]


async def test_a_full_last_page_has_no_next(url: str) -> None:
    async with closing_database(url) as database:
        assert (await NEWEST.page(database, limit=4)).next is None


async def test_conditions_narrow_pages_and_counts(url: str) -> None:
    small = FLOCK.c.size == Size.SMALL
    async with closing_database(url) as database:
        assert (await NEWEST.page(database, small, limit=9)).items == [
            Bird(id=3, name="tit", size=Size.SMALL, ringed=False),
            Bird(id=1, name="wren", size=Size.SMALL, ringed=True),
        ]
        assert await NEWEST.first(database, FLOCK.c.name == "nightingale") is None
        assert [await NEWEST.count(database, small, most=most) for most in (9, 1)] == [2, 1]


@asynccontextmanager
async def closing_database(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    yield database
    await database.close()
