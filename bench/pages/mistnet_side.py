"""mistnet alone: every page of the dashboard and every list of the API, asked over and over, beside /healthz.

    python -m bench.pages.mistnet_side pages --dsn DSN --jobs 1000000 [--form busy] [--batch 50]

`batch` is how often each is asked; `busy` lets a worker write at full speed meanwhile.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles

import aiohttp

from bench.collect.common import ROOT
from bench.collect.mistnet_side import environment, prepare
from bench.collect.side import database_url, install, kind_of
from bench.collect.source import holding, running
from bench.pages.stock import Stock, fill
from bench.queue.common import MILLISECONDS, Figure, Options, emit

TIMES = "x"
NOTHING = "/healthz"
TO_COLLECT = 200_000
WARM_UP = 3


def paths(stock: Stock) -> Sequence[str]:
    """The pages, then the GET routes of the API. A search of a word that is in most posts, in some, in few, in none."""
    account, thread = f"/api/accounts/{stock.account}", f"/api/conversations/{stock.conversation}?limit=50"
    return (
        NOTHING,
        *("/", "/?span=month", "/accounts", "/accounts?q=7", f"/accounts/{stock.account}"),
        *(f"/conversations/{stock.conversation}", "/jobs", "/jobs?state=gaps", f"/jobs/{stock.dead_job}"),
        *("/feeds", "/links", "/links?lane=ebay", "/links?kind=short", "/links?q=product/2/77", "/links/19"),
        *("/products", "/products?q=cup", "/products/7", "/lanes", "/lanes?lane=shopee"),
        *("/sources", "/runs", "/search?q=rare+coin", "/search?q=auction&author=user1"),
        *("/api/posts?limit=50", f"/api/posts?author={stock.account}&limit=50", f"/api/posts/{stock.conversation}"),
        *(f"/api/posts?q={words}&limit=50" for words in ("rare+coin", "word100", "word10000", "nowhere")),
        *(
            "/api/posts?q=auction&author=user1&limit=50",
            thread,
            f"/api/posts?q=auction&author={stock.account}&limit=50",
        ),
        *("/api/accounts", account, f"{account}/coverage", f"{account}/products", "/api/suggestions", "/api/feeds"),
        *(f"/api/users/{stock.account}{more}" for more in ("", "/versions", "/followers", "/follow-events")),
        *("/api/links?limit=50", *(f"/api/links/19{more}" for more in ("", "/crawls", "/mentions"))),
        *("/api/products?limit=50", *(f"/api/products/7{more}" for more in ("", "/offers", "/mentions", "/lineage"))),
        *("/api/jobs?limit=50", f"/api/jobs/{stock.dead_job}", "/api/kinds", "/api/lanes", "/api/runs", "/api/spend"),
        *("/api/sources", "/api/items", "/api/segments", "/api/price-watches", "/api/ingests", "/api/quarantine"),
        *(f"/api/monitoring/{what}" for what in ("recent-jobs", "source-health", "stuck-jobs")),
        *("/api/alerts", "/api/events", "/api/schedule", "/health", "/metrics"),
    )


def measured(options: Options) -> Iterator[Figure]:
    asyncio.run(install(options))
    stock = fill(options.dsn, options.jobs)
    with ExitStack() as parts:
        if options.form == "busy":
            parts.enter_context(_working(options))
        url = parts.enter_context(_served(options))
        told = asyncio.run(_ask(url, paths(stock), options.batch))
    yield from _figures(told, stock, options)


def _figures(told: Mapping[str, Sequence[float]], stock: Stock, options: Options) -> Iterator[Figure]:
    workers = "a worker writes at full speed" if options.form == "busy" else "nothing writes"
    about = f"{stock.posts:,} posts on {kind_of(options)}, {workers}"
    floor = _percentiles(told[NOTHING])
    for path, seconds in told.items():
        p50, p99 = _percentiles(seconds)
        detail = {"p50_ms": p50, "p99_ms": p99, "p50_ratio": p50 / floor[0], "p99_ratio": p99 / floor[1]}

        def figure(name: str, amount: float, unit: str) -> Figure:
            return Figure(
                name=f"{name}: {about}",
                side="mistnet",
                setting=path,  # noqa: B023 (called before the next turn)
                figure=amount,
                unit=unit,
                expected=options.batch,
                got=len(seconds),  # noqa: B023
                detail=detail,  # noqa: B023
            )

        yield figure("pages, p50", p50, MILLISECONDS)
        yield figure(f"pages, p99 / {NOTHING}'s", p99 / floor[1], TIMES)


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    cuts = quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000


async def _ask(url: str, wanted: Sequence[str], times: int) -> Mapping[str, Sequence[float]]:
    """In turns, so that a busy moment of the machine falls on all of them; refused answers do not count."""
    told: dict[str, list[float]] = {path: [] for path in wanted}
    async with aiohttp.ClientSession(headers={"Accept": "text/html, application/json"}) as session:
        for turn in range(times + WARM_UP):
            for path in wanted:
                begun = time.perf_counter()
                async with session.get(url + path) as answer:
                    await answer.read()
                if turn >= WARM_UP and answer.status == 200:
                    told[path].append(time.perf_counter() - begun)
                if answer.status != 200 and not turn:
                    print(f"{path}: {answer.status}", file=sys.stderr)
    return {path: seconds for path, seconds in told.items() if len(seconds) > 1}


@contextmanager
def _served(options: Options) -> Iterator[str]:
    """The real command, on a free port."""
    variables = {"MISTNET_DATABASE_URL": database_url(options), "MISTNET_SCHEDULER_ENABLED": "false"}
    with _started(["serve", "--port", "0", "--json"], variables) as process:
        if process.stdout is None:
            raise RuntimeError("the server says nothing")
        said = ""
        while not said.rstrip().endswith("}"):
            if not (line := process.stdout.readline()):
                raise RuntimeError("the server ended before it was ready")
            said += line
        yield json.loads(said)["url"]


@contextmanager
def _working(options: Options) -> Iterator[None]:
    with running(holding(TO_COLLECT)) as source:
        asyncio.run(prepare(options, source.accounts()))
        with _started(["work"], environment(options, source)):
            yield


@contextmanager
def _started(arguments: Sequence[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    mistnet = Path(sys.executable).with_name("mistnet")
    process = subprocess.Popen(
        [str(mistnet), *arguments],
        cwd=ROOT,
        env={**os.environ, "MISTNET_LOG_LEVEL": "ERROR", **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["pages"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="posts that are stored")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", choices=["single", "busy"], default="single")
    for figure in measured(Options(**vars(parser.parse_args()))):
        emit(figure)


if __name__ == "__main__":
    main()
