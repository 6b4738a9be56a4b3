"""A source with one account and as many followers as wanted, in a process of its own, without latency.

    python -m bench.graph.source --followers 1000000

prints its address. It counts what it was asked for and what that costs by the price list.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any
from urllib.request import urlopen

import uvloop
from aiohttp import web

from bench.collect.common import ROOT, now_ns

SUBJECT = 1_000_000_000_000_000_007
HANDLE = "manyfollow"
FIRST = 2_000_000_000_000_000_000
PAGE = 200
PROFILE_CREDITS = 18
PATIENCE_S = 600
_SPAN = 5_003
"""Ids are not handed out in the order of follows: neighbours on a page are far apart."""


def follower_id(place: int, followers: int) -> int:
    """Each place has an id of its own, and pages are not in the order of ids."""
    width = ceil(followers / _SPAN)
    return FIRST + (place % _SPAN) * width + place // _SPAN


def _follower(place: int, followers: int) -> str:
    own = follower_id(place, followers)
    return (
        f'{{"id":"{own}","name":"Follower number {place}","screen_name":"f{place}","userName":"f{place}",'
        f'"location":"Somewhere on the map","url":null,"description":"I am number {place} and like birds, nets and '
        f'early mornings. Opinions are those of the birds.","email":null,"protected":false,"verified":false,'
        f'"followers_count":{place % 977},"following_count":{place % 613},"friends_count":{place % 613},'
        f'"favourites_count":{place % 4_001},"statuses_count":{place % 9_001},"media_tweets_count":{place % 101},'
        f'"created_at":"Tue Mar 03 10:11:12 +0000 2015","profile_banner_url":null,'
        f'"profile_image_url_https":"https://pbs.twimg.com/profile_images/{own}/p_normal.jpg","can_dm":false}}'
    )


def _subject(followers: int) -> str:
    return json.dumps(
        {
            "id": str(SUBJECT),
            "name": "Many follow",
            "userName": HANDLE,
            "description": "followed by many",
            "followers": followers,
            "following": 0,
            "statusesCount": 10,
            "createdAt": "Tue Mar 03 10:11:12 +0000 2009",
        }
    )


class Crowd:
    """Answers as the real one does, and keeps the books."""

    def __init__(self, followers: int) -> None:
        self._followers = followers
        self._books: Counter[str] = Counter()
        self._first_ns = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/twitter/user/followers", self.followers),
            web.get("/twitter/user/info", self.info),
            web.get("/twitter/user/batch_info_by_ids", self.by_ids),
            web.get("/_bench/stats", self.stats),
        ]

    async def followers(self, request: web.Request) -> web.Response:
        begin = int(request.query.get("cursor") or 0)
        end = min(begin + min(int(request.query.get("pageSize", PAGE)), PAGE), self._followers)
        shown = ",".join(_follower(place, self._followers) for place in range(begin, end))
        more = end < self._followers
        count = end - begin
        self._charge("followers", max(15, count * (1 if count >= 200 else 2 if count >= 100 else 3)))
        return _json(
            f'{{"status":"success","code":0,"msg":"success","followers":[{shown}],'
            f'"has_next_page":{json.dumps(more)},"next_cursor":"{end if more else ""}"}}'
        )

    async def info(self, _request: web.Request) -> web.Response:
        self._charge("info", PROFILE_CREDITS)
        return _json(f'{{"status":"success","msg":"success","data":{_subject(self._followers)}}}')

    async def by_ids(self, _request: web.Request) -> web.Response:
        self._charge("by_ids", PROFILE_CREDITS)
        return _json(f'{{"status":"success","msg":"success","users":[{_subject(self._followers)}]}}')

    async def stats(self, _request: web.Request) -> web.Response:
        return web.json_response({"first_ns": self._first_ns, **self._books})

    def _charge(self, endpoint: str, due: int) -> None:
        self._first_ns = self._first_ns or now_ns()
        self._books[f"{endpoint}_calls"] += 1
        self._books["credits"] += due


def _json(text: str) -> web.Response:
    return web.Response(body=text.encode(), content_type="application/json")


@dataclass(frozen=True, slots=True)
class Source:
    """The way to a running one."""

    url: str

    def stats(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/_bench/stats", timeout=PATIENCE_S) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


def least_credits(followers: int) -> int:
    """One look at the profile, and every page once."""
    full, rest = divmod(followers, PAGE)
    last = max(15, rest * (2 if rest >= 100 else 3)) if rest else 0
    return PROFILE_CREDITS + full * PAGE + last


@contextmanager
def running(followers: int) -> Iterator[Source]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.graph.source", f"--followers={followers}"],
        stdin=subprocess.PIPE,  # its end is the source's
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    try:
        if process.stdout is None or not (url := process.stdout.readline().strip()):
            raise RuntimeError("the source did not start")
        yield Source(url)
    finally:
        process.kill()
        process.communicate()


async def serve(followers: int) -> None:
    app = web.Application()
    app.add_routes(Crowd(followers).routes())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.graph.source", description=__doc__)
    parser.add_argument("--followers", type=int, required=True)
    uvloop.run(serve(parser.parse_args().followers))
