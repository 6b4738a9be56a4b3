"""What a shop is: its hosts, the names of its links, the way its pages are read. Each has a module beside this one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from mistnet.shops.model import LinkKind

if TYPE_CHECKING:
    from mistnet.shops.extraction.facts import PageFinding
    from mistnet.shops.links.address import WebAddress
    from mistnet.shops.model import CrawlRules, LinkAtHand, PageFacts

WEB_LANE: Final = "web"


class LinkName(msgspec.Struct, frozen=True, kw_only=True):
    """What an address of a shop names. Whatever has an id has its rebuilt URL too: the one name of the thing.

    `coded` is for short links: the path alone says where they lead. `shop` is for addresses of another shop that has
    items on these hosts.
    """

    kind: LinkKind
    url: str | None = None
    region: str | None = None
    shop_id: str | None = None
    item_id: str | None = None
    variant: str | None = None
    coded: bool = False
    shop: Shop | None = None


class AnswerReader(Protocol):
    """Reads what a shop's own calls answer, and the data its pages keep in scripts. A module may be one."""

    def recognizes(self, payload: object) -> bool:
        """Whether a JSON answer looks like this shop's, a refusal included."""
        ...

    def read_answer(self, payload: object, *, url: str | None = None) -> PageFacts: ...

    def script_findings(self, html: str) -> Iterable[PageFinding]: ...


class PageRules(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How the pages of one shop are read, beyond the structured data that any page may have.

    `places` are CSS selectors of each field, the best first; `item` finds the part of the address that names the item.
    `wall_urls` and `wall_markup` tell pages that ask to log in or to solve a CAPTCHA. `ended_markup` is where the shop
    says that a listing is over. `reader` is called when the first page is read: parsers take long to load.
    """

    places: Mapping[str, Sequence[str]] = {}
    item: re.Pattern[str] | None = None
    wall_urls: str | None = None
    wall_markup: str | None = None
    ended_markup: str | None = None
    empty_is_wall: bool = False
    """A page without a price means that the shop shows prices in its own app alone."""

    reader: Callable[[], AnswerReader] | None = None


class LookAlikes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Names that a host must not borrow from the shop.

    A label that contains a `rare` name borrows it. A `plain` one is a word of its own (`thebay`, `amazonaws`): it is
    borrowed only where it stands alone or between words such as `login` and `shop`.
    """

    rare: Sequence[str] = ()
    plain: Sequence[str] = ()


def name_pages(_address: WebAddress, _site: Site) -> LinkName:
    """Name no items: every address is a page."""
    return LinkName(kind=LinkKind.PAGE)


# Compared by identity: shops are keys of dicts and caches, and their mappings have no hash.
class Shop(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One shop. Its name is what the database, the API and the commands call it.

    `hosts` are the domains on which it sells, each with its region where the domain tells one. A host belongs to the
    longest domain that it equals or lies below.
    """

    name: str
    hosts: Mapping[str, str | None]
    name_link: NameLink = name_pages
    lane: str = WEB_LANE
    short_hosts: Sequence[str] = ()
    """Where short links alone are."""

    other_hosts: Sequence[str] = ()
    """The shop's too, but nothing is sold there."""

    family: str | None = None
    """Shops of one family send readers to each other."""

    unwrap: Callable[[WebAddress], str | None] | None = None
    """The target of a redirect that carries it in its query."""

    slugs: str | None = None
    """A pattern of addresses that hold letters beyond ASCII. Text around any other address ends it."""

    hidden_short_links: re.Pattern[str] | None = None
    """The paths of short links on hosts that the shop changes often."""

    look_alikes: LookAlikes = LookAlikes()
    page_url: Callable[[LinkAtHand, CrawlRules], str] | None = None
    """Where an item is read, if not on its page."""

    pages: PageRules = PageRules()

    @property
    def kin(self) -> str:
        return self.family or self.name

    @property
    def every_host(self) -> Sequence[str]:
        return (*self.hosts, *self.short_hosts, *self.other_hosts)


class Site(msgspec.Struct, frozen=True, eq=False):
    """A shop's domain, what stands before it in the host, and its region if the domain tells one."""

    shop: Shop
    domain: str
    below: str
    region: str | None


NameLink: TypeAlias = "Callable[[WebAddress, Site], LinkName]"


WEB: Final = Shop(name="web", hosts={})
"""Every host that is no shop's."""
