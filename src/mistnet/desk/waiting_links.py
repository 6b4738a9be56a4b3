"""Says which links wait for a setting, where their results are looked for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mistnet.app import App
from mistnet.domain.links import CRAWL_LANES
from mistnet.domain.plural import are, counted
from mistnet.store.crawl_calls import count_new


class WaitingLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Links that were found on lanes which are not crawled here."""

    links: int
    lanes: Sequence[str]

    @property
    def told(self) -> str:
        """What waits, up to the name of the setting."""
        lanes = " and ".join([", ".join(self.lanes[:-1]), self.lanes[-1]] if len(self.lanes) > 1 else self.lanes)
        lane = "the lane" if len(self.lanes) == 1 else "the lanes"
        wait = "waits" if self.links == 1 else "wait"
        return f"{counted(self.links, 'link')} {wait}: {lane} {lanes} {are(len(self.lanes))} not in"

    @property
    def example(self) -> str:
        return f"MISTNET_CRAWL_LANES={','.join(self.lanes)}"

    def __str__(self) -> str:
        return f"{self.told} `crawl_lanes`. Set {self.example} for the workers; `mistnet links crawl` visits these."


async def waiting_links(app: App) -> WaitingLinks | None:
    """None where every link that was found is or will be visited."""
    found = await count_new(app.database, lanes=[lane for lane in CRAWL_LANES if lane not in app.crawling.lanes])
    return WaitingLinks(links=sum(found.values()), lanes=sorted(found)) if found else None


def hints_of(waiting: WaitingLinks | None) -> list[str]:
    return [str(waiting)] if waiting else []
