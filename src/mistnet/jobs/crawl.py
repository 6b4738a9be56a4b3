"""Visit one link: follow it if it is short, else read what the page asks for the thing it shows."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from mistnet import links, pricing
from mistnet.domain.crawling import (
    CrawlArgs,
    Crawled,
    CrawlOutcome,
    LinkAtHand,
    LinkTarget,
    ProductName,
    Visited,
    Web,
    content_hash,
)
from mistnet.domain.errors import BadRequest, CrawlRefused, PageUnreadable, SourceBlocked, Temporary
from mistnet.domain.jobs import Continue, Done, Fail, Job, Outcome, Retry
from mistnet.domain.links import Canonical, LinkId, LinkKind, LinkState, Shop
from mistnet.domain.ports import Clock
from mistnet.domain.products import PageFacts, PageVerdict
from mistnet.domain.sources import Errand
from mistnet.jobs.crawl_verdicts import (
    GONE,
    ITEM,
    NAMED,
    PAGE,
    SHORT,
    Read,
    doubted,
    judged,
    led_to,
    named,
    page_hop,
    short_hop,
)

SECOND_LOOK: Final = "looks a second time before it believes the price"
_MOST_INLINE: Final = 3


class CrawlRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set about reading pages."""

    second_look: timedelta = timedelta(minutes=10)
    keep_pages: bool = False
    shopee_api: Literal["item", "pdp"] = "item"


class CrawlLook(Protocol):
    """What a crawl asks the store before it goes."""

    async def link(self, link_id: LinkId) -> LinkAtHand | None: ...

    async def earlier(self, name: ProductName) -> Sequence[pricing.Earlier]: ...


class Crawler(msgspec.Struct, frozen=True, kw_only=True):
    """One visit per step. A page that keeps us out is never a page without a price."""

    look: CrawlLook
    web: Web
    clock: Clock
    read_page: Read
    rules: CrawlRules = CrawlRules()

    async def crawl(self, job: Job[CrawlArgs]) -> Outcome:
        link = await self.look.link(job.args.link_id)
        if link is None:
            return Fail(f"there is no link {job.args.link_id}")
        try:
            return await (self._resolve(job, link) if link.kind is LinkKind.SHORT else self._read(job, link))
        except SourceBlocked as error:
            return Retry(str(error), writes=[_went_wrong(job, link, error, CrawlOutcome.BLOCKED, LinkState.BLOCKED)])
        except PageUnreadable as error:
            return Done([_went_wrong(job, link, error, CrawlOutcome.UNREADABLE, LinkState.FAILED)])
        except (CrawlRefused, BadRequest) as error:
            outcome = CrawlOutcome.REFUSED if isinstance(error, CrawlRefused) else CrawlOutcome.FAILED
            return Fail(str(error), [_went_wrong(job, link, error, outcome, LinkState.FAILED)])
        except Temporary as error:
            return Retry(str(error), writes=[_went_wrong(job, link, error, CrawlOutcome.FAILED, LinkState.FAILED)])

    async def _resolve(self, job: Job[CrawlArgs], link: LinkAtHand) -> Outcome:
        """Where a short link leads becomes a link of its own, with its own crawl, in the same transaction."""
        url = _asked_url(link)
        for _ in range(_MOST_INLINE):
            visited, target = await self.web.visit(
                url,
                lane=link.lane,
                what=SHORT,
                hop=short_hop,
                read=lambda seen: led_to(seen, link.lane, self.read_page),
                errand=Errand(job.id),
            )
            if target is None:
                return Done([_gone(job, link, visited, f"{GONE} (status {visited.status})")])
            about = links.canonical(target)
            if isinstance(about, links.Refused):
                raise CrawlRefused(link.url, f"it leads to {target[:200]}: {about.reason}")
            if about.kind is LinkKind.DEAD:
                return Done([_gone(job, link, visited, "it leads nowhere any more")])
            if about.kind is not LinkKind.SHORT:
                return Done([_resolved(job, link, visited, target, about)])
            url = target
        raise CrawlRefused(link.url, "one short link leads to another without an end")

    async def _read(self, job: Job[CrawlArgs], link: LinkAtHand) -> Outcome:
        visited, facts = await self.web.visit(
            self._page_url(link),
            lane=link.lane,
            what=ITEM if link.kind in NAMED else PAGE,
            hop=lambda before, after: page_hop(link, before, after),
            read=lambda seen: judged(seen, link.lane, self.read_page),
            errand=Errand(job.id),
            fresh=job.args.seen is not None,
        )
        match facts.verdict:
            case PageVerdict.OFFER if facts.amount is not None:
                return await self._offered(job, link, visited, facts)
            case PageVerdict.GONE:
                return Done([_gone(job, link, visited, facts.reason or GONE)])
            case _:
                seen = self._seen(job, link, visited, facts, CrawlOutcome.NO_PRICE)
                known = named(link) if link.kind in NAMED else None
                return Done([msgspec.structs.replace(seen, product=known, problem=facts.reason)])

    async def _offered(self, job: Job[CrawlArgs], link: LinkAtHand, visited: Visited, facts: PageFacts) -> Outcome:
        name = named(link)
        earlier = await self.look.earlier(name)
        why = doubted(facts, earlier, seen_before=job.args.seen, now=self.clock.now())
        outcome = CrawlOutcome.DOUBTED if why else CrawlOutcome.OFFER
        seen = self._seen(job, link, visited, facts, outcome)
        writes = [msgspec.structs.replace(seen, product=name, doubt=why)]
        if why is None or job.args.looks:
            return Done(writes)
        again = CrawlArgs(link_id=link.id, looks=job.args.looks + 1, seen=content_hash(facts))
        return Continue(writes, args=again, run_at=self.clock.now() + self.rules.second_look, reason=SECOND_LOOK)

    def _seen(
        self, job: Job[CrawlArgs], link: LinkAtHand, visited: Visited, facts: PageFacts, outcome: CrawlOutcome
    ) -> Crawled:
        body = zlib.compress(visited.body, 9) if self.rules.keep_pages else None
        return msgspec.structs.replace(_visit(job, link, visited, outcome, LinkState.CRAWLED), facts=facts, body=body)

    def _page_url(self, link: LinkAtHand) -> str:
        """Shopee's pages say nothing without their scripts; the answers those scripts ask for say it all."""
        if link.shop is not Shop.SHOPEE or link.kind is not LinkKind.ITEM:
            return _asked_url(link)
        host = urlsplit(link.url_norm).netloc
        if self.rules.shopee_api == "pdp":
            return f"https://{host}/api/v4/pdp/get_pc?item_id={link.item_id}&shop_id={link.shop_id}"
        return f"https://{host}/api/v4/item/get?itemid={link.item_id}&shopid={link.shop_id}"


def _asked_url(link: LinkAtHand) -> str:
    """Things are asked for by their own name, not by the posted URL: nobody's affiliate counter is moved."""
    if link.kind in NAMED:
        return link.url_norm
    found = links.fetchable(link.url)
    if isinstance(found, links.Refused):
        raise CrawlRefused(link.url, found.reason)
    return found


def _visit(job: Job[CrawlArgs], link: LinkAtHand, visited: Visited, outcome: CrawlOutcome, state: LinkState) -> Crawled:
    return Crawled(
        link_id=link.id,
        job_id=job.id,
        outcome=outcome,
        state=state,
        http_status=visited.status,
        final_url=visited.final_url,
        size=len(visited.body),
        seconds=visited.seconds,
        cached=visited.cached,
    )


def _resolved(job: Job[CrawlArgs], link: LinkAtHand, visited: Visited, target: str, about: Canonical) -> Crawled:
    seen = _visit(job, link, visited, CrawlOutcome.RESOLVED, LinkState.RESOLVED)
    return msgspec.structs.replace(seen, final_url=target, target=LinkTarget(url=target, canonical=about))


def _gone(job: Job[CrawlArgs], link: LinkAtHand, visited: Visited, why: str) -> Crawled:
    """What a shop has no more is an answer like any other, not a failure: no one could act on it."""
    seen = _visit(job, link, visited, CrawlOutcome.GONE, LinkState.GONE)
    known = named(link) if link.kind in NAMED or link.product_id is not None else None
    return msgspec.structs.replace(seen, problem=why, product=known)


def _went_wrong(
    job: Job[CrawlArgs],
    link: LinkAtHand,
    error: SourceBlocked | CrawlRefused | PageUnreadable | BadRequest | Temporary,
    outcome: CrawlOutcome,
    state: LinkState,
) -> Crawled:
    status = getattr(error, "status", None)
    return Crawled(link_id=link.id, job_id=job.id, outcome=outcome, state=state, http_status=status, problem=str(error))
