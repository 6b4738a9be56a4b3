"""What accounts that are to be tracked are likely to cost, before anything is bought."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mistnet.app import App
from mistnet.domain.accounts import AccountState
from mistnet.domain.errors import WorkError
from mistnet.quotes import Quote, Quoter, estimated
from mistnet.store.people import People
from mistnet.store.roster import Roster


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
    """From stored profiles, or one paid call (18 credits) each. None without a key: nothing here can ask."""
    if not app.settings.x_api_key:
        return None
    quotes: list[Quote] = []
    problem: str | None = None
    async with app.harvest.opened():
        try:
            for handle in {each.lower(): each for each in handles}.values():
                quotes += await _quotes(app, handle)
        except WorkError as error:
            problem = str(error)
    return TrackBill(quotes=quotes, problem=problem, confirm_credits=app.settings.confirm_credits)


async def _quotes(app: App, handle: str) -> list[Quote]:
    known = await People(app.database).called(handle)
    if known is None or known.posts_count is None:
        return [await Quoter(app.settings, app.harvest).quote(handle)]
    tracked = await Roster(app.database, app.job_writer).accounts([known.id])
    if any(each.state is not AccountState.UNTRACKED for each in tracked):
        return []
    named = Quote(handle=known.handle or handle, user_id=known.id)
    return [estimated(named, known.posts_count, reposts=app.settings.x_reposts)]
