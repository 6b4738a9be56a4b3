"""Fills a database with as many posts as wanted, and with what belongs to them, past all handlers."""

import asyncio
import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Protocol

import asyncpg

ACCOUNTS = 100
PEOPLE = 5_000
LIVE_JOBS = 20_000
GAPS = 500
THREAD = 12
LONG_THREAD = 1_000
MONTH = timedelta(days=30)
FIRST_ID_MS = 1_288_834_974_657
SLICE = 50_000
RARER_WORDS = 50_000
WORDS = (
    "the",
    "rare",
    "coin",
    "market",
    "opens",
    "early",
    "rain",
    "birds",
    "maps",
    "silver",
    "stamp",
    "auction",
    "price",
)

Row = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What pages are asked for: the busiest account, a long conversation, a dead job."""

    posts: int
    account: int
    conversation: int
    dead_job: int


class Filler(Protocol):
    """Writes rows and runs statements as fast as one database can."""

    def add(self, table: str, columns: str, rows: Iterable[Row]) -> None: ...
    def run(self, statement: str) -> None: ...
    def value(self, query: str) -> Any: ...
    def finish(self) -> None: ...


class _Sqlite:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute("PRAGMA synchronous = OFF")

    def add(self, table: str, columns: str, rows: Iterable[Row]) -> None:
        names = columns.split()
        insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        self._database.executemany(insert, ([_shown(each) for each in row] for row in rows))

    def run(self, statement: str) -> None:
        self._database.execute(statement)

    def value(self, query: str) -> Any:
        return self._database.execute(query).fetchone()[0]

    def finish(self) -> None:
        self._database.commit()
        self._database.execute("ANALYZE")
        self._database.commit()


class _Postgres:
    """The indexes of posts are made once their rows are there, and no foreign key is checked row by row."""

    def __init__(self, runner: asyncio.Runner, connection: asyncpg.Connection) -> None:
        self._runner = runner
        self._connection = connection
        self.run("SET session_replication_role = replica")
        self.run("SET maintenance_work_mem = '1GB'")
        own = "FROM pg_indexes WHERE tablename = 'posts' AND indexname <> 'posts_pkey'"
        self._indexes = runner.run(connection.fetch(f"SELECT indexname, indexdef {own}"))
        for index in self._indexes:
            self.run(f"DROP INDEX {index['indexname']}")

    def add(self, table: str, columns: str, rows: Iterable[Row]) -> None:
        made = iter(rows)
        while some := list(islice(made, SLICE)):
            self._runner.run(self._connection.copy_records_to_table(table, records=some, columns=columns.split()))
        if table == "posts":
            for index in self._indexes:
                self.run(index["indexdef"])

    def run(self, statement: str) -> None:
        self._runner.run(self._connection.execute(statement, timeout=3600))

    def value(self, query: str) -> Any:
        return self._runner.run(self._connection.fetchval(query))

    def finish(self) -> None:
        # No trigger has counted the rows, as a replica has none.
        for statement in _COUNTS:
            self.run(statement)
        self.run("VACUUM (ANALYZE)")


def fill(dsn: str, posts: int) -> Stock:
    """One account has a quarter of all posts; one conversation has a thousand."""
    if "://" not in dsn:
        with closing(sqlite3.connect(dsn)) as database:
            return _fill(_Sqlite(database), posts)
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(dsn))
        try:
            return _fill(_Postgres(runner, connection), posts)
        finally:
            runner.run(connection.close())


def _fill(database: Filler, posts: int) -> Stock:
    chance = random.Random(7)
    now = datetime.now(UTC)
    seen, born = now - MONTH, now - timedelta(days=3_000)
    names = ((f"User{each}", f"user{each}", f"Name of {each}", each) for each in range(1, ACCOUNTS + PEOPLE + 1))
    database.add("users", _USER, (("x", *each, "profile", "{}", 10_000, born, now, now, now) for each in names))
    database.add("posts", _POST, _posts(posts, now, chance))
    database.add("accounts", _ACCOUNT, (("x", n, "active", seen, seen, seen, seen) for n in range(1, ACCOUNTS + 1)))
    database.run(_BOUNDS)
    database.add("calls", _CALL, _calls(posts // 20, now, chance))
    database.add("jobs", _JOB, _jobs(now))
    for statement in _SHOPS:
        links = max(posts // 10, 1)
        database.run(statement.format(links=links, products=max(links // 10, 1), now=_shown(now)))
    database.finish()
    busiest = "SELECT conversation_id FROM posts GROUP BY conversation_id ORDER BY count(*) DESC LIMIT 1"
    return Stock(
        posts=database.value("SELECT count(*) FROM posts"),
        account=1,
        conversation=database.value(busiest),
        dead_job=database.value("SELECT max(id) FROM jobs WHERE state = 'dead'"),
    )


_USER = "platform handle handle_key name id detail raw posts_count created_at first_seen_at last_updated_at profiled_at"
_ACCOUNT = "platform user_id state state_since tracked_at backfilled_at reposts_backfilled_at"
_BOUNDS = (
    "UPDATE accounts SET oldest_post_id = (SELECT min(id) FROM posts WHERE platform = 'x' AND author_id = user_id), "
    "newest_post_id = (SELECT max(id) FROM posts WHERE platform = 'x' AND author_id = user_id)"
)
_POST = (
    "platform id author_id text text_clean created_at conversation_id in_reply_to_id likes replies reposts views raw "
    "first_seen_at last_updated_at"
)
_CALL = "source key_label endpoint at seconds status items credits account_id"
_JOB = "kind key lane class state args attempts max_attempts run_at created_at last_error"

_SUMS = "count(*), count(*), sum(items), sum(credits), 0 FROM calls GROUP BY"
_COUNTS = (
    f"INSERT INTO call_hours SELECT to_char(timezone('UTC', at), 'YYYY-MM-DD HH24'), source, endpoint, {_SUMS} 1, 2, 3",
    f"INSERT INTO call_days SELECT to_char(timezone('UTC', at), 'YYYY-MM-DD'), account_id, {_SUMS} 1, 2",
    """INSERT INTO account_posts SELECT a.platform, a.user_id,
        (SELECT count(*) FROM posts p WHERE p.platform = a.platform AND p.author_id = a.user_id) FROM accounts a""",
)

# A post in ten has a link of its own; one link in twenty is short and leads to the one before; ten name one product.
_NUMBERED = "WITH s AS (SELECT row_number() OVER () AS n, id FROM posts WHERE platform = 'x' LIMIT {links})"
_SHOPS = (
    f"""INSERT INTO products (platform, region, shop_id, item_id, url, title, first_seen_at, last_seen_at, offer_id)
        {_NUMBERED}
        SELECT 'shopee', 'tw', '1', n, 'https://shopee.tw/product/1/' || n, 'A cup ' || n, '{{now}}', '{{now}}', n
        FROM s WHERE n <= {{products}}""",
    f"""INSERT INTO links (url_norm, url, host, lane, platform, kind, state, product_id, leads_to, first_seen_at)
        {_NUMBERED}
        SELECT 'https://shopee.tw/product/2/' || n, 'https://shopee.tw/product/2/' || n, 'shopee.tw',
            CASE n % 4 WHEN 0 THEN 'ebay' ELSE 'shopee' END, 'shopee', CASE n % 20 WHEN 0 THEN 'short' ELSE 'item' END,
            CASE n % 5 WHEN 0 THEN 'new' ELSE 'crawled' END, n % {{products}} + 1,
            CASE n % 20 WHEN 0 THEN n - 1 END, '{{now}}'
        FROM s""",
    f"""INSERT INTO post_links (platform, post_id, link_id, place, nr, url, seen_at)
        {_NUMBERED} SELECT 'x', id, n, 'text', 0, 'https://shopee.tw/cup-i.2.' || n, '{{now}}' FROM s""",
    f"""INSERT INTO offers (product_id, observed_at, last_seen_at, amount, currency, content_hash, path, confidence,
            evidence)
        {_NUMBERED}
        SELECT n % {{products}} + 1, '{{now}}', '{{now}}', '199', 'TWD', n, 'p', 1.0, '[]' FROM s""",
    f"INSERT INTO crawls (link_id, at, outcome) {_NUMBERED} SELECT n, '{{now}}', 'offer' FROM s",
)


def _shown(value: Any) -> Any:
    """A time as SQLite keeps it."""
    return value.replace(tzinfo=None).isoformat(" ", "microseconds") if isinstance(value, datetime) else value


def _posts(wanted: int, now: datetime, chance: random.Random) -> Iterator[Row]:
    """In the order of their ids; every thread is a chain of answers, begun by an account."""
    begin = now - timedelta(days=2_000)
    step = timedelta(days=1_999) / wanted
    made = 0
    while made < wanted:
        length = min(LONG_THREAD if made == 0 else chance.randint(1, THREAD), wanted - made)
        root = above = None
        for place in range(length):
            at = begin + step * made
            post_id = (int(at.timestamp() * 1000) - FIRST_ID_MS << 22) | (made & 0xFFFFF)
            root = root or post_id
            # A word of the rest of the language: the first is in one post in ten, the last in one of 500,000.
            text = " ".join([*chance.choices(WORDS, k=12), f"word{int(RARER_WORDS ** chance.random())}"])
            seen = now - MONTH * (1 - made / wanted)
            counts = (5, 1, 2, 900)
            yield "x", post_id, _author(place, chance), text, text, at, root, above, *counts, "{}", seen, seen
            above = post_id
            made += 1


def _author(place: int, chance: random.Random) -> int:
    if place % 2:
        return ACCOUNTS + chance.randint(1, PEOPLE)
    return 1 if chance.random() < 0.5 else chance.randint(2, ACCOUNTS)


def _calls(wanted: int, now: datetime, chance: random.Random) -> Iterator[Row]:
    for each in range(wanted):
        at, account = now - MONTH * (1 - each / wanted), chance.randint(1, ACCOUNTS)
        yield "x", "key-1", "tweet/advanced_search", at, 0.2, 200, 20, 300, account


def _jobs(now: datetime) -> Iterator[Row]:
    at = now + timedelta(days=1)
    for each in range(LIVE_JOBS):
        yield ("walk" if each % 3 else "hydrate_user"), str(each), "x", 3, "pending", "{}", 0, 5, at, at, None
    for each in range(GAPS):
        yield "hydrate_post", f"gap {each}", "x", 3, "dead", "{}", 5, 5, at, at, f"it broke in way {each % 7}"
