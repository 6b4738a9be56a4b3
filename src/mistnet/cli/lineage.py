"""Commands that join posts and prices: who promoted a product at which price, and what an account promotes."""

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import PlatformOption, argument, option, read_platform, storable
from mistnet.cli.links import Named, find_product
from mistnet.cli.output import Grid, Output, at, document, next_page, span
from mistnet.kit.text import LARGEST_ID, counted, money, read_number
from mistnet.prices.lineage import PriceChange, Promotion, SeenPrice, snippet
from mistnet.prices.model import ItemId, ItemNotFound
from mistnet.prices.store.lineage import Lineage, Lined, lined_fields
from mistnet.prices.store.related_products import (
    AccountProducts,
    ItemProducts,
    ProductCursor,
    linked_fields,
)
from mistnet.shops.store.link_pages import hints_of, waiting_links
from mistnet.shops.store.mentions import read_mention_cursor
from mistnet.social.errors import UserNotFound
from mistnet.social.model import Platform, UserId
from mistnet.social.store.post_listing import handle_key, holders

HEIGHT: Final = 8
_LEAST_WIDTH: Final = 20
# The axis needs a length, also when everything happened at one moment.
_LEAST_SPAN: Final = timedelta(hours=1)
# A column has room for one digit.
_MANY: Final = 9


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """What lines are drawn with."""

    level: str
    rise: str
    axis: str
    own: str
    repost: str


FINE: Final = Glyphs(level="─", rise="│", axis="┤", own="▲", repost="△")
PLAIN: Final = Glyphs(level="-", rise="|", axis="|", own="^", repost="r")


class PlottedPost(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    kind: Promotion


def plot(
    course: Sequence[SeenPrice], posts: Sequence[PlottedPost], *, width: int, glyphs: Glyphs = FINE
) -> Sequence[str]:
    """Prices in the latest currency; no lines if there is no price."""
    if not course:
        return []
    currency = course[-1].currency
    own = [each for each in course if each.currency == currency]
    low, high = min(each.amount for each in own), max(each.amount for each in own)
    label = max(len(f"{low:f}"), len(f"{high:f}"))
    room = max(width - label - 2, _LEAST_WIDTH)
    scale = _Scale.over([*(each.observed_at for each in own), own[-1].last_seen_at, *(each.at for each in posts)], room)
    heights = [0 if high == low else round(float((each.amount - low) / (high - low)) * (HEIGHT - 1)) for each in own]
    rows = _draw_course(own, heights, scale, glyphs)
    names = {0: f"{low:f}"} | ({HEIGHT - 1: f"{high:f}"} if high != low else {})
    shown = [f"{names.get(place, ''):>{label}} {glyphs.axis}{rows[place]}" for place in range(HEIGHT - 1, -1, -1)]
    below = " " * (label + 2)
    if high == low:
        shown = shown[-1:]
    # Several posts in one column are shown as their number, more than nine as a +.
    marks = [" "] * scale.width
    counts = Counter(scale.column(each.at) for each in posts)
    for each in posts:
        number = counts[column := scale.column(each.at)]
        alone = glyphs.repost if each.kind is Promotion.REPOST else glyphs.own
        marks[column] = alone if number == 1 else str(number) if number <= _MANY else "+"
    kinds = {each.kind is Promotion.REPOST for each in posts}
    legend = [
        currency,
        *([f"{glyphs.own} a post"] if False in kinds else []),
        *([f"{glyphs.repost} a repost"] if True in kinds else []),
        *(["2-9, + so many posts"] if any(mark.isdecimal() or mark == "+" for mark in marks) else []),
    ]
    lines = [*shown, *([below + "".join(marks)] if posts else []), f"{below}{scale.words}", "   ".join(legend)]
    return [line.rstrip() for line in lines]


class _Scale(msgspec.Struct, frozen=True, kw_only=True):
    begin: datetime
    end: datetime
    width: int

    @classmethod
    def over(cls, moments: Sequence[datetime], width: int) -> "_Scale":
        begin = min(moments)
        return cls(begin=begin, end=max(*moments, begin + _LEAST_SPAN), width=width)

    def column(self, at: datetime) -> int:
        return min(int((at - self.begin) / (self.end - self.begin) * self.width), self.width - 1)

    @property
    def words(self) -> str:
        first, last = (f"{each.astimezone(UTC):%Y-%m-%d}" for each in (self.begin, self.end))
        return f"{first}{last:>{max(self.width - len(first), len(last) + 1)}}"


def _draw_course(own: Sequence[SeenPrice], heights: Sequence[int], scale: _Scale, glyphs: Glyphs) -> Sequence[str]:
    """An amount holds until the next one, and the last as long as it was seen."""
    paper = [[" "] * scale.width for _ in range(HEIGHT)]
    ends = [*(scale.column(each.observed_at) for each in own[1:]), scale.column(own[-1].last_seen_at) + 1]
    for place, (each, height, end) in enumerate(zip(own, heights, ends, strict=True)):
        begin = scale.column(each.observed_at)
        if place and heights[place - 1] != height:
            between = sorted((heights[place - 1], height))
            for row in range(between[0], between[1] + 1):
                paper[row][begin] = glyphs.rise
            begin += 1
        for column in range(begin, max(end, begin)):
            if column < scale.width:
                paper[height][column] = glyphs.level
    return ["".join(row) for row in paper]


_WIDEST: Final = 100
_COLUMNS: Final = ("written (UTC)", "by", "", "price before", "age", "price after", "change", "lowest 30 d", "text")


BeforePlace = Annotated[
    str | None, option("--before", "PLACE", "The next page: the place shown at the end of this one.")
]


@shared_options
async def lineage(
    invocation: Invocation,
    product: Named,
    *,
    limit: Annotated[int, option("--limit", "N", "How many posts at most.", min=1, max=1000)] = 20,
    before: BeforePlace = None,
) -> None:
    """Show the posts that promoted a product, with its price before and after each, and a plot of its prices."""
    try:
        begin = None if before is None else read_mention_cursor(before)
    except ValueError as error:
        raise typer.BadParameter(f"--before: {error}") from None
    async with open_app(invocation.settings) as app:
        found = await find_product(app, product)
        store, now = Lineage(app.database), app.database.clock.now()
        page = await store.page(found.id, now=now, limit=limit, before=begin)
        course = await store.course(found.id)
    grid = Grid(
        title="posts that promoted it, the newest first",
        brief=True,
        cut=True,
        columns=_COLUMNS,
        rows=[_row(each) for each in page.posts],
        empty="that was the first" if begin else "no stored post links it",
    )
    further = str(page.next) if page.next else None
    posts = [lined_fields(each) for each in page.posts]
    shown = document(product=found, posts=posts, course=course, next_before=further)
    head = f"product {found.id}: {found.title or found.url}"
    gone = [f"gone since {at(found.gone_at)} UTC"] if found.gone_at else []
    # Encodings without these lines would raise an error while printing.
    glyphs = FINE if "utf" in (sys.stdout.encoding or "").lower() else PLAIN
    width = min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
    marks = [PlottedPost(at=each.post.created_at, kind=each.post.kind) for each in page.posts]
    drawn = "\n".join(plot(course, marks, width=width, glyphs=glyphs)) or "no price of it is known yet"
    invocation.out.show(shown, head, found.url, *gone, drawn, grid, *next_page(further))


@shared_options
async def products_of(
    invocation: Invocation,
    who: Annotated[str | None, argument("[HANDLE]", "@name on X or Threads; or name an item with --item.")] = None,
    *,
    item: Annotated[
        int | None, option("--item", "ID", "The products of an item's price points.", min=1, max=LARGEST_ID)
    ] = None,
    platform: PlatformOption = None,
    limit: Annotated[int, option("--limit", "N", "How many at most.", min=1, max=200)] = 20,
    before: BeforePlace = None,
) -> None:
    """Show the products an account links to, the latest mention first, with their prices since the first mention."""
    if (who is None) == (item is None):
        raise typer.BadParameter("name an account as @handle, or an item with --item ID")
    storable("the handle", who)
    match None if before is None else [read_number(part) for part in before.split(".")]:
        case None:
            place = None
        case [int(first), int(second)]:
            place = first, second
        case _:
            raise typer.BadParameter("--before must be two numbers with a dot between, as the previous page shows")
    async with open_app(invocation.settings) as app:
        if who is None:
            await _of_item(invocation.out, app, ItemId(item or 0), limit, place[1] if place else 0)
            return
        only = read_platform(platform, app.platforms)
        async with app.database.read() as connection:
            found = [each for each in await holders(connection, who) if only in (None, each[0])]
        if not found:
            raise UserNotFound(f"@{handle_key(who)}", remedy="mistnet track")
        # The handle must be on one platform only.
        places = sorted({str(each[0]) for each in found})
        if len(places) > 1:
            known = " and ".join(places)
            raise typer.BadParameter(f"@{handle_key(who)} is on {known}: say which with --platform {places[0]}")
        await _of_account(invocation.out, app, found[-1], limit, place)


async def _of_account(
    out: Output, app: App, who: tuple[Platform, UserId], limit: int, before: tuple[int, int] | None
) -> None:
    begin = ProductCursor(post_id=before[0], product_id=before[1]) if before else None
    page = await AccountProducts(app.database).page(*who, limit=limit, before=begin)
    waiting = await waiting_links(app)
    place = f"{page.next.post_id}.{page.next.product_id}" if page.next else None
    grid = Grid.of(
        page.items,
        "id, title, posts, first, latest, then, lowest, highest, now, change, ",
        id=lambda each: each.product.id,
        title=lambda each: snippet(each.product.title or each.product.url, 50),
        posts=lambda each: f"{each.mentions.posts}" + _reposts(each.mentions.reposts),
        first=lambda each: f"{each.mentions.first_at:%Y-%m-%d}",
        latest=lambda each: f"{each.mentions.latest_at:%Y-%m-%d}",
        then=lambda each: _format_price(each.at_first, ""),
        lowest=lambda each: _format_price(each.lowest, ""),
        highest=lambda each: _format_price(each.highest, ""),
        now=lambda each: _format_price(each.latest, ""),
        change=lambda each: None if each.change.percent is None else percent(each.change),
        untitled=lambda each: "gone" if each.product.gone_at else each.product.availability,
        empty="no product is known that this account links" if begin is None else "none on this page",
    )
    shown = document(
        platform=who[0],
        user_id=who[1],
        products=[linked_fields(each) for each in page.items],
        next_before=place,
        waiting_links=waiting,
    )
    out.show(shown, grid, *next_page(place), *hints_of(waiting))


async def _of_item(out: Output, app: App, item_id: ItemId, limit: int, after: int) -> None:
    store = ItemProducts(app.database)
    if not await store.has_item(item_id):
        raise ItemNotFound(item_id)
    page = await store.page(item_id, after=after, limit=limit)
    place = f"0.{page.next}" if page.next else None
    grid = Grid.of(
        page.items,
        "id, title, points, best match, first (UTC), latest (UTC)",
        id=lambda each: each.product.id,
        title=lambda each: snippet(each.product.title or each.product.url, 60),
        best_match=lambda each: f"{each.strength:.2f}",
        empty="none of its points came from a product",
    )
    out.show(document(item_id=item_id, products=page.items, next_before=place), grid, *next_page(place))


def _reposts(number: int) -> str:
    return f" ({counted(number, 'repost')})" if number else ""


def _row(lined: Lined) -> Sequence[object]:
    post, prices = lined.post, lined.prices
    last = prices.lowest[-1]
    gone = " (gone)" if post.gone_at else ""
    after = "not seen"
    if prices.after is not None:
        still = "still, " if prices.unchanged else ""
        delay = span(timedelta(seconds=prices.after_delay_seconds or 0))
        after = f"{_format_price(prices.after, '')} ({still}after {delay})"
    return (
        f"{post.created_at:%Y-%m-%d}",
        f"@{post.handle or post.author_id} on {post.platform}",
        f"{post.kind}{gone}",
        _format_price(prices.before, "not known"),
        None if (age := prices.before_age_seconds) is None else span(timedelta(seconds=age)) if age else "held",
        after,
        percent(prices.change),
        _format_price(last.price, "") + ("" if last.over or last.price is None else " so far"),
        snippet(post.text, 60),
    )


def _format_price(price: SeenPrice | None, otherwise: str) -> str:
    return otherwise if price is None else money(price.amount, price.currency, price.amount_max)


def percent(change: PriceChange) -> str:
    if change.percent is None:
        return str(change.why_not)
    return f"{change.percent:+,f} %" if change.percent else "0 %"
