"""Scrapy: a spider over the same pages, and a pipeline that upserts authors and posts with SQLAlchemy."""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import scrapy
from scrapy.crawler import CrawlerProcess
from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite

from bench.collect.common import LOOKS_AT_THE_END, PASSES, PROFILE, SEARCH, Options, query
from bench.collect.side import Side, main
from bench.collect.source import KEY, Source
from mistnet.social.tables import posts, users

BATCH = 200
"""Items per commit; more are no faster."""

BULK = "bulk"
"""The form in which a whole batch is upserted at once; else each item by itself, as most pipelines do."""

SETTINGS = {
    "CONCURRENT_REQUESTS": 32,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
    "DOWNLOAD_DELAY": 0,
    "COOKIES_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
    "ITEM_PIPELINES": {"bench.collect.scrapy_side.Upserts": 100},
}
Item = dict[str, Any]


class Accounts(scrapy.Spider):  # type: ignore[misc]  # Scrapy is in the bench environment alone
    """Each account from its newest post down to its first, then its retweets likewise."""

    name = "accounts"

    def __init__(self, dsn: str, url: str, handles: str, form: str) -> None:
        super().__init__()
        self.dsn, self.bulk = dsn, form == BULK
        self._url, self._handles = url, handles.split(",")

    async def start(self) -> AsyncIterator[Any]:
        for handle in self._handles:
            yield self._ask(PROFILE, self.parse_profile, {"handle": handle}, userName=handle)

    def parse_profile(self, response: Any, handle: str) -> Iterator[Any]:
        yield {"user": user_of(response.json()["data"], detail="profile")}
        for filters in PASSES:
            yield self._page(handle, filters, None, 0)

    def parse_page(self, response: Any, handle: str, filters: str, ceiling: int | None, looks: int) -> Iterator[Any]:
        tweets = response.json()["tweets"]
        for tweet in tweets:
            yield from items_of(tweet)
        if tweets:
            yield self._page(handle, filters, min(int(tweet["id"]) for tweet in tweets) - 1, 0)
        elif looks + 1 < LOOKS_AT_THE_END:
            yield self._page(handle, filters, ceiling, looks + 1)

    def _page(self, handle: str, filters: str, ceiling: int | None, looks: int) -> Any:
        state = {"handle": handle, "filters": filters, "ceiling": ceiling, "looks": looks}
        return self._ask(SEARCH, self.parse_page, state, query=query(handle, filters, ceiling), queryType="Latest")

    def _ask(self, path: str, callback: Any, state: Item, **params: str) -> Any:
        url = f"{self._url}{path}?{urlencode(params)}"
        return scrapy.Request(url, callback, headers={"X-API-Key": KEY}, cb_kwargs=state, dont_filter=True)


def items_of(tweet: Item, *, nested: bool = False) -> Iterator[Item]:
    """What a post quotes or repeats comes first, then the post with its author."""
    shown = tweet.get("retweeted_tweet") or tweet.get("quoted_tweet")
    for original in (tweet.get("quoted_tweet"), tweet.get("retweeted_tweet")):
        if original:
            yield from items_of(original, nested=True)
    yield {"user": user_of(tweet["author"], detail="author"), "post": post_of(tweet, shown, nested=nested)}


def user_of(author: Item, *, detail: str) -> Item:
    now = datetime.now(UTC)
    bio = author.get("description") or (author.get("profile_bio") or {}).get("description")
    return {
        "platform": "x",
        "id": int(author["id"]),
        "handle": author.get("userName"),
        "handle_key": (author.get("userName") or "").lower(),
        "name": author.get("name"),
        "bio": bio,
        "location": author.get("location"),
        "website": author.get("url"),
        "avatar_url": author.get("profilePicture"),
        "banner_url": author.get("coverPicture"),
        "verified": author.get("isBlueVerified"),
        "verified_kind": author.get("verifiedType"),
        "protected": author.get("protected"),
        "automated": author.get("isAutomated"),
        "followers_count": author.get("followers"),
        "following_count": author.get("following"),
        "posts_count": author.get("statusesCount"),
        "media_count": author.get("mediaCount"),
        "likes_count": author.get("favouritesCount"),
        "created_at": moment(author["createdAt"]) if author.get("createdAt") else None,
        "detail": detail,
        "raw": json.dumps(author).encode(),
        "first_seen_at": now,
        "last_updated_at": now,
        "profiled_at": now if detail == "profile" else None,
    }


def post_of(tweet: Item, shown: Item | None, *, nested: bool) -> Item:
    now = datetime.now(UTC)
    return {
        "platform": "x",
        "id": int(tweet["id"]),
        "author_id": int(tweet["author"]["id"]),
        "text": tweet["text"],
        "text_clean": " ".join(tweet["text"].split()),
        "lang": tweet.get("lang"),
        "url": tweet.get("url"),
        "created_at": moment(tweet["createdAt"]),
        "conversation_id": number(tweet.get("conversationId")),
        "in_reply_to_id": number(tweet.get("inReplyToId")),
        "in_reply_to_user_id": number(tweet.get("inReplyToUserId")),
        "quoted_id": number((tweet.get("quoted_tweet") or {}).get("id")),
        "reposted_id": number((tweet.get("retweeted_tweet") or {}).get("id")),
        "referenced_text": shown["text"] if shown else None,
        "referenced_handle": shown["author"].get("userName") if shown else None,
        "referenced_media": listed(shown, "extendedEntities", "media") if shown else None,
        "media": listed(tweet, "extendedEntities", "media"),
        "links": listed(tweet, "entities", "urls"),
        "likes": tweet.get("likeCount"),
        "replies": tweet.get("replyCount"),
        "reposts": tweet.get("retweetCount"),
        "quotes": tweet.get("quoteCount"),
        "bookmarks": tweet.get("bookmarkCount"),
        "views": tweet.get("viewCount"),
        "nested": nested,
        "raw": json.dumps(tweet).encode(),
        "first_seen_at": now,
        "last_updated_at": now,
    }


def moment(text: str) -> datetime:
    if text[:1].isdigit():
        return datetime.fromisoformat(text)
    return datetime.strptime(text, "%a %b %d %H:%M:%S %z %Y")


def number(given: str | None) -> int | None:
    return int(given) if given else None


def listed(shown: Item, group: str, name: str) -> bytes | None:
    found = (shown.get(group) or {}).get(name)
    return json.dumps(found).encode() if found else None


class Upserts:
    """One connection per spider, a commit per batch."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        self._items: list[Item] = []

    @classmethod
    def from_crawler(cls, crawler: Any) -> "Upserts":
        return cls(crawler)

    def open_spider(self) -> None:
        self._bulk = self._crawler.spider.bulk
        self._engine = engine_of(self._crawler.spider.dsn)
        self._connection = self._engine.connect()
        self._upserts = {table.name: upsert(self._connection, table) for table in (users, posts)}

    def process_item(self, item: Item) -> Item:
        self._items.append(item)
        if not self._bulk:
            self._write([item])
        if len(self._items) >= BATCH:
            self._commit()
        return item

    def close_spider(self) -> None:
        self._commit()
        self._connection.close()
        self._engine.dispose()

    def _commit(self) -> None:
        if self._bulk:
            self._write(self._items)
        self._connection.commit()
        self._items.clear()

    def _write(self, items: list[Item]) -> None:
        """The last telling of each id wins."""
        for name, key in (("users", "user"), ("posts", "post")):
            found = {item[key]["id"]: item[key] for item in items if key in item}
            if found:
                self._connection.execute(self._upserts[name], list(found.values()))


def upsert(connection: Connection, table: Table) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    adding = dialect.insert(table)
    kept = {"platform", "id", "first_seen_at"}
    told = {column.name: adding.excluded[column.name] for column in table.columns if column.name not in kept}
    return adding.on_conflict_do_update(index_elements=["platform", "id"], set_=told)


def engine_of(dsn: str) -> Engine:
    if "://" in dsn:
        return create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    engine = create_engine(f"sqlite:///{dsn}")
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536"):
        connection.execute(f"PRAGMA {pragma}")


def command(options: Options, source: Source, handles: list[str]) -> list[str]:
    given = ("--dsn", options.dsn, "--url", source.url, "--handles", ",".join(handles), "--form", options.form)
    return [sys.executable, "-m", "bench.collect.scrapy_side", "collect", *given]


def setting(options: Options) -> str:
    upserts = "bulk upserts" if options.form == BULK else "an upsert per item"
    return f"{upserts}, {BATCH} items per commit"


def _collect() -> None:
    parser = argparse.ArgumentParser()
    for name in ("dsn", "url", "handles", "form"):
        parser.add_argument(f"--{name}", required=True)
    process = CrawlerProcess(SETTINGS)
    process.crawl(Accounts, **vars(parser.parse_args(sys.argv[2:])))
    process.start()


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        _collect()
    else:
        main(Side(name="scrapy", setting=setting, command=command))
