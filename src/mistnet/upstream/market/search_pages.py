"""Reads a page of a shop's search as its file describes it. Pure: it runs apart from the worker."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urljoin, urlsplit

from mistnet import pricing
from mistnet.domain.items import Listing, Unreadable
from mistnet.upstream.market.amounts import Illegible
from mistnet.upstream.market.shop_file import ShopRules
from mistnet.upstream.market.shop_listings import read_listing
from mistnet.upstream.market.shop_paths import HtmlTree, JsonTree, Tree
from mistnet.upstream.reading.tasks import SearchRead


def read_search(body: bytes, rules: ShopRules, *, url: str, content_type: str | None, now: datetime) -> SearchRead:
    try:
        tree = _tree(body, rules, content_type)
        found = tree.listings(rules.listings)
        if not found and (problem := _lack(tree, rules)):
            return SearchRead(problem=problem)
        next_url = _next(tree, rules, url)
    except Illegible as error:
        return SearchRead(problem=str(error))
    read = [read_listing(each, rules, page_url=url, now=now) for each in found]
    return SearchRead(
        listings=[each for each in read if isinstance(each, Listing)],
        unreadable=[each for each in read if isinstance(each, Unreadable)],
        next_url=next_url,
    )


def _tree(body: bytes, rules: ShopRules, content_type: str | None) -> Tree:
    if rules.format == "json":
        return JsonTree(body)
    return HtmlTree(pricing.decode(body, content_type=content_type))


def _lack(tree: Tree, rules: ShopRules) -> str | None:
    """A page that is not the one we know must not pass for one that lists nothing."""
    if rules.empty and tree.value(rules.empty) is None:
        return f"neither {rules.listings!r} nor {rules.empty!r} is on the page"
    return None if rules.empty else tree.lack(rules.listings)


def _next(tree: Tree, rules: ShopRules, url: str) -> str | None:
    """On the same host, or not at all."""
    told = tree.value(rules.next_path) if rules.next_path else None
    if not isinstance(told, str) or not told.strip():
        return None
    try:
        found = urljoin(url, told.strip())
        same = urlsplit(found).netloc == urlsplit(url).netloc
    except ValueError:
        same = False
    if not same:
        raise Illegible(f"its next page {told[:80]!r} is on no page of the same host")
    return found
