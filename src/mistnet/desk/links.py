"""Finds the links somebody asks for: by what is known of them, or the one that a whole URL is."""

from __future__ import annotations

from mistnet import links as link_rules
from mistnet.domain.crawling import bounded
from mistnet.domain.links import Canonical
from mistnet.store.link_pages import LinkFilter, LinkPage, LinkPages


async def found_links(pages: LinkPages, wanted: LinkFilter) -> LinkPage:
    """Somebody who gives a whole URL means one link, in whichever of its forms he has it."""
    name = _name_of(wanted.words)
    known = await pages.called(name) if name else None
    if known is None:
        return await pages.list(wanted)
    one = await pages.one(known)
    return LinkPage(links=[one] if one else [], next=None)


def _name_of(words: str) -> str | None:
    given = words.strip()
    if not given.lower().startswith(("https://", "http://")):
        return None
    named = link_rules.canonical(given)
    return bounded(named.url_norm) if isinstance(named, Canonical) else None
