"""Visit one link: follow it if it is short, else read the price on its page."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from mistnet.governor.errors import BadRequest, BrokenAnswer, SourceBlocked, SourceDown
from mistnet.governor.model import CallPurpose
from mistnet.kit.clock import Clock
from mistnet.queue.errors import Temporary
from mistnet.queue.model import Continue, Done, Fail, Job, Outcome, Retry
from mistnet.shops import extraction, links
from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.model import (
    CrawlArgs,
    Crawled,
    CrawlOutcome,
    CrawlRefused,
    CrawlRules,
    Hop,
    LinkAtHand,
    LinkKind,
    LinkState,
    LinkTarget,
    PageFacts,
    PageUnreadable,
    PageVerdict,
    PageVisit,
    ProductName,
    Web,
    bounded,
    content_hash,
)
from mistnet.shops.shop import WEB

if TYPE_CHECKING:
    from mistnet.shops.store.products import StoreCrawlLook

Read: TypeAlias = Callable[[PageVisit], Awaitable[PageFacts]]
"""Reads a page, usually in another process. Raises PageUnreadable if it is beyond the limits."""

NO_CURRENCY: Final = "the page does not say in which currency"
GONE: Final = "the page is gone"
ITEM, PAGE, SHORT = "item", "page", "short"
NAMED: Final = (LinkKind.ITEM, LinkKind.CATALOGUE)
_GONE: Final = (404, 410)
_FORBIDDEN: Final = (401, 403, 407, 451)
_CLIENT_FAULTS: Final = range(400, 500)
_SERVER_FAULTS: Final = range(500, 600)


def product_name(link: LinkAtHand) -> ProductName:
    """A product is identified by its shop's ids, or by its page if the shop has none."""
    if link.kind in NAMED and link.item_id:
        item_id = link.item_id if link.kind is LinkKind.ITEM else f"{link.kind}:{link.item_id}"
        shop_id, region = link.shop_id or "", link.region or ""
    else:
        item_id, shop_id, region = bounded(link.url_norm), link.host, ""
    return ProductName(platform=link.shop, region=region, shop_id=shop_id, item_id=item_id, url=link.url_norm)


def judge_price(
    facts: PageFacts,
    earlier: Sequence[extraction.EarlierPrice],
    *,
    seen_before: str | None,
    now: datetime | None = None,
) -> str | None:
    """Why the price is not believed. A second visit that sees the same settles doubts about its history."""
    if facts.currency is None:
        return NO_CURRENCY
    why = extraction.find_doubt(facts, earlier, now=now)
    if why is None or seen_before != content_hash(facts):
        return why
    return extraction.find_doubt(facts, ())


async def judge_page(seen: PageVisit, lane: str, read: Read, shops: ShopCatalog = CATALOG) -> PageFacts:
    """The facts of a page. Raises if the response is no page: that counts against its source."""
    about = links.canonical_link(seen.final_url, shops)
    kind = None if isinstance(about, links.RefusedUrl) else about.kind
    if kind is LinkKind.BLOCKED:
        raise SourceBlocked(lane, f"it led to {seen.final_url[:200]}", status=seen.status)
    if seen.status in _GONE or kind is LinkKind.DEAD:
        return PageFacts(verdict=PageVerdict.GONE, reason=f"{GONE} (status {seen.status})")
    if seen.unread:
        facts = PageFacts(verdict=PageVerdict.NO_PRICE, reason=seen.unread)
    else:
        facts = await read(seen)
    _require_success(seen, lane, facts)
    return facts


async def find_target(seen: PageVisit, lane: str, read: Read, shops: ShopCatalog = CATALOG) -> str | None:
    """Where a short link leads: by redirect, or by the script in a page that answers 200. None: it is gone."""
    about = links.canonical_link(seen.final_url, shops)
    if not isinstance(about, links.RefusedUrl) and about.kind is LinkKind.BLOCKED:
        raise SourceBlocked(lane, f"it led to {seen.final_url[:200]}", status=seen.status)
    if isinstance(about, links.RefusedUrl) or about.kind is not LinkKind.SHORT:
        return seen.final_url
    if seen.status in _GONE:
        return None
    target = links.inline_target(seen.body.decode("utf-8", "replace"))
    if target is None:
        _require_success(seen, lane, await read(seen))
        raise BrokenAnswer(lane, SHORT, "a short link's page names no target")
    if not links.may_follow(seen.final_url, target, shops):
        raise CrawlRefused(seen.url, f"it leads to {target[:200]}, away from its shop")
    return target


def short_hop(before: str, after: str, shops: ShopCatalog = CATALOG) -> Hop:
    """Follow while links are short or stay inside the shop. A shop's short link must not leave the shop."""
    if not links.may_follow(before, after, shops):
        return Hop.REFUSE
    about = links.canonical_link(after, shops)
    if isinstance(about, links.RefusedUrl):
        return Hop.REFUSE
    if about.kind is LinkKind.SHORT or (about.kind is LinkKind.PAGE and about.shop is not WEB):
        return Hop.FOLLOW
    return Hop.STOP


def page_hop(link: LinkAtHand, before: str, after: str, shops: ShopCatalog = CATALOG) -> Hop:
    """A shop's page stays in its shop. Redirects to its login and error pages are noted, not followed."""
    about = links.canonical_link(after, shops)
    if isinstance(about, links.RefusedUrl):
        return Hop.REFUSE
    if about.kind in (LinkKind.BLOCKED, LinkKind.DEAD):
        return Hop.STOP
    if link.shop is WEB:
        return Hop.FOLLOW
    return Hop.FOLLOW if about.shop is link.shop or links.may_follow(before, after, shops) else Hop.REFUSE


def _require_success(seen: PageVisit, lane: str, facts: PageFacts) -> None:
    # Blocked first: a CAPTCHA page may come with any status.
    if facts.verdict is PageVerdict.BLOCKED or seen.status in _FORBIDDEN:
        raise SourceBlocked(lane, facts.reason or f"status {seen.status}", status=seen.status)
    if seen.status in _SERVER_FAULTS:
        raise SourceDown(lane, f"status {seen.status}", status=seen.status, host=urlsplit(seen.final_url).hostname)
    if seen.status in _CLIENT_FAULTS:
        raise BadRequest(lane, PAGE, seen.status, "the page cannot be fetched this way")


SECOND_LOOK: Final = "checks the price a second time before it is believed"
# Pages that redirect by script may send readers in a circle.
_MOST_INLINE: Final = 3


class Crawler(msgspec.Struct, frozen=True, kw_only=True):
    """One visit per step. A page that keeps readers out is never a page without a price."""

    look: StoreCrawlLook
    web: Web
    clock: Clock
    read_page: Read
    rules: CrawlRules = CrawlRules()
    shops: ShopCatalog = CATALOG

    async def crawl(self, job: Job[CrawlArgs]) -> Outcome:
        link = await self.look.link(job.args.link_id)
        if link is None:
            return Fail(f"there is no link {job.args.link_id}")
        try:
            return await (self._resolve(job, link) if link.kind is LinkKind.SHORT else self._read(job, link))
        except SourceBlocked as error:
            return Retry(str(error), writes=[_failure(job, link, error, CrawlOutcome.BLOCKED, LinkState.BLOCKED)])
        except PageUnreadable as error:
            return Done([_failure(job, link, error, CrawlOutcome.UNREADABLE, LinkState.FAILED)])
        except (CrawlRefused, BadRequest) as error:
            outcome = CrawlOutcome.REFUSED if isinstance(error, CrawlRefused) else CrawlOutcome.FAILED
            return Fail(str(error), [_failure(job, link, error, outcome, LinkState.FAILED)])
        except Temporary as error:
            return Retry(str(error), writes=[_failure(job, link, error, CrawlOutcome.FAILED, LinkState.FAILED)])

    async def _resolve(self, job: Job[CrawlArgs], link: LinkAtHand) -> Outcome:
        """The target of a short link becomes a link with its own crawl, in the same transaction."""
        url = _request_url(link, self.shops)
        for _ in range(_MOST_INLINE):
            visited, target = await self.web.visit(
                url,
                lane=link.lane,
                what=SHORT,
                hop=lambda before, after: short_hop(before, after, self.shops),
                read=lambda seen: find_target(seen, link.lane, self.read_page, self.shops),
                purpose=CallPurpose(job.id),
            )
            if target is None:
                return Done([_gone_visit(job, link, visited, f"{GONE} (status {visited.status})")])
            about = links.canonical_link(target, self.shops)
            if isinstance(about, links.RefusedUrl):
                raise CrawlRefused(link.url, f"it leads to {target[:200]}: {about.reason}")
            if about.kind is LinkKind.DEAD:
                return Done([_gone_visit(job, link, visited, "its target is gone")])
            if about.kind is not LinkKind.SHORT:
                seen = _visit(job, link, visited, CrawlOutcome.RESOLVED, LinkState.RESOLVED)
                reached = LinkTarget(url=target, canonical=about)
                return Done([msgspec.structs.replace(seen, final_url=target, target=reached)])
            url = target
        raise CrawlRefused(link.url, "it leads through too many short links")

    async def _read(self, job: Job[CrawlArgs], link: LinkAtHand) -> Outcome:
        own_url = link.shop.page_url if link.kind is LinkKind.ITEM else None
        visited, facts = await self.web.visit(
            own_url(link, self.rules) if own_url else _request_url(link, self.shops),
            lane=link.lane,
            what=ITEM if link.kind in NAMED else PAGE,
            hop=lambda before, after: page_hop(link, before, after, self.shops),
            read=lambda seen: judge_page(seen, link.lane, self.read_page, self.shops),
            purpose=CallPurpose(job.id),
            # A cached page would only confirm itself.
            fresh=job.args.seen is not None,
        )
        name = product_name(link)
        match facts.verdict:
            case PageVerdict.GONE:
                return Done([_gone_visit(job, link, visited, facts.reason or GONE)])
            case PageVerdict.OFFER if facts.amount is not None:
                earlier = await self.look.earlier(name)
                why = judge_price(facts, earlier, seen_before=job.args.seen, now=self.clock.now())
                outcome = CrawlOutcome.DOUBTED if why else CrawlOutcome.OFFER
            case _:
                outcome, why = CrawlOutcome.NO_PRICE, None
        body = zlib.compress(visited.body, 9) if self.rules.keep_pages else None
        seen = _visit(job, link, visited, outcome, LinkState.CRAWLED)
        is_offer = outcome is not CrawlOutcome.NO_PRICE
        known, problem = name if is_offer or link.kind in NAMED else None, None if is_offer else facts.reason
        writes = [msgspec.structs.replace(seen, facts=facts, body=body, product=known, doubt=why, problem=problem)]
        # One second look: a price that is still doubted is stored with its doubt.
        if why is None or job.args.looks:
            return Done(writes)
        again = CrawlArgs(link_id=link.id, looks=job.args.looks + 1, seen=content_hash(facts))
        return Continue(writes, args=again, run_at=self.clock.now() + self.rules.second_look, reason=SECOND_LOOK)


def _request_url(link: LinkAtHand, shops: ShopCatalog) -> str:
    """Items are requested by their canonical URL, so that no affiliate is credited for our visits."""
    if link.kind in NAMED:
        return link.url_norm
    found = links.fetchable_url(link.url, shops)
    if isinstance(found, links.RefusedUrl):
        raise CrawlRefused(link.url, found.reason)
    return found


def _visit(
    job: Job[CrawlArgs], link: LinkAtHand, visited: PageVisit, outcome: CrawlOutcome, state: LinkState
) -> Crawled:
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


def _gone_visit(job: Job[CrawlArgs], link: LinkAtHand, visited: PageVisit, why: str) -> Crawled:
    """A page that is gone is a result, not a failure: no operator could act on it."""
    seen = _visit(job, link, visited, CrawlOutcome.GONE, LinkState.GONE)
    known = product_name(link) if link.kind in NAMED or link.product_id is not None else None
    return msgspec.structs.replace(seen, problem=why, product=known)


def _failure(
    job: Job[CrawlArgs],
    link: LinkAtHand,
    error: SourceBlocked | CrawlRefused | PageUnreadable | BadRequest | Temporary,
    outcome: CrawlOutcome,
    state: LinkState,
) -> Crawled:
    status = getattr(error, "status", None)
    return Crawled(link_id=link.id, job_id=job.id, outcome=outcome, state=state, http_status=status, problem=str(error))
