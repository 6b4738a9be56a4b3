"""The shape of a side, and the measurements made with it."""

import argparse
import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import uvloop

from bench.queue.common import (
    MILLISECONDS,
    PER_SECOND,
    Figure,
    Options,
    Span,
    emit,
    joined,
    now_ns,
    percentile,
    settle,
)
from bench.queue.processes import await_go, say, say_ready, workers

WARM_UP = 20
PAUSE_S = (0.02, 0.04)

Enqueue: TypeAlias = Callable[[int], Awaitable[None]]
Measure: TypeAlias = Callable[["Side", Options], Awaitable[list[Figure]]]


class Starts:
    """When each numbered job reached its handler."""

    def __init__(self, jobs: int) -> None:
        self.at_ns: dict[int, int] = {}
        self.all_seen = asyncio.Event()
        self._jobs = jobs

    def note(self, number: int) -> None:
        self.at_ns.setdefault(number, now_ns())
        if len(self.at_ns) == self._jobs:
            self.all_seen.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a queue must be able to do to be measured."""

    name: str
    setting: Callable[[Options], str]
    install: Callable[[Options], Awaitable[None]]
    fill: Callable[[Options], Awaitable[Span]]
    unfinished: Callable[[Options], Awaitable[int]]
    drain: Callable[[Options, Callable[[], None]], Awaitable[Span]]
    serve: Callable[[Options, Starts], Coroutine[Any, Any, None]]
    enqueuer: Callable[[Options], AbstractAsyncContextManager[Enqueue]]
    more: Mapping[str, Measure] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return f"bench.queue.{Path(sys.argv[0]).stem}"


async def throughput(side: Side, options: Options) -> list[Figure]:
    """From the first claim to the last finished job, in however many worker processes."""
    await side.install(options)
    await side.fill(options)
    await settle(options.dsn)
    async with workers(side.module, "drain", options) as started:
        await asyncio.gather(*(worker.ready() for worker in started))
        await asyncio.gather(*(worker.go() for worker in started))
        spans = [Span(**await worker.result()) for worker in started]
    whole = joined([span for span in spans if span.handled])
    left = await side.unfinished(options)
    return [
        Figure(
            name=f"throughput, {options.processes} process{'es' * (options.processes > 1)}",
            side=side.name,
            setting=side.setting(options),
            figure=whole.handled / whole.seconds,
            unit=PER_SECOND,
            expected=options.jobs,
            got=whole.handled - left,
            detail={"seconds": whole.seconds, "left": left},
        )
    ]


async def latency(side: Side, options: Options) -> list[Figure]:
    """From the return of the enqueue call to the start of the handler, the worker being idle."""
    await side.install(options)
    calls: list[tuple[int, int]] = []
    async with workers(side.module, "serve", options) as (worker,), side.enqueuer(options) as enqueue:
        await worker.ready()
        await asyncio.sleep(1)
        for number in range(options.jobs + WARM_UP):
            await asyncio.sleep(random.uniform(*PAUSE_S))
            called_ns = now_ns()
            await enqueue(number)
            calls.append((called_ns, now_ns()))
        at_ns = {int(number): ns for number, ns in (await worker.result()).items()}
    measured = [(*calls[number], at_ns[number]) for number in at_ns if number >= WARM_UP]
    since_return = [(start - returned) / 1e6 for _, returned, start in measured]
    since_call = [(start - called) / 1e6 for called, _, start in measured]
    return [
        Figure(
            name=f"latency, {label}",
            side=side.name,
            setting="idle worker",
            figure=percentile(since_return, share),
            unit=MILLISECONDS,
            expected=options.jobs,
            got=len(measured),
            detail={"since_call": percentile(since_call, share)},
        )
        for label, share in (("p50", 0.5), ("p99", 0.99))
    ]


async def enqueue(side: Side, options: Options) -> list[Figure]:
    await side.install(options)
    await settle(options.dsn)
    span = await side.fill(options)
    return [
        Figure(
            name="bulk enqueue",
            side=side.name,
            setting=side.setting(options),
            figure=span.handled / span.seconds,
            unit=PER_SECOND,
            expected=options.jobs,
            got=await side.unfinished(options),
            detail={"seconds": span.seconds},
        )
    ]


MEASURES: Mapping[str, Measure] = {"throughput": throughput, "latency": latency, "enqueue": enqueue}


async def run(side: Side, options: Options) -> None:
    match options.command:
        case "drain":
            say(asdict(await side.drain(options, await_go)))
        case "serve":
            await _serve(side, options)
        case command:
            for figure in await {**MEASURES, **side.more}[command](side, options):
                emit(figure)


async def _serve(side: Side, options: Options) -> None:
    starts = Starts(options.jobs + WARM_UP)
    serving = asyncio.create_task(side.serve(options, starts))
    say_ready()
    seen = asyncio.create_task(starts.all_seen.wait())
    await asyncio.wait((serving, seen), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    say(starts.at_ns)
    serving.cancel()
    await asyncio.wait((serving,))


def main(side: Side) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {side.module}")
    parser.add_argument("command", choices=[*MEASURES, *side.more, "drain", "serve"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="single")
    uvloop.run(run(side, Options(**vars(parser.parse_args()))))
