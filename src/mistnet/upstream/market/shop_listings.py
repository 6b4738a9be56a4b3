"""Reads the listings of a shop that a file describes: each by itself, or why it cannot be read. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Final
from urllib.parse import urljoin, urlsplit

import msgspec

from mistnet import pricing
from mistnet.domain.items import Listing, Unreadable
from mistnet.domain.products import PriceKind
from mistnet.upstream.market.amounts import Illegible, believable, count, currency, exact, moment
from mistnet.upstream.market.shop_file import ShopRules
from mistnet.upstream.market.shop_paths import Found

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_ISO: Final = re.compile(r"[A-Za-z]{3}")
_LONGEST_ID: Final = 300


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An amount as a shop told it, in a currency, and what kind of price its words say it is."""

    amount: Decimal
    currency: str
    kind: PriceKind = PriceKind.ASK


def read_listing(found: Found, rules: ShopRules, *, page_url: str, now: datetime) -> Listing | Unreadable:
    try:
        return _listing(found, rules, page_url, now)
    except Illegible as error:
        return Unreadable(problem=str(error), payload=found.payload)


def _listing(found: Found, rules: ShopRules, page_url: str, now: datetime) -> Listing:
    title = _text(found, rules.fields.title)
    if title is None:
        raise Illegible("it has no title")
    price = _price(found, rules, page_url)
    bids = _optional(found, rules.fields.bids)
    bid_count = count(bids) if bids is not None else None
    sold_at = _optional(found, rules.fields.sold_at)
    kind = _kind(found, rules, price.kind, is_sold=sold_at is not None)
    if kind is PriceKind.BID and not bid_count:
        kind = PriceKind.ASK  # nobody has bid: it is the price the seller opens with
    at = moment(sold_at) if kind is PriceKind.SOLD and sold_at is not None else now
    if at > now:
        raise Illegible(f"it was sold at {sold_at}, which is still to come")
    return Listing(
        kind=kind,
        amount=price.amount,
        currency=price.currency,
        title=title,
        url=_url(found, rules, page_url),
        observed_at=at,
        external_id=(_text(found, rules.fields.id) or "")[:_LONGEST_ID] or None,
        condition=_text(found, rules.fields.condition),
        bid_count=bid_count,
    )


def _optional(found: Found, path: str | None) -> object | None:
    value = found.value(path) if path else None
    return None if isinstance(value, str) and not value.strip() else value


def _text(found: Found, path: str | None) -> str | None:
    value = _optional(found, path)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise Illegible(f"what {path!r} leads to is no text")
    whole = str(value).encode("utf-8", "replace").decode()  # half a character is none
    return " ".join(whole.split()) or None


def _price(found: Found, rules: ShopRules, page_url: str) -> Asked:
    """A number is taken as it is; a text is read as people write prices."""
    told, code = _optional(found, rules.fields.price), _text(found, rules.fields.currency)
    if told is None:
        raise Illegible("it has no price")
    is_number = not isinstance(told, str) or (rules.format == "json" and _NUMBER.fullmatch(told.strip()))
    if is_number or (rules.minor_units != 1 and isinstance(told, str) and told.strip().isdecimal()):
        amount = believable(exact(told) / rules.minor_units)
        return Asked(amount=amount, currency=_one_currency(None, code, rules.currency))
    parsed = pricing.parse_price(str(told), currency_hint=code or rules.currency, site=urlsplit(page_url).hostname)
    if isinstance(parsed, pricing.NoPrice):
        raise Illegible(f"{str(told)[:60]!r} is no price: {parsed.reason}")
    amount = believable(parsed.min / rules.minor_units)
    return Asked(amount=amount, currency=_one_currency(parsed.currency, code, rules.currency), kind=parsed.kind)


def _one_currency(written: str | None, told: str | None, usual: str | None) -> str:
    """What the text says and what the shop says beside it must not be two things. A mark such as $ is only a hint."""
    stated = currency(told) if told and _ISO.fullmatch(told) else None
    if written and stated and written != stated:
        raise Illegible(f"its price is in {written}, its currency is {stated}")
    found = stated or written or usual
    if not found:
        raise Illegible("no currency is told; set `currency` for this shop")
    return found


def _kind(found: Found, rules: ShopRules, said: PriceKind, *, is_sold: bool) -> PriceKind:
    told = _text(found, rules.fields.kind)
    if told is not None:
        known = {name.casefold(): kind for name, kind in rules.kinds.items()}
        word = known.get(told.casefold(), told.casefold())
        if word not in list(PriceKind):
            raise Illegible(f"its kind is {told[:40]!r}; say in `kinds` whether that is ask, bid or sold")
        return PriceKind(word)
    if rules.kind:
        return PriceKind(rules.kind)
    return PriceKind.SOLD if is_sold else said


def _url(found: Found, rules: ShopRules, page_url: str) -> str:
    told = _text(found, rules.fields.url)
    if told is None:
        return page_url
    try:
        full = urljoin(page_url, told.replace(" ", "%20"))
        parts = urlsplit(full)
    except ValueError:
        raise Illegible(f"{told[:80]!r} is no address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Illegible(f"{told[:80]!r} is no address of a page")
    return full
