"""How well a listing matches an item: the words of its title, its attributes, and words that rule it out."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final

import msgspec

from mistnet.prices.model import ItemRequest, PointLine, PriceListing, PricePoint
from mistnet.prices.valuation import dedupe_key
from mistnet.shops import links as link_rules
from mistnet.shops.extraction.currencies import CODES
from mistnet.shops.extraction.facts import find_doubt
from mistnet.shops.extraction.words import CHINESE as _CHINESE
from mistnet.shops.extraction.words import LITTLE_WORDS as _LITTLE_WORDS
from mistnet.shops.extraction.words import plain_text
from mistnet.shops.extraction.words import without_accents as _unaccented
from mistnet.shops.extraction.words import word_weight as _weight
from mistnet.shops.extraction.words import words_of as _words
from mistnet.shops.model import PageFacts, PageVerdict, PriceKind, bounded

LEAST: Final = 0.5
"""A listing that matches less than this is no price of the item."""

_TITLE_SHARE: Final = 0.6
_UNSTATED: Final = 0.5
_AT_ODDS: Final = 0.2
_LARGEST: Final = Decimal(10) ** 15

_NO_ORIGINAL: Final = (
    "copy", "copies", "replica", "replicas", "reproduction", "repro", "facsimile", "fake", "counterfeit", "imitation",
    "fantasy issue", "lot of", "lots of", "job lot", "bulk lot", "mixed lot", "roll of", "set of", "pack of",
    "box only", "case only", "empty box", "for parts", "not working", "spares or repair", "photo of", "poster of",
    "sticker of",
    "複製品", "仿製品", "仿品", "仿制", "高仿", "空盒", "レプリカ", "복제품", "hàng nhái", "ของปลอม", "tiruan",
)  # fmt: skip
"""What sellers write about copies, accessories and lots of several pieces."""
_SIZE: Final = re.compile(r"(\d+)([a-z]{1,4})")
_YEAR: Final = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")
_GRADE: Final = re.compile(r"\b(ms|pf|pr|au|xf|ef|vf|vg|ag|fr|po|sp)[\s-]?(\d\d?)\b")
_MINTED: Final = r"(?<!\d){year}[\s-]?(cc|[cdopsw])\b"


class Match(msgspec.Struct, frozen=True):
    """From 0 (another item) to 1 (this very item), and what speaks against it."""

    strength: float
    why: str | None = None

    @property
    def fits(self) -> bool:
        return self.strength >= LEAST


def points_of(item: ItemRequest, listings: Sequence[PriceListing]) -> tuple[Sequence[PricePoint], Sequence[str]]:
    """The listings that fit, as points, and for each of the others the reason."""
    points, misfits = [], []
    for listing in listings:
        found = _no_price(listing) or match_listing(item, listing)
        if found.fits:
            points.append(_point(listing, found.strength))
        else:
            misfits.append(f"{listing.title[:100]}: {found.why or f'fits by {found.strength:.2f} only'}")
    return points, misfits


def _no_price(listing: PriceListing) -> Match | None:
    """A listing without a usable price. No source should return one, but an adapter may."""
    if not listing.amount.is_finite() or not 0 <= listing.amount < _LARGEST:
        return Match(0.0, f"{listing.amount} is no amount")
    if listing.currency not in CODES:
        return Match(0.0, f"{listing.currency[:20]!r} is no currency")
    return None


def _point(listing: PriceListing, strength: float) -> PricePoint:
    kind = listing.kind
    if kind is PriceKind.BID and not listing.bid_count:
        kind = PriceKind.ASK  # without bids it is the opening price of the seller
    return PricePoint(
        kind=kind,
        amount=Decimal(f"{listing.amount:f}"),
        currency=listing.currency,
        title=listing.title,
        url=listing.url,
        observed_at=listing.observed_at,
        match_strength=strength,
        dedupe_key=dedupe_key(
            external_id=listing.external_id,
            url=listing.url,
            title=listing.title,
            amount=listing.amount,
            observed_at=listing.observed_at,
            kind=kind,
        ),
        external_id=listing.external_id,
        condition=listing.condition,
        bid_count=listing.bid_count,
        product_id=listing.product_id,
        offer_id=listing.offer_id,
        doubt=find_doubt(PageFacts(verdict=PageVerdict.OFFER, amount=listing.amount, currency=listing.currency), ()),
    )


MISFIT: Final = "does not fit the item as it is now"
"""How the doubt of a point begins whose item was changed. It is stored: other doubts are kept whatever the match."""


def rematch(point: PointLine, request: ItemRequest, pages: frozenset[str]) -> PointLine:
    """A stored point as it matches a changed item. The item's own `pages` match as well as they did."""
    is_named = bool(pages & page_names([point.url]))
    listing = PriceListing(
        kind=point.kind,
        amount=point.amount,
        currency=point.currency,
        title=point.title,
        url=point.url,
        observed_at=point.observed_at,
        strength=point.match_strength if is_named else None,
    )
    found = match_listing(request, listing)
    doubt = point.doubt
    if doubt is None or doubt.startswith(MISFIT):
        doubt = None if found.fits else f"{MISFIT}: {found.why or f'by {found.strength:.2f} only'}"
    return msgspec.structs.replace(point, match_strength=found.strength, doubt=doubt)


def page_names(urls: Iterable[str]) -> frozenset[str]:
    """The normalized URLs under which these pages are stored as links."""
    found = map(link_rules.canonical_link, urls)
    return frozenset(bounded(each.url_norm) for each in found if not isinstance(each, link_rules.RefusedUrl))


def match_listing(item: ItemRequest, listing: PriceListing) -> Match:
    title = plain_text(listing.title)
    ruled_out = _ruled_out(item, title)
    if ruled_out:
        return Match(0.0, f"it says {ruled_out!r}")
    if listing.strength is not None:
        return Match(min(max(listing.strength, 0.0), 1.0))
    stated, at_odds = _attributes(item.attributes, title, listing.attributes)
    words, other_size = _title(item, title)
    at_odds = at_odds or other_size
    strength = words if stated is None else _TITLE_SHARE * words + (1 - _TITLE_SHARE) * stated
    if at_odds:
        return Match(round(min(strength, _AT_ODDS), 4), at_odds)
    return Match(round(strength, 4))


def _ruled_out(item: ItemRequest, title: str) -> str | None:
    """The first word that rules the listing out. Words of the item's own title do not."""
    plain = _unaccented(title)
    named = next((word for each in item.exclude if (word := plain_text(each)) and _pattern(word).search(plain)), None)
    if named or not _NONE_ORIGINAL.search(plain):  # most listings end here
        return named
    own = _unaccented(plain_text(item.title))
    return next(
        (word for word in _NO_ORIGINAL if _pattern(word).search(plain) and not _pattern(word).search(own)), None
    )


@lru_cache(maxsize=1024)
def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(_whole_word(word))


def _whole_word(word: str) -> str:
    """A pattern for a whole word, or for any place in scripts without spaces between words."""
    spelt = re.escape(_unaccented(word))
    return spelt if re.match(_CHINESE, word) else rf"(?<!\w){spelt}(?!\w)"


def _title(item: ItemRequest, title: str) -> tuple[float, str | None]:
    """The share of the item's words in the listing, by weight, and a size in which they differ."""
    wanted = {word: _weight(word) for word in _words(plain_text(item.title)) if word not in _LITTLE_WORDS}
    if not wanted:
        return 0.0, None
    has = set(_words(title))
    share = sum(weight for word, weight in wanted.items() if word in has) / sum(wanted.values())
    lacks = sorted(word for word in wanted if word not in has)
    return share, next((odds for word in lacks if (odds := _other_size(word, has))), None)


def _other_size(word: str, has: Iterable[str]) -> str | None:
    """A listing that says 256gb alone does not match an item of 128gb."""
    wanted = _SIZE.fullmatch(word)
    if wanted is None:
        return None
    sizes = [size for size in map(_SIZE.fullmatch, has) if size and size[2] == wanted[2]]
    return f"it says {min(size[0] for size in sizes)}, not {word}" if sizes else None


_NONE_ORIGINAL: Final = re.compile("|".join(map(_whole_word, _NO_ORIGINAL)))


def _attributes(wanted: Mapping[str, str], title: str, stated: Mapping[str, str]) -> tuple[float | None, str | None]:
    """How many of the attributes the listing has, and the first in which it differs."""
    if not wanted:
        return None, None
    shares, at_odds = [], None
    for name, value in wanted.items():
        share, odds = _attribute(name, plain_text(value), title, wanted, plain_text(stated.get(name, "")))
        shares.append(share)
        at_odds = at_odds or odds
    return sum(shares) / len(shares), at_odds


def _attribute(name: str, value: str, title: str, wanted: Mapping[str, str], stated: str) -> tuple[float, str | None]:
    if stated:
        return (1.0, None) if _same(name, stated, value) else (0.0, f"its {_words_of(name)} is {stated}, not {value}")
    others = list(_others(name, title, wanted))
    if others:
        right = any(_same(name, other, value) for other in others)
        return (1.0, None) if right else (0.0, f"its {_words_of(name)} is {others[0]}, not {value}")
    has = set(_words(title))
    return (1.0, None) if all(word in has for word in _words(value)) else (_UNSTATED, None)


def _others(name: str, title: str, wanted: Mapping[str, str]) -> Iterable[str]:
    """Values of this attribute that the title states in an unambiguous form."""
    if name == "year":
        return _YEAR.findall(title)
    if name == "grade":
        return ["".join(found) for found in _GRADE.findall(title)]
    if name == "mint_mark" and wanted.get("year", "").isdigit():
        return re.findall(_MINTED.format(year=wanted["year"]), title)
    return []


def _same(name: str, one: str, other: str) -> bool:
    if name in ("grade", "mint_mark", "year"):
        return re.sub(r"\W", "", one) == re.sub(r"\W", "", other)
    return one == other


def _words_of(name: str) -> str:
    return name.replace("_", " ")
