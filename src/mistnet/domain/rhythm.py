"""When to look at which account, so that a day's credits find new posts soonest. Pure.

A post that nobody has found yet waits. An account whose unseen posts are expected to have waited for so long together
that a look is worth its price is due: `delay >= worth * cost`. Where posts come at a steady rate this is the best
there is, and how much a look must be worth follows from the budget in closed form: the looks it leads to cost
`sum(sqrt(cost * rate / 2)) / sqrt(worth)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from math import sqrt
from typing import Final

import msgspec

from mistnet.domain.social import UserId

HOURS: Final = 24
WINDOW: Final = timedelta(days=28)
"""So far back posts tell how often an account writes."""

_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_PRIOR_POSTS: Final = 0.5
"""Nobody is so quiet that he will never write again."""

_PRIOR_SHAPE: Final = 12.0
"""With so few posts an account's day looks half like everybody's, which is even."""

_PASSES: Final = 4


class Pace(msgspec.Struct, frozen=True):
    """How many posts an account writes in each hour of the day (UTC), and sums over it from midnight on.

    `posts` counts them, `moments` weighs each by its hour, `roots` adds up the roots of the rates.
    """

    busiest: float
    rates: tuple[float, ...]
    posts: tuple[float, ...]
    moments: tuple[float, ...]
    roots: tuple[float, ...]

    def delay(self, since: datetime, now: datetime) -> float:
        """How many post-hours unseen posts are expected to have waited since the last look."""
        begin = hour_of(since)
        end = begin + (now - since) / _HOUR
        posts_before, moments_before = self._sums(begin)
        posts_until, moments_until = self._sums(end)
        return end * (posts_until - posts_before) - (moments_until - moments_before)

    def _sums(self, at: float) -> tuple[float, float]:
        """Posts and moments from a midnight to so many hours later, over any number of days."""
        days, hour = divmod(at, HOURS)
        whole = int(hour)
        rate, part = self.rates[whole], hour - whole
        posts = self.posts[whole] + rate * part
        moments = self.moments[whole] + rate * part * (whole + part / 2)
        all_posts, all_moments = self.posts[HOURS], self.moments[HOURS]
        earlier = days * all_moments + HOURS * all_posts * days * (days - 1) / 2
        return days * all_posts + posts, earlier + moments + days * HOURS * posts

    def root_until_midnight(self, hour: float) -> float:
        whole = int(hour)
        return self.roots[HOURS] - self.roots[whole] - sqrt(self.rates[whole]) * (hour - whole)

    def posts_until_midnight(self, hour: float) -> float:
        whole = int(hour)
        return self.posts[HOURS] - self.posts[whole] - self.rates[whole] * (hour - whole)

    def may_owe(self, delay: float, hours: float) -> bool:
        """Whether so much delay can have come together in so many hours: cheap to ask, and mostly no."""
        return self.busiest * hours * hours >= 2 * delay


def hour_of(at: datetime) -> float:
    """How many hours after midnight."""
    return at.hour + at.minute / 60 + (at.second + at.microsecond / 1e6) / 3600


def pace(counts: Sequence[int], days: float) -> Pace:
    """The pace of an account that wrote so many posts in each hour of so many days."""
    total = sum(counts)
    a_day = (total + _PRIOR_POSTS) / days
    smooth = [(counts[hour - 1] + 2 * counts[hour] + counts[(hour + 1) % HOURS]) / 4 for hour in range(HOURS)]
    shape = [(each + _PRIOR_SHAPE / HOURS) / (total + _PRIOR_SHAPE) for each in smooth]
    return steady([a_day * part for part in shape])


def steady(rates: Sequence[float]) -> Pace:
    """The pace of an account that writes so many posts in each hour of the day."""
    return Pace(
        busiest=max(rates),
        rates=tuple(rates),
        posts=tuple(accumulate(rates, initial=0.0)),
        moments=tuple(accumulate((rate * (hour + 0.5) for hour, rate in enumerate(rates)), initial=0.0)),
        roots=tuple(accumulate((sqrt(rate) for rate in rates), initial=0.0)),
    )


class Watched(msgspec.Struct, frozen=True):
    """An account nobody is looking at now, its pace, and when it was looked at last."""

    user_id: UserId
    pace: Pace
    looked_at: datetime


class Purse(msgspec.Struct, frozen=True, kw_only=True):
    """What is left for the rest of the day (UTC), what a look costs, and what each post it finds costs."""

    left: float
    look: float
    post: float = 0.0


def due(watched: Sequence[Watched], purse: Purse, now: datetime) -> list[UserId]:
    """Whom to look at now, the most rewarding first, and never more than the purse pays for.

    Nobody more often than once a minute; everybody once a day, if the purse allows that.
    """
    hour = hour_of(now)
    daily = purse.look * len(watched) * (HOURS - hour) / HOURS <= purse.left
    wanted = worth([each.pace for each in watched], purse, hour) * purse.look
    ripe: list[tuple[float, Watched]] = []
    for each in watched:
        age = (now - each.looked_at) / _HOUR
        overdue = daily and age >= HOURS
        if age * 60 >= 1 and (overdue or each.pace.may_owe(wanted, age)):
            delay = each.pace.delay(each.looked_at, now)
            if overdue or delay >= wanted:
                ripe.append((delay, each))
    ripe.sort(key=lambda found: -found[0])
    return _paid_for([each for _, each in ripe], purse, now)


def _paid_for(ripe: Sequence[Watched], purse: Purse, now: datetime) -> list[UserId]:
    chosen: list[UserId] = []
    left = purse.left
    for each in ripe:
        left -= purse.look
        if purse.post:
            left -= purse.post * _posts_between(each, now)
        if left < 0:
            break
        chosen.append(each.user_id)
    return chosen


def _posts_between(each: Watched, now: datetime) -> float:
    days = (now - each.looked_at) / _DAY
    return each.pace.posts[HOURS] * days


def worth(paces: Sequence[Pace], purse: Purse, hour: float) -> float:
    """How many post-hours of delay a credit must end, for the purse to last until midnight and not longer.

    Those whom this would leave for longer than a day, or look at more than once a minute, are counted as what they get.
    """
    rest = HOURS - hour
    roots = [each.root_until_midnight(hour) for each in paces]
    left = purse.left - purse.post * sum(each.posts_until_midnight(hour) for each in paces)
    left = max(left, purse.left / 10)  # too little even for the posts: look rarely rather than never
    fewest, most = rest / HOURS, rest * 60
    if purse.look * fewest * len(paces) > left:
        fewest = 0.0
    root = _root(sum(roots), left, purse.look)
    for _ in range(_PASSES):
        looks = [each / (sqrt(2 * purse.look) * root) if root else most for each in roots]
        bound = [min(max(each, fewest), most) for each in looks]
        free = sum(each for each, few, got in zip(roots, looks, bound, strict=True) if few == got)
        fixed = sum(got for few, got in zip(looks, bound, strict=True) if few != got)
        again = _root(free, left - purse.look * fixed, purse.look)
        if not free or again == root:
            break
        root = again
    return root * root


def _root(roots: float, left: float, look: float) -> float:
    """The root of the worth at which looks cost what is left."""
    return sqrt(look / 2) * roots / left if left > 0 else float("inf")
