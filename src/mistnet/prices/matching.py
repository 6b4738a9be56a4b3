"""How well a listing matches an item: the words of its title, its attributes, and words that rule it out."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from functools import lru_cache
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mistnet.prices.model import ItemRequest, PointLine, PriceListing, PricePoint
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


_SHARED: Final = [name for name in PricePoint.__struct_fields__ if name in PriceListing.__struct_fields__]


def points_of(item: ItemRequest, listings: Sequence[PriceListing]) -> Sequence[PricePoint]:
    """The listings that fit, as points."""
    points = []
    for listing in listings:
        # No source should return such a listing, but an adapter may: the database would refuse its whole answer.
        is_amount = listing.amount.is_finite() and 0 <= listing.amount < _LARGEST
        if not is_amount or listing.currency not in CODES or not (match := match_listing(item, listing)).fits:
            continue
        # Without bids it is the opening price of the seller.
        kind = PriceKind.ASK if listing.kind is PriceKind.BID and not listing.bid_count else listing.kind
        names = ("external_id", "url", "title", "amount", "observed_at")
        facts = PageFacts(verdict=PageVerdict.OFFER, amount=listing.amount, currency=listing.currency)
        shared = {name: getattr(listing, name) for name in _SHARED}
        point = PricePoint(
            **{**shared, "kind": kind, "amount": Decimal(f"{listing.amount:f}")},
            match_strength=match.strength,
            dedupe_key=dedupe_key(**{name: getattr(listing, name) for name in names}, kind=kind),
            doubt=find_doubt(facts, ()),
        )
        points.append(point)
    return points


MISFIT: Final = "does not fit the item as it is now"
"""How the doubt of a point begins whose item was changed. It is stored: other doubts are kept whatever the match."""


def rematch(point: PointLine, request: ItemRequest, pages: frozenset[str]) -> PointLine:
    """A stored point as it matches a changed item. The item's own `pages` match as well as they did."""
    is_named = bool(pages & page_names([point.url]))
    shared = {name: getattr(point, name) for name in _SHARED}
    listing = PriceListing(**shared, strength=point.match_strength if is_named else None)
    # Titles are compared again, but not for a page that the item itself names.
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
    plain = _unaccented(title)
    words: Iterable[str] = filter(None, map(plain_text, item.exclude))
    ruled_out = next((word for word in words if _pattern(word).search(plain)), None)
    if not ruled_out and _NONE_ORIGINAL.search(plain):  # few listings get here
        # Words of the item's own title do not rule it out.
        own = _unaccented(plain_text(item.title))
        words = (word for word in _NO_ORIGINAL if _pattern(word).search(plain))
        ruled_out = next((word for word in words if not _pattern(word).search(own)), None)
    if ruled_out:
        return Match(0.0, f"it says {ruled_out!r}")
    if listing.strength is not None:
        return Match(min(max(listing.strength, 0.0), 1.0))
    strength, other_size = _title(item, title)
    shares, at_odds = [], None
    for name, value in item.attributes.items():
        stated = plain_text(listing.attributes.get(name, ""))
        share, odds = _attribute(name, plain_text(value), title, item.attributes, stated)
        shares.append(share)
        at_odds = at_odds or odds
    if shares:
        strength = _TITLE_SHARE * strength + (1 - _TITLE_SHARE) * (sum(shares) / len(shares))
    at_odds = at_odds or other_size
    # A listing that contradicts the item is another thing, however alike their titles are.
    return Match(round(min(strength, _AT_ODDS) if at_odds else strength, 4), at_odds)


@lru_cache(maxsize=1024)
def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(_whole_word(word))


def _whole_word(word: str) -> str:
    """A pattern for a whole word, or for any place in scripts without spaces between words."""
    spelt = re.escape(_unaccented(word))
    return spelt if re.match(_CHINESE, word) else rf"(?<!\w){spelt}(?!\w)"


def _title(item: ItemRequest, title: str) -> tuple[float, str | None]:
    """The share of the item's words in the listing, by weight, and a size in which they differ."""
    own = {word: _weight(word) for word in _words(plain_text(item.title)) if word not in _LITTLE_WORDS}
    if not own:
        return 0.0, None
    has = set(_words(title))
    share = sum(weight for word, weight in own.items() if word in has) / sum(own.values())
    for word in sorted(own.keys() - has):
        size = _SIZE.fullmatch(word)
        others = [other[0] for other in map(_SIZE.fullmatch, has) if size and other and other[2] == size[2]]
        if others:  # a listing that says 256gb alone does not match an item of 128gb
            return share, f"it says {min(others)}, not {word}"
    return share, None


_NONE_ORIGINAL: Final = re.compile("|".join(map(_whole_word, _NO_ORIGINAL)))


def _attribute(
    name: str, value: str, title: str, attributes: Mapping[str, str], stated: str
) -> tuple[float, str | None]:
    """The share of one attribute, and how the listing differs. A title states some attributes unambiguously."""
    says: Sequence[str] = ()
    if stated:
        says = [stated]
    elif name == "year":
        says = _YEAR.findall(title)
    elif name == "grade":
        says = ["".join(found) for found in _GRADE.findall(title)]
    elif name == "mint_mark" and attributes.get("year", "").isdigit():
        says = re.findall(_MINTED.format(year=attributes["year"]), title)
    if any(_comparable(name, each) == _comparable(name, value) for each in says):
        return 1.0, None
    if says:
        return 0.0, f"its {name.replace('_', ' ')} is {says[0]}, not {value}"
    return 1.0 if set(_words(title)).issuperset(_words(value)) else _UNSTATED, None


def _comparable(name: str, value: str) -> str:
    return re.sub(r"\W", "", value) if name in ("grade", "mint_mark", "year") else value


_DIGITS: Final = 16
_LONGEST: Final = 200
_BETWEEN: Final = "\x1f"
_PRECISION: Final = 200


def dedupe_key(
    *, external_id: str | None, url: str, title: str, amount: Decimal, observed_at: datetime, kind: PriceKind
) -> str:
    """The source's own id if there is one, else a hash of what was seen on that day (UTC)."""
    if external_id and external_id.strip():
        own = external_id.strip()
        # An id that is too long for an index is replaced by its hash.
        return f"ext_{own if len(own) <= _LONGEST else _hash(own)}"
    day = observed_at.astimezone(UTC).date().isoformat()
    with localcontext(prec=_PRECISION):
        cents = f"{(amount * 100).quantize(Decimal(1), ROUND_HALF_EVEN):f}"
    page = plain_text(url).replace(" ", "")
    try:
        spelt = urlsplit(page)
        page = f"{spelt.scheme}://{spelt.netloc}{spelt.path}"
    except ValueError:  # a malformed URL still identifies the listing
        page = page.partition("#")[0].partition("?")[0]
    parts = (page.rstrip("/"), plain_text(title), cents, day, kind.value)
    return f"hash_{_hash(_BETWEEN.join(parts))[:_DIGITS]}"


def _hash(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()
