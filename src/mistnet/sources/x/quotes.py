"""Estimate what collecting an account costs, from its profile alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.graph.follows.jobs import KNOWN_PAGES
from mistnet.graph.follows.listing import Follows
from mistnet.graph.follows.model import PAGE_SIZE, Side, SyncMode
from mistnet.graph.follows.store import SyncReads
from mistnet.operations.runs.model import NeedsConfirmation
from mistnet.queue.errors import WorkError
from mistnet.social.accounts import AccountState
from mistnet.social.jobs.args import WALKS_PER_CALL
from mistnet.social.jobs.hydration import state_of
from mistnet.social.model import User, UserId, X
from mistnet.social.store.account_pages import AccountPages, People
from mistnet.sources.x import client as prices

if TYPE_CHECKING:
    from mistnet.app import App


REPLY_SHARE: Final = 0.4
"""The share of posts whose conversation contains one more post that must be fetched by id."""

NEW_USER_SHARE: Final = 0.1
"""The share of posts that reply to a user who must be fetched by id."""

ASSUMPTION: Final = (
    f"Assumed: {REPLY_SHARE:.0%} of the posts lead to one more post by another author, at {prices.POST} credits each, "
    f"and {NEW_USER_SHARE:.0%} to a user not seen before, at 1 credit each in batches of {prices.FULL_BATCH}."
)


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """The likely cost of one account, in credits. It is not known without the number of posts."""

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


class QuoteTotal(msgspec.Struct, frozen=True, kw_only=True):
    """All quotes together: the cost, and the least time it takes. The days and months are set if a cap extends it."""

    credits: int
    dollars: float
    calls: int
    at_rate: timedelta
    days_under_day_cap: int | None = None
    months_under_month_cap: int | None = None


class Quoter:
    """Fetches profiles and nothing else. The source must be open."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._settings = app.settings

    async def quote(self, handle: str) -> Quote:
        """One call, at the price of a profile."""
        user = await self._app.x.user(handle, purpose=CallPurpose())
        return quote_user(handle, user, reposts=self._settings.x_reposts)

    async def bill(self, quotes: Sequence[Quote]) -> QuoteTotal:
        """At the rate of all keys together, under the caps as they stand."""
        sources = self._app.sources
        limits, keys = sources[X_SOURCE].limits, sources[X_SOURCE].keys
        state, rates = (
            await sources.state(X_SOURCE),
            {key.label: key.rate_per_minute for key in await sources.store.keys()},
        )
        day_cap = state.day_cap if state.day_cap is not None else limits.day_credits
        month_cap = state.month_cap if state.month_cap is not None else limits.month_credits
        per_minute = sum(rates.get(label) or limits.rate_per_minute for label in keys)
        return total_quotes(quotes, per_minute=per_minute, day_cap=day_cap, month_cap=month_cap)


def quote_user(handle: str, user: User | None, *, reposts: bool) -> Quote:
    if user is None:
        return Quote(handle=handle, problem="X has no user with this handle")
    known = Quote(handle=user.handle or handle, user_id=user.id, state=state_of(user))
    if user.unavailable_reason is not None:
        return msgspec.structs.replace(known, problem=f"unavailable: {user.unavailable_reason}")
    if user.protected:
        return msgspec.structs.replace(known, problem="its posts are protected: there is nothing to collect")
    if user.posts_count is None:
        return msgspec.structs.replace(known, problem="its profile does not say how many posts it has")
    return estimate_posts(known, user.posts_count, reposts=reposts)


def estimate_posts(known: Quote, posts: int, *, reposts: bool) -> Quote:
    """The count includes native retweets; their separate pass only adds the empty pages that confirm its end."""
    looks = (1 if posts else 2) + (2 if reposts else 0)
    walked, met = ceil(posts * REPLY_SHARE), ceil(posts * NEW_USER_SHARE)
    return msgspec.structs.replace(
        known,
        posts=posts,
        post_credits=prices.backfill(posts, looks=looks) + prices.PROFILE,
        thread_credits=prices.POST * walked,
        user_credits=met,
        calls=ceil(posts / prices.POSTS_PER_PAGE) + looks + 1 + ceil(walked / WALKS_PER_CALL) + ceil(met / 100),
    )


def total_quotes(
    quotes: Sequence[Quote], *, per_minute: float, day_cap: int | None, month_cap: int | None
) -> QuoteTotal:
    credits_due, calls = sum(each.credits for each in quotes), sum(each.calls for each in quotes)
    # A cap of 0 must not divide by zero.
    days = ceil(credits_due / max(day_cap, 1)) if day_cap is not None else 0
    months = ceil(credits_due / max(month_cap, 1)) if month_cap is not None else 0
    return QuoteTotal(
        credits=credits_due,
        dollars=credits_due / prices.CREDITS_PER_DOLLAR,
        calls=calls,
        at_rate=timedelta(minutes=calls / per_minute),
        days_under_day_cap=days if days > 1 else None,
        months_under_month_cap=months if months > 1 else None,
    )


class TrackBill(msgspec.Struct, frozen=True, kw_only=True):
    """One quote per account that is not tracked yet. `problem`: why not all of them could be priced."""

    quotes: Sequence[Quote] = ()
    problem: str | None = None
    confirm_credits: int

    @property
    def credits(self) -> int:
        return sum(each.credits for each in self.quotes)

    @property
    def needs_confirmation(self) -> bool:
        return self.problem is not None or self.credits > self.confirm_credits


async def quote_tracking(app: App, handles: Sequence[str]) -> TrackBill | None:
    """From stored profiles, or one paid call (18 credits) each. None without a key: X cannot be called."""
    if not app.settings.x_api_key:
        return None
    quotes: list[Quote] = []
    problem: str | None = None
    async with app.sources[X_SOURCE].opened():
        try:
            for handle in {each.lower(): each for each in handles}.values():
                known = await People(app.database).called(handle)
                if known is None or known.posts_count is None:
                    quotes.append(await Quoter(app).quote(handle))
                    continue
                account = await AccountPages(app.database).account(known.id)
                if account is None or account.state is AccountState.UNTRACKED:
                    named = Quote(handle=known.handle or handle, user_id=known.id)
                    quotes.append(estimate_posts(named, known.posts_count, reposts=app.settings.x_reposts))
        except WorkError as error:
            problem = str(error)
    return TrackBill(quotes=quotes, problem=problem, confirm_credits=app.settings.confirm_credits)


class FollowQuote(msgspec.Struct, frozen=True, kw_only=True):
    """The likely cost of one list in credits; None where the profile does not say how long it is."""

    side: Side
    users: int | None
    credits: int | None


class FollowBill(msgspec.Struct, frozen=True, kw_only=True):
    """All requested lists of one user."""

    quotes: Sequence[FollowQuote]
    confirm_credits: int

    @property
    def credits(self) -> int | None:
        """None if the cost of one list is not known."""
        known = [each.credits for each in self.quotes if each.credits is not None]
        return sum(known) if len(known) == len(self.quotes) else None

    @property
    def needs_confirmation(self) -> bool:
        return self.credits is None or self.credits > self.confirm_credits

    def shares(self, max_credits: int | None) -> Sequence[int | None]:
        """A cap on all lists, divided by what each is likely to cost."""
        if max_credits is None:
            return [None] * len(self.quotes)
        weights = [each.credits or prices.MINIMUM for each in self.quotes]
        return [max_credits * weight // sum(weights) for weight in weights]

    def require_confirmed(self, confirmed: bool) -> None:
        if self.credits is not None and self.needs_confirmation and not confirmed:
            raise NeedsConfirmation(self.credits, self.confirm_credits)


async def quote_follows(app: App, user_id: UserId, sides: Sequence[Side], mode: SyncMode) -> FollowBill:
    """Makes no call. A full sync that misses a user may read its list a second time; not included."""
    user = await People(app.database).by_id(user_id)
    quotes: list[FollowQuote] = []
    for side in sides:
        users = (user.followers_count if side is Side.FOLLOWERS else user.following_count) if user else None
        if users is None:
            quotes.append(FollowQuote(side=side, users=None, credits=None))
            continue
        read = users
        if mode is SyncMode.INCREMENTAL and await SyncReads(app.database).last_sync(X, side, user_id):
            stored = await Follows(app.database).counts(user_id, side)
            read = min(users, max(users - stored.live, 0) + KNOWN_PAGES * PAGE_SIZE)
        quotes.append(FollowQuote(side=side, users=users, credits=list_credits(read)))
    return FollowBill(quotes=quotes, confirm_credits=app.settings.confirm_credits)


def list_credits(users: int) -> int:
    """Full pages and the last one, and the profile before and after."""
    pages, rest = divmod(users, PAGE_SIZE)
    last = prices.follow_page(rest) if rest or not pages else 0
    return pages * prices.follow_page(PAGE_SIZE) + last + 2 * prices.PROFILE
