"""Two ways to find the same posts: at fixed times, and by mistnet's own rhythm with the same credits."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import fmean, median

from bench.rhythm.posting import DAYS, DAYS_BEFORE, HOURS
from mistnet.operations.schedule.ticks import DayBudget, IdleAccount, PostingRate, choose_due, learn_rate
from mistnet.social.model import UserId
from mistnet.sources.x import client as prices

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
DAY = HOURS * 60
BEGIN, END = DAYS_BEFORE * DAY, (DAYS_BEFORE + DAYS) * DAY
LOOKS_AFTER_NEWS = 2
"""Where a catch-up found something it asks once more below, and once again to be sure."""


def price(found: int) -> int:
    """What a catch-up costs that finds so many posts."""
    return found * prices.POST + LOOKS_AFTER_NEWS * prices.MINIMUM if found else prices.MINIMUM


@dataclass(slots=True)
class Net:
    """What looks at some people have found and cost. All that was written before the month began is known."""

    written: Sequence[Sequence[float]]
    spent: int = 0
    looks: int = 0
    delays: list[float] = field(default_factory=list)
    known: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.known = [bisect_right(times, BEGIN) for times in self.written]

    def look(self, person: int, minute: float) -> None:
        times, known = self.written[person], self.known[person]
        seen = bisect_right(times, minute)
        self.delays += [minute - at for at in times[known:seen]]
        self.known[person] = seen
        self.spent += price(seen - known)
        self.looks += 1

    def habits(self, minute: int) -> list[PostingRate]:
        """What the posts found in the last four weeks tell."""
        return [
            learn_rate(_by_hour(times[bisect_right(times, minute - 28 * DAY) : known]), 28)
            for times, known in zip(self.written, self.known, strict=True)
        ]

    @property
    def mean(self) -> float:
        return fmean(self.delays)

    @property
    def median(self) -> float:
        return median(self.delays)

    @property
    def posts_per_credit(self) -> float:
        return len(self.delays) / self.spent


def _by_hour(times: Iterable[float]) -> list[int]:
    counts = [0] * HOURS
    for at in times:
        counts[int(at // 60) % HOURS] += 1
    return counts


def fixed(written: Sequence[Sequence[float]], every: int) -> Net:
    """Everybody at the same moments."""
    net = Net(written)
    for minute in range(BEGIN + every, END + 1, every):
        for person in range(len(written)):
            net.look(person, minute)
    return net


def rhythmic(written: Sequence[Sequence[float]], day_credits: float) -> Net:
    """As the scheduler does it: minute by minute, paces learned again each day, what is spent read from the ledger."""
    net = Net(written)
    watched: list[IdleAccount] = []
    for date in range(DAYS_BEFORE, DAYS_BEFORE + DAYS):
        paces = net.habits(date * DAY)
        last = [each.looked_at for each in watched] or [_time(BEGIN)] * len(written)
        watched = [IdleAccount(UserId(person), each, last[person]) for person, each in enumerate(paces)]
        before = net.spent
        for minute in range(date * DAY, (date + 1) * DAY):
            now = _time(minute)
            left = day_credits - (net.spent - before)
            budget = DayBudget(left=left, look=prices.MINIMUM, post=prices.POST)
            for person in choose_due(watched, budget, now) if left >= prices.MINIMUM else ():
                net.look(person, minute)
                watched[person] = IdleAccount(UserId(person), paces[person], now)
    _look_a_last_time(net)
    return net


def _look_a_last_time(net: Net) -> None:
    """What is still unseen when the month ends waits until then, as with a client that polls at its last minute."""
    for person, times in enumerate(net.written):
        if net.known[person] < len(times):
            net.look(person, END)


def _time(minute: int) -> datetime:
    return MONDAY + timedelta(minutes=minute)
