"""Fills a SQLite database with as many posts as wanted, and with what belongs to them, past all handlers."""

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

ACCOUNTS = 100
PEOPLE = 5_000
LIVE_JOBS = 20_000
GAPS = 500
THREAD = 12
LONG_THREAD = 1_000
MONTH = timedelta(days=30)
FIRST_ID_MS = 1_288_834_974_657
SLICE = 50_000
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


def fill(path: str, posts: int) -> Stock:
    """One account has a quarter of all posts; one conversation has a thousand."""
    chance = random.Random(7)
    now = datetime.now(UTC)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.executemany(_USER, _users(now))
        made = iter(_posts(posts, now, chance))
        while some := list(islice(made, SLICE)):
            database.executemany(_POST, some)
        database.executemany(_ACCOUNT, _accounts(now))
        database.execute(_BOUNDS)
        database.executemany(_CALL, _calls(posts // 20, now, chance))
        database.executemany(_JOB, _jobs(now))
        for statement in _SHOPS:
            database.execute(statement, {"some": max(posts // 10, 1), "now": _shown(now)})
        database.commit()
        database.execute("ANALYZE")
        database.commit()
        (dead,) = database.execute("SELECT max(id) FROM jobs WHERE state = 'dead'").fetchone()
        (thread,) = database.execute(
            "SELECT conversation_id FROM posts GROUP BY conversation_id ORDER BY count(*) DESC LIMIT 1"
        ).fetchone()
        (stored,) = database.execute("SELECT count(*) FROM posts").fetchone()
    return Stock(posts=stored, account=1, conversation=thread, dead_job=dead)


_USER = (
    "INSERT INTO users (platform, id, handle, handle_key, name, detail, raw, posts_count, created_at, first_seen_at, "
    "last_updated_at, profiled_at) VALUES ('x', ?, ?, ?, ?, 'profile', '{}', ?, ?, ?, ?, ?)"
)
_ACCOUNT = (
    "INSERT INTO accounts (platform, user_id, state, state_since, tracked_at, backfilled_at, reposts_backfilled_at) "
    "VALUES ('x', ?, 'active', ?, ?, ?, ?)"
)
_BOUNDS = (
    "UPDATE accounts SET oldest_post_id = (SELECT min(id) FROM posts WHERE platform = 'x' AND author_id = user_id), "
    "newest_post_id = (SELECT max(id) FROM posts WHERE platform = 'x' AND author_id = user_id)"
)
_POST = (
    "INSERT INTO posts (platform, id, author_id, text, text_clean, created_at, conversation_id, in_reply_to_id, likes, "
    "replies, reposts, views, raw, first_seen_at, last_updated_at) "
    "VALUES ('x', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '{}', ?, ?)"
)
_CALL = (
    "INSERT INTO calls (source, key_label, endpoint, at, seconds, status, items, credits, account_id) "
    "VALUES ('x', 'key-1', 'tweet/advanced_search', ?, 0.2, 200, 20, 300, ?)"
)
_JOB = (
    "INSERT INTO jobs (kind, key, lane, class, state, args, attempts, max_attempts, run_at, created_at, last_error) "
    "VALUES (?, ?, 'x', 3, ?, '{}', ?, 5, ?, ?, ?)"
)

# A post in ten has a link of its own; one link in twenty is short and leads to the one before; ten name one product.
_NUMBERED = "WITH s AS (SELECT row_number() OVER () AS n, id FROM posts WHERE platform = 'x' LIMIT :some)"
_SHOPS = (
    f"""INSERT INTO products (platform, region, shop_id, item_id, url, title, first_seen_at, last_seen_at, offer_id)
        {_NUMBERED}
        SELECT 'shopee', 'tw', '1', n, 'https://shopee.tw/product/1/' || n, 'A cup ' || n, :now, :now, n
        FROM s WHERE n <= max(:some / 10, 1)""",
    f"""INSERT INTO links (url_norm, url, host, lane, platform, kind, state, product_id, leads_to, first_seen_at)
        {_NUMBERED}
        SELECT 'https://shopee.tw/product/2/' || n, 'https://shopee.tw/product/2/' || n, 'shopee.tw',
            CASE n % 4 WHEN 0 THEN 'ebay' ELSE 'shopee' END, 'shopee', CASE n % 20 WHEN 0 THEN 'short' ELSE 'item' END,
            CASE n % 5 WHEN 0 THEN 'new' ELSE 'crawled' END, n % max(:some / 10, 1) + 1,
            CASE n % 20 WHEN 0 THEN n - 1 END, :now
        FROM s""",
    f"""INSERT INTO post_links (platform, post_id, link_id, place, nr, url, seen_at)
        {_NUMBERED} SELECT 'x', id, n, 'text', 0, 'https://shopee.tw/cup-i.2.' || n, :now FROM s""",
    f"""INSERT INTO offers (product_id, observed_at, last_seen_at, amount, currency, content_hash, path, confidence,
            evidence)
        {_NUMBERED} SELECT n % max(:some / 10, 1) + 1, :now, :now, '199', 'TWD', n, 'p', 1.0, '[]' FROM s""",
    f"INSERT INTO crawls (link_id, at, outcome) {_NUMBERED} SELECT n, :now, 'offer' FROM s",
)


def _shown(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def _users(now: datetime) -> Iterator[Row]:
    born, seen = _shown(now - timedelta(days=3_000)), _shown(now)
    for each in range(1, ACCOUNTS + PEOPLE + 1):
        yield each, f"User{each}", f"user{each}", f"Name of {each}", 10_000, born, seen, seen, seen


def _accounts(now: datetime) -> Iterator[Row]:
    at = _shown(now - MONTH)
    for each in range(1, ACCOUNTS + 1):
        yield each, at, at, at, at


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
            text = " ".join(chance.choices(WORDS, k=12))
            seen = _shown(now - MONTH * (1 - made / wanted))
            shown = _shown(at)
            yield post_id, _author(place, chance), text, text, shown, root, above, 5, 1, 2, 900, seen, seen
            above = post_id
            made += 1


def _author(place: int, chance: random.Random) -> int:
    if place % 2:
        return ACCOUNTS + chance.randint(1, PEOPLE)
    return 1 if chance.random() < 0.5 else chance.randint(2, ACCOUNTS)


def _calls(wanted: int, now: datetime, chance: random.Random) -> Iterator[Row]:
    for each in range(wanted):
        yield _shown(now - MONTH * (1 - each / wanted)), chance.randint(1, ACCOUNTS)


def _jobs(now: datetime) -> Iterator[Row]:
    at = _shown(now + timedelta(days=1))
    for each in range(LIVE_JOBS):
        yield ("walk" if each % 3 else "hydrate_user"), str(each), "pending", 0, at, at, None
    for each in range(GAPS):
        yield "hydrate_post", f"gap {each}", "dead", 5, at, at, f"it broke in way {each % 7}"
