"""The job that fetches the prices of one item from one source."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.governor.model import CallPurpose, SourceName
from mistnet.prices.matching import points_of
from mistnet.prices.model import ItemState, PriceArgs, PriceFetch, PriceSource
from mistnet.queue.errors import Permanent, Temporary
from mistnet.queue.model import Done, Fail, Job, Outcome, Retry

if TYPE_CHECKING:
    from mistnet.prices.store.items import Items

LONGEST: Final = timedelta(minutes=5)
_PROBLEM: Final = 500


class Pricer(msgspec.Struct, frozen=True, kw_only=True):
    """One fetch from one source per job. A fault of the source is neither a price nor the lack of one."""

    items: Items
    sources: Mapping[SourceName, PriceSource]

    async def price(self, job: Job[PriceArgs]) -> Outcome:
        item, name = await self.items.get(job.args.item_id), job.args.source
        if item is None or item.state is not ItemState.ACTIVE:
            return Done()
        source = self.sources.get(name)
        if source is None:
            return Fail(f"there is no source {name!r} here; `price_sources` names the file that describes it")
        try:
            answer = await source.search(item, purpose=CallPurpose(job.id), fresh=job.args.looks > 0)
        except (Temporary, Permanent) as error:
            problem = [PriceFetch(item_id=item.id, source=name, problem=str(error)[:_PROBLEM])]
            return Retry(str(error), writes=problem) if isinstance(error, Temporary) else Fail(str(error), problem)

        fetch = PriceFetch(
            item_id=item.id,
            source=name,
            points=points_of(item, answer.listings),
            # Also from a cached answer: the job that cached it may have died before it stored them.
            unreadable=answer.unreadable,
            listings=len(answer.listings) + len(answer.unreadable),
            cached=answer.cached,
        )
        return Done([fetch])
