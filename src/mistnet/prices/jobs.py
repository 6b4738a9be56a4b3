"""Ask one source what one item costs: look, search, and hand on what fits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from mistnet.governor.model import CallPurpose, SourceName
from mistnet.prices.matching import points_of
from mistnet.prices.model import Item, ItemId, ItemState, PriceAnswer, PriceArgs, PriceAsked, PriceSource
from mistnet.queue.errors import Permanent, Temporary
from mistnet.queue.model import Done, Fail, Job, Outcome, Retry

LONGEST: Final = timedelta(minutes=5)
_PROBLEM: Final = 500


class ItemLook(Protocol):
    """What a price job asks the store before it goes."""

    async def get(self, item_id: ItemId) -> Item | None: ...


class Pricer(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one source per job. A fault of the source is never a price, nor the lack of one."""

    items: ItemLook
    sources: Mapping[SourceName, PriceSource]

    async def price(self, job: Job[PriceArgs]) -> Outcome:
        item = await self.items.get(job.args.item_id)
        if item is None or item.state is not ItemState.ACTIVE:
            return Done()  # nobody follows it any more
        source = self.sources.get(job.args.source)
        if source is None:
            return Fail(
                f"there is no source {job.args.source!r} here; `price_sources` names the file that describes it"
            )
        try:
            answer = await source.search(item, purpose=CallPurpose(job.id), fresh=job.args.looks > 0)
        except Temporary as error:
            return Retry(str(error), writes=[_went_wrong(job.args, error)])
        except Permanent as error:
            return Fail(str(error), [_went_wrong(job.args, error)])
        return Done([_asked(item, job.args.source, answer)])


def _asked(item: Item, source: SourceName, answer: PriceAnswer) -> PriceAsked:
    """Listings that do not fit are counted: they are what was listed less what became a point.

    What could not be read is handed on also when it is remembered: whoever heard it first may have died with it.
    """
    points, _misfits = points_of(item, answer.listings)
    return PriceAsked(
        item_id=item.id,
        source=source,
        points=points,
        unreadable=answer.unreadable,
        listings=len(answer.listings) + len(answer.unreadable),
        cached=answer.cached,
    )


def _went_wrong(args: PriceArgs, error: Exception) -> PriceAsked:
    return PriceAsked(item_id=args.item_id, source=args.source, problem=str(error)[:_PROBLEM])
