"""What reading a user's follow lists is likely to cost, from the counts of the stored profile."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mistnet.app import App
from mistnet.domain.errors import NeedsConfirmation
from mistnet.domain.follows import PAGE_SIZE, Side, SyncMode
from mistnet.domain.social import Platform, UserId
from mistnet.jobs.follow_sync import KNOWN_PAGES
from mistnet.store.follow_listing import Follows
from mistnet.store.follow_look import StoreFollowLook
from mistnet.store.people import KnownUser, People
from mistnet.upstream.x import prices


class FollowQuote(msgspec.Struct, frozen=True, kw_only=True):
    """The likely cost of one list in credits; None where the profile does not say how long it is."""

    side: Side
    users: int | None
    credits: int | None


class FollowBill(msgspec.Struct, frozen=True, kw_only=True):
    """All lists that are wanted of one user."""

    quotes: Sequence[FollowQuote]
    confirm_credits: int

    @property
    def credits(self) -> int | None:
        """None if one of them is not known."""
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
    """Makes no call. A full sync that misses someone may read its list a second time; that is not part of it."""
    user = await People(app.database).by_id(user_id)
    quotes = [await _quoted(app, user_id, user, side, mode) for side in sides]
    return FollowBill(quotes=quotes, confirm_credits=app.settings.confirm_credits)


async def _quoted(app: App, user_id: UserId, user: KnownUser | None, side: Side, mode: SyncMode) -> FollowQuote:
    counts = {Side.FOLLOWERS: "followers_count", Side.FOLLOWINGS: "following_count"}
    users: int | None = getattr(user, counts[side]) if user else None
    if users is None:
        return FollowQuote(side=side, users=None, credits=None)
    read = users
    if mode is SyncMode.INCREMENTAL and await StoreFollowLook(app.database).last_sync(Platform.X, side, user_id):
        stored = await Follows(app.database).tallied(user_id, side)
        read = min(users, max(users - stored.live, 0) + KNOWN_PAGES * PAGE_SIZE)
    return FollowQuote(side=side, users=users, credits=list_credits(read))


def list_credits(users: int) -> int:
    """Full pages and the rest, and a look at the profile before and after."""
    pages, rest = divmod(users, PAGE_SIZE)
    last = prices.follow_page(rest) if rest or not pages else 0
    return pages * prices.follow_page(PAGE_SIZE) + last + 2 * prices.profile()
