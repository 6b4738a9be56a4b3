"""What the sides share: the same pages read over and over on one core, and pages a second as the figure.

    python -m bench.pages_parse.mistnet_side pages_parse --dsn FILE --jobs 70

`jobs` is how many different pages are read; each is read once to warm up, then until a few seconds are full.
"""

import argparse
import time
from collections.abc import Callable, Sequence

from bench.pages_parse.stock import Page, pages
from bench.queue.common import Figure, emit

NAME = "product pages read"
UNIT = "pages/s"
LEAST_SECONDS = 4.0
Reader = Callable[[Page], object]


def measure(side: str, setting: str, read: Reader, stock: Sequence[Page]) -> Figure:
    """Processor time, so that a busy machine does not spoil the ratio."""
    for page in stock:
        read(page)
    done, begun = 0, time.process_time()
    while time.process_time() - begun < LEAST_SECONDS:
        for page in stock:
            read(page)
        done += len(stock)
    spent = time.process_time() - begun
    return Figure(
        name=NAME,
        side=side,
        setting=setting,
        figure=done / spent,
        unit=UNIT,
        expected=done,
        got=done,
        detail={"kb": sum(len(page.body) for page in stock) / len(stock) / 1000},
    )


def main(side: str, readers: dict[str, Reader], *, more: Sequence[Callable[[list[Page]], Figure]] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["pages_parse"])
    parser.add_argument("--dsn", help="not used: nothing is stored")
    parser.add_argument("--jobs", type=int, default=70)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--form")
    stock = list(pages(parser.parse_args().jobs))
    for setting, read in readers.items():
        emit(measure(side, setting, read, stock))
    for measured in more:
        emit(measured(stock))
