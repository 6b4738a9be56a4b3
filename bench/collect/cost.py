"""What a collection without faults spends, against the least that it could cost, and where the rest goes."""

import asyncio
from collections import Counter
from dataclasses import replace

from bench.collect.common import CREDITS, TIMES, Figure, Options
from bench.collect.side import Side, collected, stored, wanted
from bench.collect.source import WorldPlan, named, running

SMALL = [named("small", seed=seed) for seed in range(1, 6)]
MEDIUM = [named("medium", seed=1)]
BATCH_FILL_S = "5"
"""As long beside a run without limits as the default is beside a run at the default rate."""


def cost(side: Side, options: Options) -> list[Figure]:
    """Five small worlds and, if that many posts are asked for, a medium one."""
    figures: list[Figure] = []
    for size, plans in (("small", SMALL), ("medium", MEDIUM if options.jobs >= 100_000 else [])):
        above: Counter[str] = Counter()
        fresh = [replace(options, dsn=f"{options.dsn}.{size}{plan.seed}") for plan in plans]
        figures += [_world(side, each, size, plan, above) for each, plan in zip(fresh, plans, strict=True)]
        figures += [
            Figure(
                name="credits above the least, by endpoint",
                side=side.name,
                setting=f"{size}: {endpoint}",
                figure=surplus,
                unit=CREDITS,
                expected=len(plans),
                got=len(plans),
            )
            for endpoint, surplus in above.most_common()
        ]
    return figures


def _world(side: Side, options: Options, size: str, plan: WorldPlan, above: Counter[str]) -> Figure:
    with running(plan) as source:
        handles = source.accounts()
        expected = wanted(source, handles)
        least = source.least(handles)
        collected(side, options, source, handles, {"MISTNET_BATCH_FILL_SECONDS": BATCH_FILL_S})
        spent = source.stats()["credits_by_endpoint"]
    for endpoint, paid in spent.items():
        above[endpoint] += paid - least["by_endpoint"].get(endpoint, {"credits": 0})["credits"]
    found = asyncio.run(stored(options))
    total = sum(spent.values())
    return Figure(
        name="credits spent / least possible",
        side=side.name,
        setting=f"{size}, seed {plan.seed}",
        figure=total / least["credits"],
        unit=TIMES,
        expected=len(expected),
        got=len(expected & found.keys()),
        detail={"spent": total, "least": least["credits"], **spent},
    )
