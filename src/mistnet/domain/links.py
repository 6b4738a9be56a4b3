"""Links people post: how they are named, where they lead, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NewType

import msgspec

from mistnet.domain.social import PartOfPost

LinkId = NewType("LinkId", int)

WEB_LANE = "web"
SHOP_LANES = ("shopee", "taobao", "ebay")
CRAWL_LANES = (*SHOP_LANES, WEB_LANE)


class Shop(StrEnum):
    """Who sells, as far as a link tells."""

    SHOPEE = "shopee"
    TAOBAO = "taobao"
    EBAY = "ebay"
    AMAZON = "amazon"
    GOOFISH = "goofish"
    WEB = "web"

    @property
    def lane(self) -> str:
        return self.value if self.value in SHOP_LANES else WEB_LANE


class LinkKind(StrEnum):
    """What a link names. A short link must be followed; a code can only be read by the shop's own app.

    `blocked` and `dead` are where shops send strangers and old links: a log-in or captcha page, an error page.
    `refused` is never visited: a host that only looks like a shop's, a user name before the host, no web address.
    """

    ITEM = "item"
    CATALOGUE = "catalogue"
    SHOP = "shop"
    SEARCH = "search"
    SHORT = "short"
    CODE = "code"
    BLOCKED = "blocked"
    DEAD = "dead"
    PAGE = "page"
    REFUSED = "refused"


class LinkState(StrEnum):
    NEW = "new"
    CRAWLED = "crawled"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    BLOCKED = "blocked"
    GONE = "gone"
    FAILED = "failed"


class Place(StrEnum):
    """Where in a post a link was found."""

    TEXT = "text"
    ENTITY = "entity"
    ATTACHMENT = "attachment"
    TEXT_ATTACHMENT = "text_attachment"
    QUOTED = "quoted"


class Canonical(msgspec.Struct, frozen=True, kw_only=True):
    """A link under its one name. `url_norm` is the key; what is fetched is `url` (see `fetchable`)."""

    url_norm: str
    host: str
    shop: Shop
    kind: LinkKind
    region: str | None = None
    shop_id: str | None = None
    item_id: str | None = None
    variant: str | None = None


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """One link of one post, as it was posted. A code comes with the title the shop's app wrote beside it."""

    url: str
    place: Place
    canonical: Canonical
    title: str | None = None


class PostLinks(PartOfPost, frozen=True, kw_only=True):
    """All links of one post. Links not known yet get their row and their one crawl job in the same transaction."""

    mentions: Sequence[Mention]
