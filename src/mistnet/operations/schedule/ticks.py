"""Ticks of a group: at its slots, or, with a budget, for the accounts whose new posts a day's credits find soonest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from math import sqrt
from typing import Final

import msgspec
from loguru import logger

from mistnet.kit.clock import Clock
from mistnet.operations.schedule.groups import AccountGroup
from mistnet.operations.schedule.store import HOURS, Idle, LastLook, NewTick, PostingRateStore, StoreSchedule, Tick
from mistnet.queue.leader import LeaderTerm
from mistnet.queue.model import NewJob
from mistnet.social.accounts import next_limit
from mistnet.social.jobs import args
from mistnet.social.model import UserId

_LEARN_EVERY: Final = timedelta(hours=1)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
# Added to every count, so that a silent account is still checked now and then.
_PRIOR_POSTS: Final = 0.5
# With this many posts, an account's day is half its own distribution and half an even one.
_PRIOR_SHAPE: Final = 12.0
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
        """The expected delay of unseen posts since the last look, in post-hours."""
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
        """Whether this much delay can have accumulated in these hours. Cheap, and mostly false."""
        return self.busiest * hours * hours >= 2 * delay


def hour_of(at: datetime) -> float:
    """Hours since midnight."""
    return at.hour + at.minute / 60 + (at.second + at.microsecond / 1e6) / 3600


def learn_rate(counts: Sequence[int], days: float) -> PostingRate:
    """The rate of an account that wrote this many posts in each hour of the day, over these days."""
    total = sum(counts)
    a_day = (total + _PRIOR_POSTS) / days
    smooth = [(counts[hour - 1] + 2 * counts[hour] + counts[(hour + 1) % HOURS]) / 4 for hour in range(HOURS)]
    shape = [(each + _PRIOR_SHAPE / HOURS) / (total + _PRIOR_SHAPE) for each in smooth]
    return make_rate([a_day * part for part in shape])


def make_rate(rates: Sequence[float]) -> PostingRate:
    """The rate of an account that writes this many posts in each hour of the day."""
    return PostingRate(
        busiest=max(rates),
        rates=tuple(rates),
        posts=tuple(accumulate(rates, initial=0.0)),
        moments=tuple(accumulate((rate * (hour + 0.5) for hour, rate in enumerate(rates)), initial=0.0)),
        roots=tuple(accumulate((sqrt(rate) for rate in rates), initial=0.0)),
    )


class IdleAccount(msgspec.Struct, frozen=True):
    """An account without a live catch-up, its rate, and the time of its last look."""

    user_id: UserId
    rate: PostingRate
    looked_at: datetime


class DayBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The credits left for the rest of the day (UTC), the price of a look, and of each post that it finds."""

    left: float
    look: float
    post: float = 0.0


def choose_due(idle: Sequence[IdleAccount], budget: DayBudget, now: datetime) -> list[UserId]:
    """The accounts to look at now, the most delayed first, within the budget.

    Each at most once a minute, and at least once a day if the budget allows it.
    """
    hour = hour_of(now)
    daily = budget.look * len(idle) * (HOURS - hour) / HOURS <= budget.left
    least = delay_per_credit([each.rate for each in idle], budget, hour) * budget.look
    ripe: list[tuple[float, IdleAccount]] = []
    for each in idle:
        age = (now - each.looked_at) / _HOUR
        overdue = daily and age >= HOURS
        if age * 60 >= 1 and (overdue or each.rate.may_owe(least, age)):
            delay = each.rate.delay(each.looked_at, now)
            if overdue or delay >= least:
                ripe.append((delay, each))
    ripe.sort(key=lambda pair: -pair[0])
    chosen: list[UserId] = []
    left = budget.left
    for _, each in ripe:
        found = each.rate.posts[HOURS] * ((now - each.looked_at) / _DAY)
        left -= budget.look + budget.post * found
        if left < 0:
            break
        chosen.append(each.user_id)
    return chosen


def delay_per_credit(rates: Sequence[PostingRate], budget: DayBudget, hour: float) -> float:
    """How many post-hours of delay a credit must end, so that the budget is used up at midnight and not before.

    An account gets a look at least once a day and at most once a minute. One that would get more or fewer is counted
    with that bound, and the rest of the budget is divided again among the others.
    """
    rest = HOURS - hour
    roots = [each.root_until_midnight(hour) for each in rates]
    left = budget.left - budget.post * sum(each.posts_until_midnight(hour) for each in rates)
    # Too little even for the posts: look rarely, but not never.
    left = max(left, budget.left / 10)
    fewest, most = rest / HOURS, rest * 60
    if budget.look * fewest * len(rates) > left:
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
    """The root of the delay per credit at which the looks cost what is left."""
    return sqrt(look / 2) * roots / left if left > 0 else float("inf")


class SlotTicks(msgspec.Struct, frozen=True, kw_only=True):
    """Makes every account of the group due at every slot. Slots that were missed become one tick."""

    group: AccountGroup
    term: LeaderTerm
    store: StoreSchedule
    clock: Clock

    async def make_due(self) -> None:
        now = self.clock.now()
        slot = self.group.slots.due(await self.store.last_tick(self.group.name), now)
        if slot is None:
            return
        new = NewTick(group=self.group.name, at=slot.at, missed=slot.missed, members=self.group.members)
        made = await self.store.tick(new, self.term, job=catch_up, now=now)
        if isinstance(made, Tick):
            late = f", which also stands for {made.missed} missed ones" if made.missed else ""
            logger.info(
                "tick of {group}: {jobs} of {accounts} accounts{late}",
                group=made.group,
                jobs=made.jobs,
                accounts=made.accounts,
                late=late,
            )
        else:
            logger.warning("no tick of {group}: {why}", group=self.group.name, why=str(made))


class BudgetTicks(msgspec.Struct, kw_only=True):
    """Makes each account due when its expected new posts are worth a look. What looks cost today is in the ledger."""

    group: AccountGroup
    term: LeaderTerm
    store: StoreSchedule
    rates: PostingRateStore
    clock: Clock
    day_credits: int
    look: int
    post: int
    _rates: dict[UserId, PostingRate] = {}
    _learned_at: datetime | None = None
    _made_due_at: dict[UserId, datetime] = {}
    _warned: bool = False

    async def make_due(self) -> None:
        now = self.clock.now()
        slot = self.group.slots.due(None, now)
        looks = await self.rates.last_looks(self.group.members)
        if slot is None or not looks:
            return
        await self._learn(looks, now)
        idle: list[IdleAccount] = []
        for user_id, look in looks.items():
            if not look.alive:
                # To the minute: a look that took some seconds would otherwise delay the next one by a minute.
                looked_at = look.looked_at.replace(second=0, microsecond=0)
                looked_at = max(looked_at, self._made_due_at.get(user_id, looked_at))
                idle.append(IdleAccount(user_id, self._rates[user_id], looked_at))
        midnight = slot.at.replace(hour=0, minute=0, second=0, microsecond=0)
        spent = await self.rates.spent(looks.keys(), since=midnight)
        # Looks under way are not in the ledger yet: count the least that each will cost.
        spent += sum(each.alive for each in looks.values()) * self.look
        budget = DayBudget(left=self.day_credits - spent, look=self.look, post=self.post)
        chosen = choose_due(idle, budget, slot.at)
        if not chosen:
            return
        members = msgspec.structs.replace(self.group.members, only=frozenset(chosen))
        new = NewTick(group=self.group.name, at=slot.at, missed=0, members=members)
        made = await self.store.tick(new, self.term, job=catch_up, now=now)
        if isinstance(made, Tick):
            self._made_due_at |= dict.fromkeys(chosen, slot.at)
            logger.debug("tick of {group}: {jobs} accounts", group=made.group, jobs=made.jobs)

    async def _learn(self, looks: Mapping[UserId, LastLook], now: datetime) -> None:
        """Learn all rates once an hour, and those of new accounts at once."""
        if self._learned_at is None or now - self._learned_at >= _LEARN_EVERY:
            self._rates, self._learned_at = {}, now
        unknown = looks.keys() - self._rates.keys()
        habits = await self.rates.habits(unknown, now=now) if unknown else {}
        self._rates |= {user_id: learn_rate(habit.counts, habit.days) for user_id, habit in habits.items()}
        written = self.post * sum(each.posts[-1] for each in self._rates.values())
        if written > self.day_credits and not self._warned:
            self._warned = True
            logger.warning(
                "group {group}: {budget} credits a day do not pay for the new posts of its accounts, about {cost}; "
                "raise day_credits or name fewer accounts",
                group=self.group.name,
                budget=self.day_credits,
                cost=round(written),
            )


def catch_up(account: Idle) -> NewJob:
    return args.catch_up(account.user_id, account.newest_post_id, next_limit(account.fetch))
