"""A simulated month: the delay of new posts by fixed polling and by mistnet's rhythm, for the same credits."""

import argparse
from collections.abc import Iterator, Sequence

from bench.queue.common import MINUTES, Figure, Options, emit, percentile
from bench.rhythm.polling import Net, fixed, rhythmic
from bench.rhythm.posting import DAYS, DAYS_BEFORE, HOURS, written

OURS, FIXED = "mistnet", "fixed polling"
POSTS_PER_1000_CREDITS = "posts/1,000 credits"
TIMES = "x"
EVERY = (15, 60)
"""Minutes between two looks of the fixed polling; what they cost is what both may spend."""

SEEDS, QUICK_SEEDS = range(1, 6), range(1, 3)
MANY = 100
SPARE = 0.995
"""A little is kept back, because the last look of the month is made whatever it costs."""


def rhythm(options: Options) -> Iterator[Figure]:
    for seed in SEEDS if options.jobs >= MANY else QUICK_SEEDS:
        times = written(seed, options.jobs)
        for every in EVERY:
            plain = fixed(times, every)
            yield from _figures(times, plain, rhythmic(times, SPARE * plain.spent / DAYS), every, seed)


def _figures(times: Sequence[Sequence[float]], plain: Net, ours: Net, every: int, seed: int) -> Iterator[Figure]:
    expected = sum(at > DAYS_BEFORE * HOURS * 60 for each in times for at in each)
    cost = f"at the cost of a look every {every} minutes"

    def figure(name: str, net: Net, value: float, unit: str, setting: str = f"{DAYS} days") -> Figure:
        return Figure(
            name=name,
            side=OURS if net is ours else FIXED,
            setting=setting,
            figure=value,
            unit=unit,
            expected=expected,
            got=len(net.delays),
            detail={"seed": seed, "credits": net.spent, "looks": net.looks},
        )

    for net in (plain, ours):
        yield figure(f"mean delay of a new post, {cost}", net, net.mean, MINUTES)
        yield figure(f"median delay of a new post, {cost}", net, net.median, MINUTES)
        yield figure(f"delay of the slowest hundredth, {cost}", net, percentile(net.delays, 0.99), MINUTES)
        yield figure(f"posts found, {cost}", net, 1000 * net.posts_per_credit, POSTS_PER_1000_CREDITS)
    setting = f"every {every} minutes, seed {seed}"
    yield figure("mean delay / fixed polling's", ours, ours.mean / plain.mean, TIMES, setting)
    yield figure("median delay / fixed polling's", ours, ours.median / plain.median, TIMES, setting)
    yield figure("credits / fixed polling's", ours, ours.spent / plain.spent, TIMES, setting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["rhythm"])
    parser.add_argument("--dsn", default="", help="not used: nothing is stored")
    parser.add_argument("--jobs", type=int, default=MANY, help="accounts")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="single")
    for figure in rhythm(Options(**vars(parser.parse_args()))):
        emit(figure)


if __name__ == "__main__":
    main()
