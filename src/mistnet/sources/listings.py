"""Find the listings of a shop that a file describes, by dotted paths or CSS selectors, and decode them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urljoin, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from mistnet.prices.model import PriceListing, UnreadableListing
from mistnet.shops import extraction
from mistnet.shops.extraction.documents import parse_html
from mistnet.shops.model import PriceKind
from mistnet.sources.price_answers import IllegibleAmount, believable, count, currency, exact, moment
from mistnet.sources.reading import SearchRead

if TYPE_CHECKING:
    from mistnet.sources.shopfile import ShopRules

EVERY: Final = "*"
_KEPT: Final = 20_000
_json = msgspec.json.Decoder(float_hook=Decimal).decode


def problem_of_path(path: str) -> str | None:
    if any(not part for part in path.split(".")):
        return f"{path!r} has an empty part; write names with dots between, such as results.*.price"
    return None


def problem_of_selector(selector: str) -> str | None:
    css, _attribute = _split_selector(selector)
    if not css:
        return None
    try:
        LexborHTMLParser("<p></p>").css(css)
    except SelectolaxError as error:
        return f"{css!r} is no CSS selector: {error}"
    return None


class JsonTree:
    """An answer in JSON, in which listings are searched. Raises IllegibleAmount if it is not JSON."""

    def __init__(self, body: bytes) -> None:
        try:
            try:
                self._data: object = _json(body)
            except msgspec.DecodeError:
                # msgspec is fast but strict: with one invalid character in a listing, still read the others.
                self._data = json.loads(body, parse_float=Decimal)
        except (ValueError, RecursionError, ArithmeticError) as error:
            raise IllegibleAmount(f"it is no JSON: {error}") from None

    def listings(self, path: str) -> Sequence[JsonFound]:
        found = _walk(self._data, path.split("."))
        return [JsonFound(each) for one in found for each in (one if isinstance(one, list) else [one])]

    def value(self, path: str) -> object | None:
        return next(_walk(self._data, path.split(".")), None)

    def lack(self, path: str) -> str | None:
        """Why there can be no listings here: an empty list is a valid answer, a missing one is not."""
        before = path.split(".")
        before = before[: before.index(EVERY)] if EVERY in before else before[:-1]
        if next(_walk(self._data, before), None) is None:
            return f"there is no {'.'.join(before)!r} in it"
        return None


class JsonFound:
    """A listing of any shape, not decoded yet."""

    def __init__(self, data: object) -> None:
        self._data = data

    def value(self, path: str) -> object | None:
        return next((each for each in _walk(self._data, path.split(".")) if each is not None), None)

    @property
    def payload(self) -> bytes:
        return json.dumps(self._data, default=str, ensure_ascii=False).encode("utf-8", "replace")[:_KEPT]


def _walk(data: Any, path: Sequence[str]) -> Iterator[Any]:
    """All values that match the path. `*` matches everything in a list or an object."""
    if not path:
        yield data
        return
    part, rest = path[0], path[1:]
    if isinstance(data, Mapping):
        inside = list(data.values()) if part == EVERY else [data[part]] if part in data else []
    elif isinstance(data, list):
        inside = data if part == EVERY else [data[int(part)]] if part.isdecimal() and int(part) < len(data) else []
    else:
        inside = []
    for each in inside:
        yield from _walk(each, rest)


class HtmlTree:
    def __init__(self, text: str) -> None:
        self._page = parse_html(text)

    def listings(self, path: str) -> Sequence[HtmlFound]:
        return [HtmlFound(node) for node in self._page.css(path)]

    def value(self, path: str) -> object | None:
        return _value(self._page.root, path)

    def lack(self, path: str) -> str | None:  # noqa: ARG002 (any page may show nothing)
        return None


class HtmlFound:
    def __init__(self, node: LexborNode) -> None:
        self._node = node

    def value(self, path: str) -> object | None:
        return _value(self._node, path)

    @property
    def payload(self) -> bytes:
        return (self._node.html or "").encode("utf-8", "replace")[:_KEPT]


FoundListing: TypeAlias = JsonFound | HtmlFound
Tree: TypeAlias = JsonTree | HtmlTree


def _value(node: LexborNode | None, path: str) -> str | None:
    """The text or attribute of what a selector finds. Without a selector: of the listing itself."""
    css, attribute = _split_selector(path)
    if css and node is not None:
        node = node.css_first(css)
    if node is None:
        return None
    found = node.attributes.get(attribute) if attribute else node.text(separator=" ", strip=True)
    text = " ".join((found or "").split())
    return text or None


def _split_selector(path: str) -> tuple[str, str]:
    """Split `a.price@content` into selector and attribute; an @ inside brackets or quotes belongs to the selector."""
    css, at, attribute = path.rpartition("@")
    if not at or any(sign in attribute for sign in "]\"') "):
        return path.strip(), ""
    return css.strip(), attribute.strip()


_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_ISO: Final = re.compile(r"[A-Za-z]{3}")
_LONGEST_ID: Final = 300


class ShopAmount(msgspec.Struct, frozen=True, kw_only=True):
    """An amount and its currency, and what kind of price its text says it is."""

    amount: Decimal
    currency: str
    kind: PriceKind = PriceKind.ASK


def read_listing(
    found: FoundListing, rules: ShopRules, *, page_url: str, now: datetime
) -> PriceListing | UnreadableListing:
    fields = rules.fields
    try:
        title = _text(found, fields.title)
        if title is None:
            return UnreadableListing(problem="it has no title", payload=found.payload)
        price = _price(found, rules, page_url)
        bids, sold_at = _optional(found, fields.bids), _optional(found, fields.sold_at)
        bid_count = count(bids) if bids is not None else None
        kind = _kind(found, rules, price.kind, is_sold=sold_at is not None)
        if kind is PriceKind.BID and not bid_count:
            kind = PriceKind.ASK  # without bids it is the opening price
        at = moment(sold_at) if kind is PriceKind.SOLD and sold_at is not None else now
        if at > now:
            problem = f"it was sold at {sold_at}, which is still to come"
            return UnreadableListing(problem=problem, payload=found.payload)
        return PriceListing(
            kind=kind,
            amount=price.amount,
            currency=price.currency,
            title=title,
            url=_join_url(page_url, _text(found, fields.url)),
            observed_at=at,
            external_id=(_text(found, fields.id) or "")[:_LONGEST_ID] or None,
            condition=_text(found, fields.condition),
            bid_count=bid_count,
        )
    except IllegibleAmount as error:
        return UnreadableListing(problem=str(error), payload=found.payload)


def _optional(found: FoundListing, path: str | None) -> object | None:
    value = found.value(path) if path else None
    return None if isinstance(value, str) and not value.strip() else value


def _text(found: FoundListing, path: str | None) -> str | None:
    value = _optional(found, path)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise IllegibleAmount(f"what {path!r} leads to is no text")
    whole = str(value).encode("utf-8", "replace").decode()  # half a character is none
    return " ".join(whole.split()) or None


def _price(found: FoundListing, rules: ShopRules, page_url: str) -> ShopAmount:
    """A number is taken as it is; a text is parsed as a price."""
    value, code = _optional(found, rules.fields.price), _text(found, rules.fields.currency)
    if value is None:
        raise IllegibleAmount("it has no price")
    is_number = not isinstance(value, str) or (rules.format == "json" and _NUMBER.fullmatch(value.strip()))
    if is_number or (rules.minor_units != 1 and isinstance(value, str) and value.strip().isdecimal()):
        amount = believable(exact(value) / rules.minor_units)
        return ShopAmount(amount=amount, currency=_one_currency(None, code, rules.currency))
    parsed = extraction.parse_price(str(value), currency_hint=code or rules.currency, site=urlsplit(page_url).hostname)
    if isinstance(parsed, extraction.NoPrice):
        raise IllegibleAmount(f"{str(value)[:60]!r} is no price: {parsed.reason}")
    amount = believable(parsed.min / rules.minor_units)
    return ShopAmount(amount=amount, currency=_one_currency(parsed.currency, code, rules.currency), kind=parsed.kind)


def _one_currency(written: str | None, value: str | None, usual: str | None) -> str:
    """The text and the currency field must not contradict each other. A sign such as $ is only a hint."""
    stated = currency(value) if value and _ISO.fullmatch(value) else None
    if written and stated and written != stated:
        raise IllegibleAmount(f"its price is in {written}, its currency is {stated}")
    found = stated or written or usual
    if not found:
        raise IllegibleAmount("no currency is told; set `currency` for this shop")
    return found


def _kind(found: FoundListing, rules: ShopRules, said: PriceKind, *, is_sold: bool) -> PriceKind:
    value = _text(found, rules.fields.kind)
    if value is not None:
        known = {name.casefold(): kind for name, kind in rules.kinds.items()}
        word = known.get(value.casefold(), value.casefold())
        if word not in list(PriceKind):
            raise IllegibleAmount(f"its kind is {value[:40]!r}; say in `kinds` whether that is ask, bid or sold")
        return PriceKind(word)
    if rules.kind:
        return PriceKind(rules.kind)
    return PriceKind.SOLD if is_sold else said


def _join_url(page_url: str, value: str | None) -> str:
    if value is None:
        return page_url
    try:
        full = urljoin(page_url, value.replace(" ", "%20"))
        parts = urlsplit(full)
    except ValueError:
        raise IllegibleAmount(f"{value[:80]!r} is no address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise IllegibleAmount(f"{value[:80]!r} is no address of a page")
    return full


def read_search(body: bytes, rules: ShopRules, *, url: str, content_type: str | None, now: datetime) -> SearchRead:
    try:
        is_json = rules.format == "json"
        tree: Tree = JsonTree(body) if is_json else HtmlTree(extraction.decode(body, content_type=content_type))
        found = tree.listings(rules.listings)
        if not found:
            # Another page than the expected one must not count as a search without results.
            problem = tree.lack(rules.listings) if not rules.empty else None
            if rules.empty and tree.value(rules.empty) is None:
                problem = f"neither {rules.listings!r} nor {rules.empty!r} is on the page"
            if problem:
                return SearchRead(problem=problem)
        value = tree.value(rules.next_path) if rules.next_path else None
    except IllegibleAmount as error:
        return SearchRead(problem=str(error))
    next_url: str | None = None
    if isinstance(value, str) and value.strip():
        try:
            next_url = urljoin(url, value.strip())
            same_host = urlsplit(next_url).netloc == urlsplit(url).netloc
        except ValueError:
            same_host = False
        if not same_host:
            return SearchRead(problem=f"its next page {value[:80]!r} is on no page of the same host")
    read = [read_listing(each, rules, page_url=url, now=now) for each in found]
    return SearchRead(
        listings=[each for each in read if isinstance(each, PriceListing)],
        unreadable=[each for each in read if isinstance(each, UnreadableListing)],
        next_url=next_url,
    )
