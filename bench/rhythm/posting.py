"""People who write posts for two months: few write most, all sleep, and many write several in a row."""

import math
import random
from collections.abc import Sequence

DAYS_BEFORE, DAYS = 28, 30
"""What is known at the start, and the month that is measured."""

MEDIAN_A_DAY, SPREAD, MOST_A_DAY = 2.0, 1.6, 200.0
BURSTY = 0.4
MORE_IN_A_BURST = 3.0
GAP_MINUTES = 4.0
WEEKEND = 0.7
HOURS = 24


def written(seed: int, people: int) -> list[list[float]]:
    """When each of them posts, in minutes from the start, in order."""
    return [_one(random.Random(f"{seed}.{person}")) for person in range(people)]


def _one(chance: random.Random) -> list[float]:
    a_day = min(chance.lognormvariate(math.log(MEDIAN_A_DAY), SPREAD), MOST_A_DAY)
    bursty = chance.random() < BURSTY
    starts = a_day / (1 + MORE_IN_A_BURST) if bursty else a_day
    day = _shape(chance)
    times: list[float] = []
    for date in range(DAYS_BEFORE + DAYS):
        mood = chance.gammavariate(4, 0.25) * (WEEKEND if date % 7 in (5, 6) else 1.0)
        for hour, share in enumerate(day):
            for _ in range(_poisson(chance, starts * mood * share)):
                at = (date * HOURS + hour + chance.random()) * 60
                times += _in_a_row(chance, at) if bursty else [at]
    end = (DAYS_BEFORE + DAYS) * HOURS * 60
    return sorted(at for at in times if at < end)


def _shape(chance: random.Random) -> Sequence[float]:
    """Shares of a day: awake around an hour of one's own, more or less sharply."""
    peak, sharpness = chance.gauss(18, 5), chance.uniform(0.5, 2.5)
    weights = [math.exp(sharpness * math.cos((hour - peak) * 2 * math.pi / HOURS)) for hour in range(HOURS)]
    return [weight / sum(weights) for weight in weights]


def _in_a_row(chance: random.Random, at: float) -> list[float]:
    times = [at]
    while chance.random() < MORE_IN_A_BURST / (1 + MORE_IN_A_BURST):
        times.append(times[-1] + chance.expovariate(1 / GAP_MINUTES))
    return times


def _poisson(chance: random.Random, mean: float) -> int:
    found, product, limit = 0, chance.random(), math.exp(-mean)
    while product > limit:
        found += 1
        product *= chance.random()
    return found
