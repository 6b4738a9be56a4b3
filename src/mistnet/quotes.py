"""What collecting an account is likely to cost, from its profile alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import ceil
from typing import Final

import msgspec

from mistnet.domain.accounts import AccountState
from mistnet.domain.social import User, UserId
from mistnet.domain.sources import X_SOURCE, Errand
from mistnet.harvest import WALKS_PER_CALL, Harvest, keys_of
from mistnet.jobs.profiles import state_of
from mistnet.settings import Settings
from mistnet.upstream.x import prices

REPLY_SHARE: Final = 0.4
"""Of so many posts in one, the conversation holds one more post that has to be fetched by id."""

NEW_USER_SHARE: Final = 0.1
"""So many posts in one answer somebody who has to be fetched by id."""

ASSUMPTION: Final = (
    f"Assumed: {REPLY_SHARE:.0%} of the posts lead to one more post of somebody else, at {prices.POST} credits each, "
    f"and {NEW_USER_SHARE:.0%} to a user not seen before, at 1 credit each in batches of {prices.FULL_BATCH}."
)


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """The likely cost of one account, in credits. Without a count of posts nothing can be said."""

    handle: str
    user_id: UserId | None = None
    state: AccountState | None = None
    problem: str | None = None
    posts: int = 0
    post_credits: int = 0
    thread_credits: int = 0
    user_credits: int = 0
    calls: int = 0

    @property
    def credits(self) -> int:
        return self.post_credits + self.thread_credits + self.user_credits


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """All quotes together: the money, and the time it takes at the least. A cap that stretches it says to how much."""

    credits: int
    dollars: float
    calls: int
    at_rate: timedelta
    days_under_day_cap: int | None = None
    months_under_month_cap: int | None = None


class Quoter:
    """Asks for profiles and for nothing else. The harvest must be open."""

    def __init__(self, settings: Settings, harvest: Harvest) -> None:
        self._settings = settings
        self._harvest = harvest

    async def quote(self, handle: str) -> Quote:
        """One call, at the price of a profile."""
        user = await self._harvest.x.user(handle, errand=Errand())
        return quoted(handle, user, reposts=self._settings.x_reposts)

    async def bill(self, quotes: Sequence[Quote]) -> Bill:
        """At the rate of all keys together, under the caps as they stand."""
        usual = self._settings.x_rate_per_minute
        lowered = {key.label: key.rate_per_minute for key in await self._harvest.book.keys()}
        states = {state.name: state for state in await self._harvest.book.states()}
        source = states.get(X_SOURCE)
        day_cap = source.day_cap if source and source.day_cap is not None else self._settings.x_day_credits
        month_cap = source.month_cap if source and source.month_cap is not None else self._settings.x_month_credits
        per_minute = sum(lowered.get(label) or usual for label in keys_of(self._settings))
        return billed(quotes, per_minute=per_minute, day_cap=day_cap, month_cap=month_cap)


def quoted(handle: str, user: User | None, *, reposts: bool) -> Quote:
    if user is None:
        return Quote(handle=handle, problem="upstream knows nobody of that name")
    known = Quote(handle=user.handle or handle, user_id=user.id, state=state_of(user))
    if user.unavailable_reason is not None:
        return msgspec.structs.replace(known, problem=f"unavailable: {user.unavailable_reason}")
    if user.protected:
        return msgspec.structs.replace(known, problem="its posts are protected: there is nothing to collect")
    if user.posts_count is None:
        return msgspec.structs.replace(known, problem="its profile does not say how many posts it has")
    return estimated(known, user.posts_count, reposts=reposts)


def estimated(known: Quote, posts: int, *, reposts: bool) -> Quote:
    """Native retweets are among the count; their own pass only adds the looks that prove its end."""
    looks = (1 if posts else 2) + (2 if reposts else 0)
    walked, met = ceil(posts * REPLY_SHARE), ceil(posts * NEW_USER_SHARE)
    return msgspec.structs.replace(
        known,
        posts=posts,
        post_credits=prices.backfill(posts, looks=looks) + prices.profile(),
        thread_credits=prices.POST * walked,
        user_credits=met,
        calls=ceil(posts / prices.POSTS_PER_PAGE) + looks + 1 + ceil(walked / WALKS_PER_CALL) + ceil(met / 100),
    )


def billed(quotes: Sequence[Quote], *, per_minute: float, day_cap: int | None, month_cap: int | None) -> Bill:
    credits_due, calls = sum(each.credits for each in quotes), sum(each.calls for each in quotes)
    days = ceil(credits_due / max(day_cap, 1)) if day_cap is not None else 0
    months = ceil(credits_due / max(month_cap, 1)) if month_cap is not None else 0
    return Bill(
        credits=credits_due,
        dollars=credits_due / prices.CREDITS_PER_DOLLAR,
        calls=calls,
        at_rate=timedelta(minutes=calls / per_minute),
        days_under_day_cap=days if days > 1 else None,
        months_under_month_cap=months if months > 1 else None,
    )
