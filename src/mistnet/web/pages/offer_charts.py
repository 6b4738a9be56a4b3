"""Charts of a product's price over time: believed prices as a line, doubted ones as separate marks, posts below."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.kit.text import counted
from mistnet.prices.lineage import Around, Promotion, SeenPrice, snippet
from mistnet.prices.store.lineage import Lined, Promoting
from mistnet.prices.store.related_products import LinkedProduct
from mistnet.shops.store.product_pages import OfferLine
from mistnet.social.model import X
from mistnet.web.pages.charts import WIDTH, Chart, Dot, Paper, paper_for
from mistnet.web.pages.render import money, percent, safe_url

_BESIDE: Final = timedelta(days=30)


class OfferChart(Chart, frozen=True, kw_only=True):
    """A product's offers, with those that are doubted apart."""

    believed: Sequence[Dot]
    doubted: Sequence[Dot]


def offer_chart(offers: Sequence[OfferLine], moments: Sequence[datetime] = ()) -> OfferChart | None:
    """The chart in the latest currency; None if no amount is known. `elsewhere` counts offers in other currencies.

    It spans the time of the prices, and also `moments` that are not far outside of it.
    """
    known = sorted((each for each in offers if each.amount is not None), key=lambda each: (each.observed_at, each.id))
    believed = [each for each in known if each.doubt is None]
    if not known:
        return None
    currency = (believed or known)[-1].currency or ""
    own = [each for each in known if each.currency == currency]
    line = [each for each in own if each.doubt is None]
    begin, end = own[0].observed_at, max(each.last_seen_at for each in own)
    # A post from years before the first price would leave no room for the prices.
    room = max(end - begin, _BESIDE)
    near = [each for each in moments if abs(each - begin) <= room or abs(each - end) <= room]
    # The scale is that of believed amounts: one amount in cents must not make all others a flat line.
    amounts = [amount for each in line or own for amount in _ends(each)]
    paper = paper_for([min([begin, *near]), max([end, *near])], [float(amount) for amount in amounts])
    ends = [*(each.observed_at for each in line[1:]), *(each.last_seen_at for each in line[-1:])]
    spans = [(each, until, *_ends(each)) for each, until in zip(line, ends, strict=True)]
    doubted = [each for each in own if each.doubt is not None]
    aside = f"; {len(doubted)} doubted" if doubted else ""
    return OfferChart(
        paper=paper,
        line=paper.steps([(each.observed_at, until, least) for each, until, least, _ in spans]),
        # The area from the lowest to the highest price, where variants differ.
        band="".join(
            paper.box(each.observed_at, until, float(least), float(most))
            for each, until, least, most in spans
            if most > least
        ),
        believed=[_dot(each, paper) for each in line],
        doubted=[_dot(each, paper) for each in doubted],
        currency=currency,
        told=f"{counted(len(line), 'offer')} from {min(amounts):,f} to {max(amounts):,f} {currency}{aside}",
        elsewhere=len(known) - len(own),
    )


def _ends(offer: OfferLine) -> tuple[Decimal, Decimal]:
    """The lowest and the highest price."""
    least = offer.amount or Decimal(0)
    return least, max(least, offer.amount_max or least)


def _dot(offer: OfferLine, paper: Paper) -> Dot:
    least, most = _ends(offer)
    span = f"{least:,f}" if most == least else f"{least:,f} to {most:,f}"
    doubt = f"; doubted: {offer.doubt}" if offer.doubt else ""
    told = f"{span} {offer.currency}, {offer.observed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC{doubt}"
    return paper.dot(offer.observed_at, least, told)


SPARK_WIDTH, SPARK_HEIGHT = 140, 32
_MARGIN: Final = 4
_LEAST: Final = timedelta(hours=1)


class Spark(msgspec.Struct, frozen=True, kw_only=True):
    """The line, where it ends, and what it shows in words."""

    line: str
    x: float
    y: float
    mentions: tuple[float, ...]
    told: str


def spark(linked: LinkedProduct) -> Spark | None:
    """The line in the latest currency, since the first mention; None if no price is known."""
    if linked.latest is None or linked.lowest is None or linked.highest is None:
        return None
    own = [each for each in linked.course if each.currency == linked.latest.currency]
    begin = min(own[0].observed_at, linked.mentions.first_at)
    # At least an hour: a span of nothing has no scale.
    end = max(own[-1].last_seen_at, linked.mentions.latest_at, begin + _LEAST)
    low, high = linked.lowest.amount, linked.highest.amount

    def x(at: datetime) -> float:
        return round(_MARGIN + (at - begin) / (end - begin) * (SPARK_WIDTH - 2 * _MARGIN), 1)

    def y(share: float) -> float:
        return round(SPARK_HEIGHT - _MARGIN - share * (SPARK_HEIGHT - 2 * _MARGIN), 1)

    heights = [y(float((each.amount - low) / (high - low)) if high > low else 0.5) for each in own]
    steps = [
        f"{'H' if place else 'M'}{x(each.observed_at)}{'V' if place else ' '}{height}"
        for place, (each, height) in enumerate(zip(own, heights, strict=True))
    ]
    last = x(own[-1].last_seen_at)
    told = f"from {money(low, linked.latest.currency)} to {money(high, linked.latest.currency)}"
    return Spark(
        line="".join([*steps, f"H{last}"]),
        x=last,
        y=heights[-1],
        mentions=(x(linked.mentions.first_at), x(linked.mentions.latest_at)),
        told=f"{counted(len(own), 'price')} {told}",
    )


_CLOSE: Final = 18.0
"""Marks that are closer to each other than this are merged."""

_TOLD: Final = 3
_REPEATS: Final = {Promotion.REPOST: " (a repost)"}


class MarkedPost(msgspec.Struct, frozen=True, kw_only=True):
    """One post in a few words."""

    who: str
    when: str
    text: str
    prices: str


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One post, or several that are close together. `more` counts those of them that `told` leaves out."""

    x: float
    left: float
    kind: str
    posts: int
    href: str
    label: str
    told: Sequence[MarkedPost]
    more: int


class PostMarks(msgspec.Struct, frozen=True, kw_only=True):
    """All marks inside of the chart, the earliest first; `outside` counts posts long before or after the prices."""

    marks: Sequence[Mark]
    outside: int

    @property
    def kinds(self) -> set[str]:
        return {each.kind for each in self.marks}


def post_marks(chart: OfferChart, posts: Sequence[Lined], *, listed: str) -> PostMarks:
    """`listed` is the URL of the list of posts, to which a mark of several posts links."""
    paper = chart.paper
    inside = [each for each in posts if paper.begin <= each.post.created_at <= paper.end]
    placed = sorted(((paper.x(each.post.created_at), each) for each in inside), key=lambda pair: pair[0])
    groups: list[list[tuple[float, Lined]]] = []
    for x, each in placed:
        if groups and x - groups[-1][0][0] < _CLOSE:
            groups[-1].append((x, each))
        else:
            groups.append([(x, each)])
    return PostMarks(marks=[_mark(some, listed) for some in groups], outside=len(posts) - len(placed))


def _mark(some: Sequence[tuple[float, Lined]], listed: str) -> Mark:
    """A mark in the middle of its posts."""
    x = round(sum(x for x, _ in some) / len(some), 1)
    lined = [each for _, each in reversed(some)]
    told = [
        MarkedPost(
            who=f"@{each.post.handle or each.post.author_id}{_REPEATS.get(each.post.kind, '')}",
            when=f"{each.post.created_at.astimezone(UTC):%d %b %Y}",
            text=snippet(each.post.text, 140),
            prices=in_words(each.prices),
        )
        for each in lined[:_TOLD]
    ]
    kinds = {each.post.kind for each in lined}
    alone = len(lined) == 1
    first = told[0]
    label = f"{first.who}, {first.when}: {first.prices}"
    if not alone:
        span = f"from {lined[-1].post.created_at.astimezone(UTC):%d %b %Y} to {first.when}"
        label = f"{counted(len(lined), 'post')} {span}, the latest by {first.who}: {first.prices}"
    return Mark(
        x=x,
        left=round(x / WIDTH * 100, 2),
        kind=str(kinds.pop()) if len(kinds) == 1 else str(Promotion.OWN),
        posts=len(lined),
        href=conversation_of(lined[0].post) or listed if alone else listed,
        label=label,
        told=told,
        more=max(len(lined) - _TOLD, 0),
    )


def conversation_of(post: Promoting) -> str | None:
    """The URL of a post: in its conversation, or on its own platform."""
    if post.platform == X:
        return f"/conversations/{post.conversation_id or post.post_id}#p{post.post_id}"
    return safe_url(post.post_url)


def in_words(prices: Around) -> str:
    """Before and after, in one line."""
    before = f"{_price(prices.before)} before" if prices.before else "no price known before"
    if prices.after is None:
        return f"{before}, none seen after"
    still = "still " if prices.unchanged else ""
    by = "" if prices.change.percent is None else f" ({percent(prices.change.percent)})"
    return f"{before}, {still}{_price(prices.after)} after{by}"


def _price(price: SeenPrice) -> str:
    return money(price.amount, price.currency)
