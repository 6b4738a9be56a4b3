"""Chooses which account to read when, so that a day's credits find new posts soonest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from math import sqrt
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, and_, case, func, literal_column, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.tables import calls
from mistnet.kit.database import Database
from mistnet.operations.schedule.store import CAN_BE_CAUGHT_UP_WITH, CATCH_UP, Members
from mistnet.queue.tables import LIVE_KEY, job_history, jobs
from mistnet.social.model import Platform, UserId, X
from mistnet.social.store.account_jobs import slices
from mistnet.social.tables import accounts, posts, users

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


class PostingRate(msgspec.Struct, frozen=True):
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


def pace(counts: Sequence[int], days: float) -> PostingRate:
    """The pace of an account that wrote so many posts in each hour of so many days."""
    total = sum(counts)
    a_day = (total + _PRIOR_POSTS) / days
    smooth = [(counts[hour - 1] + 2 * counts[hour] + counts[(hour + 1) % HOURS]) / 4 for hour in range(HOURS)]
    shape = [(each + _PRIOR_SHAPE / HOURS) / (total + _PRIOR_SHAPE) for each in smooth]
    return steady([a_day * part for part in shape])


def steady(rates: Sequence[float]) -> PostingRate:
    """The pace of an account that writes so many posts in each hour of the day."""
    return PostingRate(
        busiest=max(rates),
        rates=tuple(rates),
        posts=tuple(accumulate(rates, initial=0.0)),
        moments=tuple(accumulate((rate * (hour + 0.5) for hour, rate in enumerate(rates)), initial=0.0)),
        roots=tuple(accumulate((sqrt(rate) for rate in rates), initial=0.0)),
    )


class Watched(msgspec.Struct, frozen=True):
    """An account nobody is looking at now, its pace, and when it was looked at last."""

    user_id: UserId
    pace: PostingRate
    looked_at: datetime


class DayBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What is left for the rest of the day (UTC), what a look costs, and what each post it finds costs."""

    left: float
    look: float
    post: float = 0.0


def due(watched: Sequence[Watched], budget: DayBudget, now: datetime) -> list[UserId]:
    """Whom to look at now, the most rewarding first, and never more than the purse pays for.

    At most once a minute each; everyone at least once a day if the budget allows it.
    """
    hour = hour_of(now)
    daily = budget.look * len(watched) * (HOURS - hour) / HOURS <= budget.left
    wanted = worth([each.pace for each in watched], budget, hour) * budget.look
    ripe: list[tuple[float, Watched]] = []
    for each in watched:
        age = (now - each.looked_at) / _HOUR
        overdue = daily and age >= HOURS
        if age * 60 >= 1 and (overdue or each.pace.may_owe(wanted, age)):
            delay = each.pace.delay(each.looked_at, now)
            if overdue or delay >= wanted:
                ripe.append((delay, each))
    ripe.sort(key=lambda found: -found[0])
    return _paid_for([each for _, each in ripe], budget, now)


def _paid_for(ripe: Sequence[Watched], budget: DayBudget, now: datetime) -> list[UserId]:
    chosen: list[UserId] = []
    left = budget.left
    for each in ripe:
        left -= budget.look
        if budget.post:
            left -= budget.post * _posts_between(each, now)
        if left < 0:
            break
        chosen.append(each.user_id)
    return chosen


def _posts_between(each: Watched, now: datetime) -> float:
    days = (now - each.looked_at) / _DAY
    return each.pace.posts[HOURS] * days


def worth(paces: Sequence[PostingRate], budget: DayBudget, hour: float) -> float:
    """How many post-hours of delay a credit must end, for the purse to last until midnight and not longer.

    Those whom this would leave for longer than a day, or look at more than once a minute, are counted as what they get.
    """
    rest = HOURS - hour
    roots = [each.root_until_midnight(hour) for each in paces]
    left = budget.left - budget.post * sum(each.posts_until_midnight(hour) for each in paces)
    left = max(left, budget.left / 10)  # too little even for the posts: look rarely rather than never
    fewest, most = rest / HOURS, rest * 60
    if budget.look * fewest * len(paces) > left:
        fewest = 0.0
    root = _root(sum(roots), left, budget.look)
    for _ in range(_PASSES):
        looks = [each / (sqrt(2 * budget.look) * root) if root else most for each in roots]
        bound = [min(max(each, fewest), most) for each in looks]
        free = sum(each for each, few, got in zip(roots, looks, bound, strict=True) if few == got)
        fixed = sum(got for few, got in zip(looks, bound, strict=True) if few != got)
        again = _root(free, left - budget.look * fixed, budget.look)
        if not free or again == root:
            break
        root = again
    return root * root


def _root(roots: float, left: float, look: float) -> float:
    """The root of the worth at which looks cost what is left."""
    return sqrt(look / 2) * roots / left if left > 0 else float("inf")


_FIRST_ID_AT_MS: Final = 1_288_834_974_657
_BITS_BELOW_TIME: Final = 22
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Habit(msgspec.Struct, frozen=True, kw_only=True):
    """How many posts an account wrote in each hour of the day, over so many days."""

    counts: tuple[int, ...]
    days: float


class LastLook(msgspec.Struct, frozen=True, kw_only=True):
    """When an account was looked at last, and whether somebody is at it now."""

    looked_at: datetime
    alive: bool


class StorePaces:
    """Reads for a rhythm by budget. Ids of X carry their time, so an index alone tells when posts were written."""

    def __init__(self, database: Database, platform: Platform = X) -> None:
        self._database = database
        self._platform = platform

    async def standings(self, members: Members) -> Mapping[UserId, LastLook]:
        """All accounts of a group that can be caught up with."""
        live = select(jobs.c.key).where(jobs.c.kind == CATCH_UP, text(LIVE_KEY))
        asked = (
            select(
                accounts.c.user_id,
                users.c.handle_key,
                _LOOKED_AT,
            )
            .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
            .where(accounts.c.platform == self._platform, CAN_BE_CAUGHT_UP_WITH)
        )
        async with self._database.read() as connection:
            alive = set((await connection.execute(live)).scalars())
            rows = (await connection.execute(asked)).mappings().all()
        return {
            row["user_id"]: LastLook(looked_at=row["looked_at"], alive=str(row["user_id"]) in alive)
            for row in rows
            if (row["handle_key"] in members.handles) is not members.all_others
        }

    async def habits(self, user_ids: Collection[UserId], *, now: datetime) -> Mapping[UserId, Habit]:
        """What the last four weeks tell of accounts; of one whose history begins later, the time since."""
        counts = {user_id: [0] * HOURS for user_id in user_ids}
        oldest: dict[UserId, int] = {}
        async with self._database.read() as connection:
            for some in slices(sorted(user_ids)):
                for author, hour, written in await self._counted(connection, some, now - WINDOW):
                    counts[author][hour] = written
                oldest |= await self._oldest(connection, some)
        return {
            user_id: Habit(counts=tuple(each), days=_days(oldest.get(user_id), now)) for user_id, each in counts.items()
        }

    async def _counted(self, connection: AsyncConnection, some: Collection[UserId], since: datetime) -> Any:
        asked = counting(self._platform, some, since)
        return (await connection.execute(asked)).all()

    async def _oldest(self, connection: AsyncConnection, some: Collection[UserId]) -> dict[UserId, int]:
        asked = select(accounts.c.user_id, accounts.c.oldest_post_id).where(
            accounts.c.platform == self._platform, accounts.c.user_id.in_(some), accounts.c.oldest_post_id.is_not(None)
        )
        return {row.user_id: row.oldest_post_id for row in await connection.execute(asked)}

    async def spent(self, user_ids: Collection[UserId], *, since: datetime) -> int:
        """What catch-ups of these accounts have cost since then, native retweets with them.

        The first pass over an account's native retweets belongs to its history, not to its looks.
        """
        asked = (
            select(calls.c.account_id, func.sum(calls.c.credits))
            .join(accounts, accounts.c.user_id == calls.c.account_id)
            .where(
                calls.c.at >= since,
                accounts.c.platform == self._platform,
                or_(_KIND == CATCH_UP, and_(_KIND == "reposts", calls.c.at > accounts.c.reposts_backfilled_at)),
            )
            .group_by(calls.c.account_id)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(asked)).all()
        wanted = set(user_ids)
        return sum(credits_ for user_id, credits_ in rows if user_id in wanted)


_LOOKED_AT: Final = case(
    ((accounts.c.fetches > 0) & accounts.c.backfilled_at.is_not(None), accounts.c.last_fetched_at),
    else_=accounts.c.tracked_at,
).label("looked_at")
"""The pages of a backfill are no looks for what is new, though they are fetches."""

_KIND: Final = func.coalesce(
    *(select(each.c.kind).where(each.c.id == calls.c.job_id).scalar_subquery() for each in (jobs, job_history))
)
"""What kind of job a call was made for; jobs are asked one by one, because history is long and a day is short."""


_HOUR_OF_DAY: Final[ColumnElement[int]] = literal_column(
    f"((posts.id >> {_BITS_BELOW_TIME}) + {_FIRST_ID_AT_MS}) / {_HOUR_MS} % {HOURS}"
).label("hour")


def counting(platform: Platform, some: Collection[UserId], since: datetime) -> Select[Any]:
    """How many posts of whom in which hour of the day."""
    return (
        select(posts.c.author_id, _HOUR_OF_DAY, func.count())
        .where(posts.c.platform == platform, posts.c.author_id.in_(some), posts.c.id >= first_id_at(since))
        .group_by(posts.c.author_id, _HOUR_OF_DAY)
    )


def first_id_at(at: datetime) -> int:
    """The lowest id a post of X written at this time can have."""
    return max((at - _EPOCH) // timedelta(milliseconds=1) - _FIRST_ID_AT_MS, 0) << _BITS_BELOW_TIME


def _days(oldest_id: int | None, now: datetime) -> float:
    if oldest_id is None:
        return WINDOW / timedelta(days=1)
    begun = _EPOCH + timedelta(milliseconds=(oldest_id >> _BITS_BELOW_TIME) + _FIRST_ID_AT_MS)
    return min(max(now - begun, timedelta(days=1)), WINDOW) / timedelta(days=1)
