"""Items as they come in and go out over the API, field by field."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from mistnet.prices import item_validation as limits
from mistnet.prices.model import ItemState
from mistnet.prices.store.items import ItemOutcome
from mistnet.shops.model import PriceKind
from mistnet.web.fields import PLAIN, Amount, Document, Id, Moment, RequestBody

MOST: Final = 1_000


def _said(longest: int) -> Any:
    return StringConstraints(pattern=PLAIN, min_length=1, max_length=longest)


Title = Annotated[str, _said(limits.LONGEST_TITLE), Field(description="The words that listings of it have.")]
Ref = Annotated[
    str,
    _said(limits.LONGEST_REF),
    Field(description="Your own name for it: the same one again changes the item."),
]
Value = Annotated[str, _said(limits.LONGEST_VALUE)] | int | float
Word = Annotated[str, _said(limits.LONGEST_EXCLUDED)]
Source = Annotated[str, _said(limits.LONGEST_NAME)]
Url = Annotated[str, _said(limits.LONGEST_URL)]
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{3}$", description="Value it in this currency: an ISO code.")]
Hours = Annotated[
    float,
    Field(
        ge=limits.LEAST_HOURS,
        le=limits.MOST_HOURS,
        description="Ask so often; null: as the settings say.",
    ),
]
Excluded = Annotated[list[Word], Field(max_length=limits.MOST_EXCLUDED, description="Words a listing must not have.")]
Sources = Annotated[list[Source], Field(max_length=100, description="Ask only these; empty: all that serve items.")]
Urls = Annotated[list[Url], Field(max_length=limits.MOST_URLS, description="Pages that sell this very thing.")]
_ATTRIBUTES: Final = "Year, mint_mark, denomination, series, grade, and any other."


class ItemWanted(RequestBody):
    """A thing to follow."""

    title: Title
    ref: Ref | None = None
    attributes: Annotated[dict[str, Value], Field(max_length=limits.MOST_ATTRIBUTES, description=_ATTRIBUTES)] = Field(
        default_factory=dict
    )
    exclude: Excluded = Field(default_factory=list)
    sources: Sources = Field(default_factory=list)
    urls: Urls = Field(default_factory=list)
    currency: Currency | None = None
    every_hours: Hours | None = None


class ItemsWanted(RequestBody):
    """Many of them. Where one is bad nothing is written, unless the bad ones are to be skipped."""

    items: Annotated[list[ItemWanted], Field(min_length=1, max_length=MOST)]
    skip_bad: Annotated[bool, Field(description="Take the others, and tell of these.")] = False


class ItemChanges(RequestBody):
    """What is left out stays. Null takes a field or an attribute away; lists are replaced whole."""

    title: Title | None = None
    ref: Ref | None = None
    attributes: Annotated[
        dict[str, Value | None], Field(max_length=limits.MOST_ATTRIBUTES, description="These alone change.")
    ] = Field(default_factory=dict)
    exclude: Excluded | None = None
    sources: Sources | None = None
    urls: Urls | None = None
    currency: Currency | None = None
    every_hours: Hours | None = None
    state: Annotated[
        Literal["active", "paused"] | None, Field(description="Paused: no source is asked until it is active.")
    ] = None


class SourcesAsked(RequestBody):
    sources: Sources = Field(default_factory=list)


class WorthDocument(Document):
    """What it is worth: an estimate, a range, and how sure that is (0 to 1)."""

    estimate: Amount
    low: Amount
    high: Amount
    currency: str
    points: int
    points_left_out: int
    confidence: float
    newest_at: Moment
    valued_at: Moment


class EarlierDocument(Document):
    """What it was worth 30 days ago, or when it was first valued."""

    estimate: Amount
    currency: str
    valued_at: Moment


class ItemDocument(Document):
    """A thing that is followed, as somebody wants it."""

    id: Id
    ref: str | None
    title: str
    attributes: dict[str, str]
    exclude: list[str]
    sources: list[str]
    urls: list[str]
    currency: str | None
    every_hours: float | None
    state: ItemState
    added_at: Moment
    changed_at: Moment


class ItemLineDocument(ItemDocument):
    """With what it is worth, if it was valued. `change` is the share by which it differs from the earlier worth."""

    next_look_at: Moment | None
    worth: WorthDocument | None
    earlier: EarlierDocument | None
    change: float | None


class CarrierDocument(Document):
    """A point a valuation rests on: its amount in the valuation's currency, its share of the weight, and the rate."""

    point_id: Id
    amount: Amount
    weight: float
    rate: str | None


class LeftOutDocument(Document):
    """A point a valuation does not rest on, and why."""

    point_id: Id
    why: str
    amount: Amount | None


class ValuationDocument(WorthDocument):
    """With the points that tell most: those it rests on, and those it leaves out."""

    carriers: list[CarrierDocument]
    left_out: list[LeftOutDocument]


class PastValuationDocument(ValuationDocument):
    """From `valued_at` on. `ended_at`: it was taken back then, and nothing took its place."""

    id: Id
    ended_at: Moment | None


class LookDocument(Document):
    """The last look at one source; the counts are those of the last that was answered."""

    source: str
    looked_at: Moment
    listings: int
    points: int
    found_at: Moment | None
    problem: str | None


class WholeItemDocument(ItemLineDocument):
    valuation: ValuationDocument | None
    looks: list[LookDocument]


class PointDocument(Document):
    """One price that was asked, bid or paid. `weight`: its share of the valuation; `left_out`: why it has none."""

    id: Id
    source: str
    kind: PriceKind
    amount: Amount
    currency: str
    condition: str | None
    title: str
    url: str
    external_id: str | None
    bid_count: int | None
    match_strength: float
    observed_at: Moment
    first_seen_at: Moment
    last_seen_at: Moment
    times_seen: int
    product_id: Id | None
    offer_id: Id | None
    doubt: str | None
    weight: float | None
    left_out: str | None
    rate: str | None


class PointVersionDocument(Document):
    """What a point said until `replaced_at`, when something stronger or later took its place."""

    nr: int
    kind: PriceKind
    amount: Amount
    currency: str
    match_strength: float
    observed_at: Moment
    replaced_at: Moment


class KeptDocument(Document):
    """`index` is the place in what was sent; `outcome`: added, changed, or same."""

    index: int
    outcome: ItemOutcome
    item: ItemDocument


class BadRowDocument(Document):
    index: int
    field: str
    value: str
    problem: str


class KeptDocuments(Document):
    items: list[KeptDocument]
    problems: list[BadRowDocument]


class ChangedDocument(Document):
    outcome: ItemOutcome
    item: ItemDocument


class AskedDocument(Document):
    """How many questions are new, and how many were on the list already."""

    created: int
    duplicates: int
