"""mistnet beside ada-url, w3lib and twitter-text, each alone, on the same URLs and texts.

    python -m bench.links.mistnet_side links --dsn - --jobs 20000

A round has all of them take turns; the figure is the median of the rounds. The libraries do a part of the work only:
ada-url parses, w3lib sorts and escapes, the two together are what a page's key costs at the least; twitter-text finds
URLs and cuts those of shops.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import ada_url
from w3lib.url import canonicalize_url

from bench.links.stock import long_texts, texts, urls
from bench.queue.common import Figure, Options, emit
from mistnet.shops.links.finding import find_urls, rules
from mistnet.shops.links.naming import canonical_link

ROUNDS = 5
OURS = "mistnet"
NAMED = "links named"
SEARCHED = "texts searched"
LONG_SEARCHED = "long Chinese texts searched"


def measured(options: Options) -> Iterator[Figure]:
    posted, said = urls(options.jobs), texts(options.jobs // 4)
    naming: dict[str, Callable[[str], Any]] = {
        OURS: canonical_link,
        "ada-url + w3lib": lambda url: canonicalize_url(ada_url.normalize_url(url)),
        "w3lib": canonicalize_url,
        "ada-url": ada_url.normalize_url,
    }
    yield from _figures(NAMED, "links/s", naming, posted)
    finding: dict[str, Callable[[str], Any]] = {OURS: find_urls, "twitter-text": rules().extract}
    yield from _figures(SEARCHED, "texts/s", finding, said)
    yield from _figures(LONG_SEARCHED, "texts/s", finding, long_texts(max(options.jobs // 1_000, 4)))


def _figures(name: str, unit: str, sides: dict[str, Callable[[str], Any]], given: Sequence[str]) -> Iterator[Figure]:
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(ROUNDS):
        for side, work in sides.items():
            taken[side].append(_seconds(work, given))
    ours = median(taken[OURS])
    for side, seconds in taken.items():
        rate = len(given) / median(seconds)
        yield Figure(
            name=name,
            side=side,
            setting=f"{len(given):,} of them",
            figure=rate,
            unit=unit,
            expected=len(given),
            got=len(given),
            detail={"microseconds": 1e6 / rate, "mistnet_ratio": median(seconds) / ours},
        )


def _seconds(work: Callable[[str], Any], given: Sequence[str]) -> float:
    """Processor time: a busy machine disturbs it least."""
    started = time.process_time()
    for each in given:
        work(each)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["links"])
    parser.add_argument("--dsn", default="-")
    parser.add_argument("--jobs", type=int, default=20_000, help="how many URLs; texts are a quarter of them")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="single")
    for figure in measured(Options(**vars(parser.parse_args()))):
        emit(figure)


if __name__ == "__main__":
    main()
