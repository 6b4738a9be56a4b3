"""Posts as marks on the drawing of a product's prices: where each stands, where it leads, and what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Final

import msgspec

from mistnet.api.pages.chart_paper import WIDTH
from mistnet.api.pages.offer_chart import OfferChart, place_on
from mistnet.api.pages.render import money, percent, safe_url
from mistnet.domain.lineage import Around, Promotion, SeenPrice, snippet
from mistnet.domain.plural import counted
from mistnet.domain.social import Platform
from mistnet.store.lineage import Lined, Promoting

_CLOSE: Final = 18.0
"""Marks that are nearer to each other than this become one."""

_TOLD: Final = 3


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One post in a few words."""

    who: str
    when: str
    text: str
    prices: str


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One post, or some that stand close together: then `more` says how many are not told of."""

    x: float
    left: float
    kind: str
    posts: int
    href: str
    label: str
    told: Sequence[Told]
    more: int


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """All that fits on the paper, the earliest first; `outside` counts posts from long before or after the prices."""

    marks: Sequence[Mark]
    outside: int

    @property
    def kinds(self) -> set[str]:
        return {each.kind for each in self.marks}


def post_marks(chart: OfferChart, posts: Sequence[Lined], *, listed: str) -> Marks:
    """`listed` is where the posts are told of one by one: that is where a mark of several leads."""
    placed = sorted(
        ((x, each) for each in posts if (x := place_on(chart, each.post.created_at)) is not None),
        key=lambda pair: pair[0],
    )
    groups: list[list[tuple[float, Lined]]] = []
    for x, each in placed:
        if groups and x - groups[-1][0][0] < _CLOSE:
            groups[-1].append((x, each))
        else:
            groups.append([(x, each)])
    return Marks(marks=[_mark(some, listed) for some in groups], outside=len(posts) - len(placed))


def _mark(some: Sequence[tuple[float, Lined]], listed: str) -> Mark:
    """In the middle of what it stands for."""
    x = round(sum(x for x, _ in some) / len(some), 1)
    lined = [each for _, each in reversed(some)]
    told = [_told(each) for each in lined[:_TOLD]]
    kinds = {each.post.kind for each in lined}
    alone = len(lined) == 1
    first = told[0]
    label = f"{first.who}, {first.when}: {first.prices}" if alone else _several(lined, told)
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


def _several(lined: Sequence[Lined], told: Sequence[Told]) -> str:
    earliest = lined[-1].post.created_at.astimezone(UTC)
    span = f"from {earliest:%d %b %Y} to {told[0].when}"
    return f"{counted(len(lined), 'post')} {span}, the latest by {told[0].who}: {told[0].prices}"


def conversation_of(post: Promoting) -> str | None:
    """Where a post can be read: among those it answers, or where it was written."""
    if post.platform is Platform.X:
        return f"/conversations/{post.conversation_id or post.post_id}#p{post.post_id}"
    return safe_url(post.post_url)


def _told(lined: Lined) -> Told:
    post = lined.post
    repeats = " (a repost)" if post.kind is Promotion.REPOST else ""
    return Told(
        who=f"@{post.handle or post.author_id}{repeats}",
        when=f"{post.created_at.astimezone(UTC):%d %b %Y}",
        text=snippet(post.text, 140),
        prices=in_words(lined.prices),
    )


def in_words(prices: Around) -> str:
    """Before and after, in one line."""
    before = f"{_asked(prices.before)} before" if prices.before else "no price known before"
    if prices.after is None:
        return f"{before}, none seen after"
    still = "still " if prices.unchanged else ""
    by = "" if prices.change.percent is None else f" ({percent(prices.change.percent)})"
    return f"{before}, {still}{_asked(prices.after)} after{by}"


def _asked(price: SeenPrice) -> str:
    return money(price.amount, price.currency)
