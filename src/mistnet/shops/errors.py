"""Errors of links, products and crawling."""

from __future__ import annotations

from mistnet.kit.errors import UsageError
from mistnet.queue.errors import Permanent


class LinkNotFound(UsageError):
    """No link has this id or URL."""

    def __init__(self, given: str) -> None:
        super().__init__(f"there is no link {given[:200]!r}; `mistnet links list` lists the known ones")
        self.given = given


class ProductNotFound(UsageError):
    """No product has this id or URL."""

    def __init__(self, given: str) -> None:
        super().__init__(f"there is no product {given[:200]!r}; `mistnet products list` lists the known ones")
        self.given = given


class OfferNotFound(UsageError):
    """No offer has this id."""

    def __init__(self, offer_id: int) -> None:
        super().__init__(f"there is no offer {offer_id}; `mistnet products show` lists those of a product")
        self.offer_id = offer_id


class BadShop(UsageError):
    """The file that describes shops has a mistake."""

    def __init__(self, file: object, shop: str | None, key: str | None, problem: str) -> None:
        place = ": ".join(part for part in (str(file), f"shop {shop}" if shop else None, key) if part)
        super().__init__(f"{place}: {problem}")
        self.file, self.shop, self.key, self.problem = str(file), shop, key, problem


class CrawlRefused(Permanent):
    """A page that mistnet does not fetch, or does not read to its end."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url[:200]} is not fetched: {reason}")
        self.url, self.reason = url, reason


class PageUnreadable(Permanent):
    """A page that takes too much time or memory to read, or breaks its reader. A retry would end the same way."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the page cannot be read: {reason}")
        self.reason = reason


class UnsafeAddress(CrawlRefused):
    """A URL that leads, or could lead, to an address that is not public (SSRF)."""
