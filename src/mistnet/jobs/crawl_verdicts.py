"""What a visited page amounts to: an offer, a wall, a dead end, or a step further."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from mistnet import links, pricing
from mistnet.domain.crawling import Hop, LinkAtHand, ProductName, Visited, bounded, content_hash
from mistnet.domain.errors import BadRequest, BrokenAnswer, CrawlRefused, SourceBlocked, SourceDown
from mistnet.domain.links import LinkKind, Shop
from mistnet.domain.products import PageFacts, PageVerdict

Read: TypeAlias = Callable[[Visited], Awaitable[PageFacts]]
"""Reads a page apart from this process; raises PageUnreadable if it is beyond the limits."""

NO_CURRENCY: Final = "the page does not say in which currency"
GONE: Final = "the page is gone"
ITEM, PAGE, SHORT = "item", "page", "short"
NAMED: Final = (LinkKind.ITEM, LinkKind.CATALOGUE)
_GONE: Final = (404, 410)
_KEPT_OUT: Final = (401, 403, 407, 451)
_CLIENT_FAULTS: Final = range(400, 500)
_SERVER_FAULTS: Final = range(500, 600)


def named(link: LinkAtHand) -> ProductName:
    """A thing goes by its shop's ids, or where there are none by its page."""
    if link.kind in NAMED and link.item_id:
        item_id = link.item_id if link.kind is LinkKind.ITEM else f"{link.kind}:{link.item_id}"
        shop_id, region = link.shop_id or "", link.region or ""
    else:
        item_id, shop_id, region = bounded(link.url_norm), link.host, ""
    return ProductName(platform=link.shop, region=region, shop_id=shop_id, item_id=item_id, url=link.url_norm)


def doubted(
    facts: PageFacts, earlier: Sequence[pricing.Earlier], *, seen_before: str | None, now: datetime | None = None
) -> str | None:
    """Why the price is not believed. What only its past speaks against is believed if a second look saw the same."""
    if facts.currency is None:
        return NO_CURRENCY
    why = pricing.doubt(facts, earlier, now=now)
    if why is None or seen_before != content_hash(facts):
        return why
    return pricing.doubt(facts, ())


async def judged(seen: Visited, lane: str, read: Read) -> PageFacts:
    """What a page says. Raises where it is no page: that counts against its source."""
    about = links.canonical(seen.final_url)
    kind = None if isinstance(about, links.Refused) else about.kind
    if kind is LinkKind.BLOCKED:
        raise SourceBlocked(lane, f"it led to {seen.final_url[:200]}", status=seen.status)
    if seen.status in _GONE or kind is LinkKind.DEAD:
        return PageFacts(verdict=PageVerdict.GONE, reason=f"{GONE} (status {seen.status})")
    if seen.unread:
        facts = PageFacts(verdict=PageVerdict.NO_PRICE, reason=seen.unread)
    else:
        facts = await read(seen)
    if facts.verdict is PageVerdict.BLOCKED or seen.status in _KEPT_OUT:
        raise SourceBlocked(lane, facts.reason or f"status {seen.status}", status=seen.status)
    _require_success(seen, lane)
    return facts


async def led_to(seen: Visited, lane: str, read: Read) -> str | None:
    """Where a short link's answer leads: by redirect, or by the script in a page that answers 200. None: it is gone."""
    about = links.canonical(seen.final_url)
    if not isinstance(about, links.Refused) and about.kind is LinkKind.BLOCKED:
        raise SourceBlocked(lane, f"it led to {seen.final_url[:200]}", status=seen.status)
    if isinstance(about, links.Refused) or about.kind is not LinkKind.SHORT:
        return seen.final_url
    if seen.status in _GONE:
        return None
    target = links.inline_target(seen.body.decode("utf-8", "replace"))
    if target is None:
        facts = await read(seen)
        if facts.verdict is PageVerdict.BLOCKED or seen.status in _KEPT_OUT:
            raise SourceBlocked(lane, facts.reason or f"status {seen.status}", status=seen.status)
        _require_success(seen, lane)
        raise BrokenAnswer(lane, SHORT, "a short link's page names no target")
    if not links.may_follow(seen.final_url, target):
        raise CrawlRefused(seen.url, f"it leads to {target[:200]}, away from its shop")
    return target


def short_hop(before: str, after: str) -> Hop:
    """Goes on while links are short or stay inside the shop; never leaves the shop on a shop's short link."""
    if not links.may_follow(before, after):
        return Hop.REFUSE
    about = links.canonical(after)
    if isinstance(about, links.Refused):
        return Hop.REFUSE
    if about.kind is LinkKind.SHORT or (about.kind is LinkKind.PAGE and about.shop is not Shop.WEB):
        return Hop.FOLLOW
    return Hop.STOP


def page_hop(link: LinkAtHand, before: str, after: str) -> Hop:
    """A shop's page stays in its shop; its walls and error pages are taken note of, not visited."""
    about = links.canonical(after)
    if isinstance(about, links.Refused):
        return Hop.REFUSE
    if about.kind in (LinkKind.BLOCKED, LinkKind.DEAD):
        return Hop.STOP
    if link.shop is Shop.WEB:
        return Hop.FOLLOW
    return Hop.FOLLOW if about.shop is link.shop or links.may_follow(before, after) else Hop.REFUSE


def _require_success(seen: Visited, lane: str) -> None:
    if seen.status in _SERVER_FAULTS:
        raise SourceDown(lane, f"status {seen.status}", status=seen.status, host=urlsplit(seen.final_url).hostname)
    if seen.status in _CLIENT_FAULTS:
        raise BadRequest(lane, PAGE, seen.status, "the page is not to be had this way")
