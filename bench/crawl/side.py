"""What the sides of a crawl share: the pages, a fresh database, a process, and what came of it."""

import argparse
from collections.abc import Callable, Mapping

from bench.collect.common import Figure, Options, Run, emit, run
from bench.collect.side import kind_of
from bench.crawl.source import Source, running

PAGES_PER_SECOND = "pages/s"
PAGES_PER_CPU_SECOND = "pages/CPU s"
PATIENCE_S = 600.0


def main(
    name: str,
    setting: Callable[[Options], str],
    command: Callable[[Options, Source], list[str]],
    *,
    environment: Callable[[Options, Source], Mapping[str, str]] = lambda _options, _source: {},
    prepare: Callable[[Options], None] = lambda _options: None,
    stored: Callable[[Options], int] | None = None,
) -> None:
    """A side without `stored` stores nothing; its process fails unless it has read every page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["crawl"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, required=True, help="pages to crawl")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="single")
    options = Options(**vars(parser.parse_args()))
    with running() as source:
        prepare(options)
        done = run(command(options, source), environment(options, source), fine={0}, patience_s=PATIENCE_S)
        seconds = (done.ended_ns - source.first_ns()) / 1e9
    got = stored(options) if stored else options.jobs
    for what, taken, unit in _spans(done, seconds):
        emit(
            Figure(
                name=f"{what}, {kind_of(options)}",
                side=name,
                setting=setting(options),
                figure=got / taken,
                unit=unit,
                expected=options.jobs,
                got=got,
                detail={"seconds": seconds, "cpu_seconds": done.cpu_seconds, "peak_mb": done.peak_mb},
            )
        )


def _spans(done: Run, seconds: float) -> list[tuple[str, float, str]]:
    """From the first question to the end of the process; and the time of all processors, that of children too."""
    return [
        ("crawling", seconds, PAGES_PER_SECOND),
        ("crawling, processor time", done.cpu_seconds, PAGES_PER_CPU_SECOND),
    ]
