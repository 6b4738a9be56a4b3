"""Makes the ticks of one group during one term: at its slots, or where a day's credits find most."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from loguru import logger

from mistnet.kit.clock import Clock
from mistnet.operations.schedule.groups import AccountGroup
from mistnet.operations.schedule.posting_rates import DayBudget, LastLook, PostingRate, StorePaces, Watched, due, pace
from mistnet.operations.schedule.store import Idle, Members, NewTick, StoreSchedule, Tick
from mistnet.queue.leader import LeaderTerm
from mistnet.queue.model import NewJob
from mistnet.social.fetch_sizes import next_limit
from mistnet.social.jobs import args
from mistnet.social.model import UserId

_LEARN_EVERY: Final = timedelta(hours=1)


class SlotTicks(msgspec.Struct, frozen=True, kw_only=True):
    """Every account of the group at every slot. Slots that nobody was there for are one tick."""

    group: AccountGroup
    term: LeaderTerm
    store: StoreSchedule
    clock: Clock

    async def look(self) -> None:
        now = self.clock.now()
        slot = self.group.slots.due(await self.store.last_tick(self.group.name), now)
        if slot is None:
            return
        wanted = NewTick(group=self.group.name, at=slot.at, missed=slot.missed, members=self.group.members)
        made = await self.store.tick(wanted, self.term, job=catch_up, now=now)
        if isinstance(made, Tick):
            late = f", in place of {made.missed} more that nobody was there for" if made.missed else ""
            logger.info(
                "tick of {group}: {jobs} of {accounts} accounts{late}",
                group=made.group,
                jobs=made.jobs,
                accounts=made.accounts,
                late=late,
            )
        else:
            logger.warning("no tick of {group}: {why}", group=self.group.name, why=str(made))


class BudgetTicks:
    """Each account when it is worth it. What looks have cost today is read from the ledger, whoever made them."""

    def __init__(
        self,
        *,
        group: AccountGroup,
        term: LeaderTerm,
        store: StoreSchedule,
        paces: StorePaces,
        clock: Clock,
        day_credits: int,
        look: int,
        post: int,
    ) -> None:
        self._group = group
        self._term = term
        self._store = store
        self._stored = paces
        self._clock = clock
        self._day_credits = day_credits
        self._look = look
        self._post = post
        self._paces: dict[UserId, PostingRate] = {}
        self._learned_at: datetime | None = None
        self._asked_at: dict[UserId, datetime] = {}
        self._warned = False

    async def look(self) -> None:
        now = self._clock.now()
        slot = self._group.slots.due(None, now)
        standings = await self._stored.standings(self._group.members)
        if slot is None or not standings:
            return
        await self._learn(standings, now)
        chosen = due(self._watched(standings), await self._budget(standings, slot.at), slot.at)
        if chosen:
            members = msgspec.structs.replace(self._group.members, only=frozenset(chosen))
            await self._tick(members, slot.at, now)

    async def _tick(self, members: Members, at: datetime, now: datetime) -> None:
        wanted = NewTick(group=self._group.name, at=at, missed=0, members=members)
        made = await self._store.tick(wanted, self._term, job=catch_up, now=now)
        if isinstance(made, Tick):
            self._asked_at |= dict.fromkeys(members.only or (), at)
            logger.debug("tick of {group}: {jobs} accounts", group=made.group, jobs=made.jobs)

    async def _learn(self, standings: Mapping[UserId, LastLook], now: datetime) -> None:
        """All paces once an hour, and those of newcomers at once."""
        if self._learned_at is None or now - self._learned_at >= _LEARN_EVERY:
            self._paces, self._learned_at = {}, now
        wanted = standings.keys() - self._paces.keys()
        habits = await self._stored.habits(wanted, now=now) if wanted else {}
        self._paces |= {user_id: pace(habit.counts, habit.days) for user_id, habit in habits.items()}
        self._warn_of_a_small_budget()

    def _warn_of_a_small_budget(self) -> None:
        written = self._post * sum(each.posts[-1] for each in self._paces.values())
        if written > self._day_credits and not self._warned:
            self._warned = True
            logger.warning(
                "group {group}: {budget} credits a day are less than the new posts of its accounts cost, about {cost}; "
                "raise day_credits or name fewer accounts",
                group=self._group.name,
                budget=self._day_credits,
                cost=round(written),
            )

    def _watched(self, standings: Mapping[UserId, LastLook]) -> list[Watched]:
        return [
            Watched(user_id, self._paces[user_id], self._looked_at(user_id, each))
            for user_id, each in standings.items()
            if not each.alive
        ]

    def _looked_at(self, user_id: UserId, standing: LastLook) -> datetime:
        """To the minute, or a look that took some seconds would put off the next one by a minute."""
        looked_at = standing.looked_at.replace(second=0, microsecond=0)
        return max(looked_at, self._asked_at.get(user_id, looked_at))

    async def _budget(self, standings: Mapping[UserId, LastLook], now: datetime) -> DayBudget:
        """What is left today, without what looks that are under way will cost at least."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        spent = await self._stored.spent(standings.keys(), since=midnight)
        under_way = sum(each.alive for each in standings.values()) * self._look
        return DayBudget(left=self._day_credits - spent - under_way, look=self._look, post=self._post)


def catch_up(account: Idle) -> NewJob:
    return args.catch_up(account.user_id, account.newest_post_id, next_limit(account.fetch))
