"""Shops that a file describes: its fields, checked when it is read, and the search of one shop."""

from __future__ import annotations

import os
import re
import string
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mistnet.governor.errors import BadRequest, BrokenAnswer, SourceDown, SourcePaused, SourceRefused
from mistnet.governor.model import THREADS_SOURCE, X_SOURCE, CallPurpose, SourceName
from mistnet.kit.clock import Clock
from mistnet.kit.errors import did_you_mean
from mistnet.prices.model import EBAY_API, Item, ItemRequest, PriceAnswer, PriceListing, UnreadableListing
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import BadShop, Hop, PageVisit, Web
from mistnet.sources.listings import problem_of_path, problem_of_selector
from mistnet.sources.price_answers import PageCursor, PageCursors, query_of
from mistnet.sources.reading import PageReader, ReadSearch, SearchRead

PLACES: Final = ("query", "title", "year", "mint_mark", "denomination", "series", "grade")
"""The placeholders that a URL may contain."""

TAKEN: Final = frozenset({X_SOURCE, THREADS_SOURCE, EBAY_API, *CRAWL_LANES})
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_STRICT: Final = ConfigDict(extra="forbid", frozen=True)
Path_: TypeAlias = Annotated[str, Field(min_length=1, max_length=500)]
Kind: TypeAlias = Literal["ask", "bid", "sold"]


class Fields(BaseModel):
    """Where each value of a listing is: a dotted path (JSON), or a CSS selector, with `@attribute` if needed (HTML)."""

    model_config = _STRICT

    title: Path_
    price: Path_
    currency: Path_ | None = None
    url: Path_ | None = None
    id: Path_ | None = None
    condition: Path_ | None = None
    sold_at: Path_ | None = None
    bids: Path_ | None = None
    kind: Path_ | None = None

    @property
    def given(self) -> Mapping[str, str]:
        return self.model_dump(exclude_none=True)


class ShopRules(BaseModel):
    """One shop: a `[shops.NAME]` table."""

    model_config = _STRICT

    url: Annotated[str, Field(min_length=1, max_length=2_000)]
    format: Literal["json", "html"]
    listings: Path_
    fields: Fields
    kind: Kind | None = None
    kinds: dict[str, Kind] = {}
    currency: str | None = None
    minor_units: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    rate_per_minute: Annotated[float, Field(gt=0, le=1_000_000)] = 10.0
    pages: Annotated[int, Field(ge=1, le=100)] = 1
    next: Path_ | None = None
    empty: Path_ | None = None
    robots: bool | None = None
    headers: dict[str, str] = {}
    secret_headers: dict[str, str] = {}

    @field_validator("url")
    @classmethod
    def _has_known_gaps(cls, given: str) -> str:
        gaps = _gaps(given)
        for gap in gaps:
            if gap not in PLACES:
                known = ", ".join(f"{{{place}}}" for place in PLACES)
                raise ValueError(f"there is nothing to put in {{{gap}}}.{did_you_mean(gap, PLACES)} Known: {known}")
        if not {"query", "title"} & set(gaps):
            raise ValueError("it asks for nothing: put {query} or {title} where the words of the search go")
        parts = urlsplit(given)
        if parts.scheme not in ("https", "http") or not parts.hostname or "{" in parts.netloc:
            raise ValueError("it must begin with https:// or http:// and name a host without gaps")
        return given

    @field_validator("currency")
    @classmethod
    def _is_iso(cls, given: str | None) -> str | None:
        if given is not None and not _CURRENCY.fullmatch(given):
            raise ValueError(f"{given[:20]!r} is no currency; write an ISO code such as USD")
        return given

    @field_validator("headers", "secret_headers")
    @classmethod
    def _are_headers(cls, given: dict[str, str]) -> dict[str, str]:
        for name, value in given.items():
            # The transport sets these two itself.
            if not _HEADER.fullmatch(name) or name.lower() in ("host", "content-length"):
                raise ValueError(f"{name[:40]!r} is no header that can be sent")
            if not value.isprintable() or not value.isascii():
                raise ValueError(f"the value of {name} has signs that no header may have")
        return given

    @field_validator("secret_headers")
    @classmethod
    def _name_variables(cls, given: dict[str, str]) -> dict[str, str]:
        """Errors show the name of the variable, but never a secret that was written here by mistake."""
        for header, variable in given.items():
            if not _VARIABLE.fullmatch(variable):
                raise ValueError(f"{header}: write the name of an environment variable here, not the secret itself")
            if variable.upper().startswith("MISTNET_"):
                raise ValueError(f"{header}: names that begin with MISTNET_ are settings; call the variable otherwise")
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> ShopRules:
        if self.currency is None and self.fields.currency is None and self.minor_units != 1:
            raise ValueError("currency: bare numbers need one; set `currency`, or `currency` in [fields]")
        if self.kinds and self.fields.kind is None:
            raise ValueError("kinds: nothing tells which of them a listing is; set `kind` in [fields]")
        if self.kind == "bid" and self.fields.bids is None:
            raise ValueError("fields.bids: bids need their number; set the path to the number of bids")
        if self.pages > 1 and self.next is None:
            raise ValueError("next: say where the address of the next page is, or leave out `pages`")
        fields = {f"fields.{name}": path for name, path in self.fields.given.items()}
        paths = {"listings": self.listings, **fields, "next": self.next, "empty": self.empty}
        for place, path in paths.items():
            check = problem_of_path if self.format == "json" else problem_of_selector
            problem = check(path) if path else None
            if problem:
                raise ValueError(f"{place}: {problem}")
        return self

    def held_secrets(self) -> Sequence[str]:
        """The secrets themselves, as far as the environment has them."""
        return [os.environ[each] for each in sorted(self.secret_headers.values()) if os.environ.get(each)]

    @property
    def asks_for_grade(self) -> bool:
        return "grade" in _gaps(self.url)

    @property
    def next_path(self) -> str | None:
        """On an HTML page the next URL is the `href` of the link, unless an attribute is given."""
        bare = self.next is not None and self.format == "html" and "@" not in self.next
        return f"{self.next}@href" if bare else self.next

    @property
    def asks_robots(self) -> bool:
        """HTML pages are made for people, so robots.txt applies; a JSON API expects programs."""
        return self.format == "html" if self.robots is None else self.robots


class ShopFile(BaseModel):
    model_config = _STRICT

    shops: dict[str, ShopRules] = {}


def read_shops(file: Path) -> Mapping[SourceName, ShopRules]:
    """All shops of a file. Raises BadShop with the place of the mistake and how to fix it."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadShop(file, None, None, "there is no such file; fix the setting `price_sources`") from None
    except OSError as error:
        raise BadShop(file, None, None, f"it cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadShop(file, None, None, f"it is not valid TOML: {error}") from None
    shops = content.get("shops")
    for name in shops if isinstance(shops, dict) else ():
        if not _NAME.fullmatch(name):
            problem = "use small letters, digits and _, beginning with a letter, 40 at most"
            raise BadShop(file, name[:60], None, problem)
        if name in TAKEN:
            raise BadShop(file, name, None, "mistnet has a source of this name; call the shop otherwise")
    try:
        found = ShopFile.model_validate(content)
    except ValidationError as error:
        raise _bad_shop(file, error) from None
    return {SourceName(name): found.shops[name] for name in sorted(found.shops)}


def _bad_shop(file: Path, error: ValidationError) -> BadShop:
    """Report a misspelt key before the key that is missing because of it."""
    found = error.errors(include_url=False, include_input=False)
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    place = [str(part) for part in first["loc"]]
    shop = place[1] if len(place) > 1 else None
    key = ".".join(place[2:]) or None
    match first["type"]:
        case "extra_forbidden":
            known = Fields if "fields" in place[:-1] else ShopRules if len(place) > 1 else ShopFile
            problem = f"there is no such key.{did_you_mean(place[-1], known.model_fields)}"
        case "missing":
            problem = "it is missing; docs/price-sources.md shows a whole example"
        case _:
            said = str(first["msg"]).removeprefix("Value error, ")
            problem = said[:1].lower() + said[1:]
    return BadShop(file, shop, key or (place[0] if place and not shop else None), problem)


def _gaps(url: str) -> Sequence[str]:
    try:
        return [name for _, name, _, _ in string.Formatter().parse(url) if name is not None]
    except ValueError as error:
        raise ValueError(f"its braces do not match: {error}; write {{{{ or }}}} for a brace of its own") from None


SEARCH: Final = "search"
REFUSED_WAIT: Final = timedelta(hours=1)
NO_SECRET_WAIT: Final = timedelta(minutes=5)
_OK: Final = 200
_KEY_REFUSED: Final = (401, 402, 403)
_TRY_LATER: Final = (408, 425)
_AT: Final = "page-url"
"""The header under which a cached page keeps its final URL."""


class ConfiguredShop:
    """Searches one shop of the file and raises typed errors. It does not know the jobs that it is called for."""

    def __init__(
        self,
        name: SourceName,
        rules: ShopRules,
        *,
        web: Web,
        reader: PageReader,
        clock: Clock,
        pages: PageCursors | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._rules = rules
        self._web = web
        self._reader = reader
        # Written once: every page carries it to the process that reads it.
        self._written_rules = rules.model_dump_json()
        self._clock = clock
        self._pages = pages
        self._environment = os.environ if environment is None else environment

    @property
    def name(self) -> SourceName:
        return self._name

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:  # noqa: ARG002 (it always is)
        """Read page after page, until there is no more or the file's limit is reached."""
        missing = [variable for variable in self._rules.secret_headers.values() if not self._environment.get(variable)]
        if missing:
            problem = f"the environment has no {missing[0]}, which its secret_headers need; set it"
            raise SourcePaused(self.name, self._clock.now() + NO_SECRET_WAIT, problem)
        mark = PageCursor(self._pages, clock=self._clock, source=self.name, purpose=purpose)
        listings: dict[object, PriceListing] = {}
        unreadable: list[UnreadableListing] = []
        url: str | None = fill_url(self._rules.url, item)
        seen: set[str] = set()
        # A shop whose last page links to an earlier one must not be read in a circle.
        while url is not None and url not in seen and len(seen) < self._rules.pages:
            seen.add(url)
            page = await self._page(url, purpose, mark)
            for listing in page.listings:
                content = (listing.url, listing.title, listing.amount, listing.kind, listing.observed_at)
                listings.setdefault(listing.external_id or content, listing)
            unreadable += page.unreadable
            url = page.next_url
        await mark.close()
        return PriceAnswer(listings=list(listings.values()), unreadable=unreadable)

    async def _page(self, url: str, purpose: CallPurpose, mark: PageCursor) -> SearchRead:
        """The page that this job has read before, or else the current one from the shop."""
        kept = await mark.recall(url)
        if kept is not None:
            at = kept.headers.get(_AT, url)
            return await self._read(
                PageVisit(url=url, final_url=at, status=kept.status, headers=kept.headers, body=kept.body, cached=True)
            )
        seen, page = await self._web.visit(
            url, lane=self.name, what=SEARCH, hop=self._hop, read=self._read, purpose=purpose
        )
        if page.next_url is not None:
            await mark.keep(url, seen.body, {"content-type": seen.content_type or "", _AT: seen.final_url})
        return page

    def _hop(self, before: str, after: str) -> Hop:
        """Secret headers go only to the host that the file names, and never from https to http."""
        old, new = urlsplit(before), urlsplit(after)
        if not self._rules.secret_headers or (new.hostname == old.hostname and new.scheme in (old.scheme, "https")):
            return Hop.FOLLOW
        return Hop.REFUSE

    async def _read(self, visited: PageVisit) -> SearchRead:
        """Raise the typed error for a status other than 200 (the web client handles 429), or read the page."""
        status, until = visited.status, self._clock.now() + REFUSED_WAIT
        if status in _KEY_REFUSED and self._rules.secret_headers:
            names = ", ".join(sorted(self._rules.secret_headers.values()))
            raise SourceRefused(self.name, until, f"it refuses what {names} holds (status {status})", status=status)
        if status in _KEY_REFUSED:
            problem = f"it blocks us with status {status}: lower its rate_per_minute, or give it secret_headers"
            raise SourceDown(self.name, problem, status=status)
        if status >= 500 or status in _TRY_LATER:
            raise SourceDown(self.name, f"status {status}", status=status)
        if status != _OK:
            raise BadRequest(self.name, SEARCH, status, "fix its `url` in the file that `price_sources` names")
        if visited.unread:
            raise BrokenAnswer(self.name, SEARCH, visited.unread)
        page = await self._reader.search(
            ReadSearch(
                rules=self._written_rules,
                url=visited.final_url,
                content_type=visited.content_type,
                body=visited.body,
                now=self._clock.now(),
            )
        )
        if page.problem is not None:
            raise BrokenAnswer(self.name, SEARCH, page.problem)
        return page


def fill_url(template: str, item: ItemRequest) -> str:
    """The URL with an item's values in its placeholders, each percent-encoded."""
    values = {name: item.attributes.get(name, "") for name in PLACES}
    values |= {"title": item.title, "query": query_of(item)}
    return template.format_map({name: quote(value, safe="") for name, value in values.items()})
