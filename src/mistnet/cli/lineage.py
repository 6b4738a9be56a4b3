"""Commands that join posts and prices: who promoted a product and what it cost then, what somebody promotes."""

import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.joblines import storable
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import Grid, at, document, span
from mistnet.cli.price_plot import FINE, PLAIN, PlottedPost, plot
from mistnet.cli.products import Named, product_called
from mistnet.cli.shared import Invocation, shared_options
from mistnet.desk.lineage import item_fields, lined_fields, linked_fields, price_fields, product_fields
from mistnet.desk.waiting_links import hints_of, waiting_links
from mistnet.domain.amounts import money
from mistnet.domain.errors import ItemNotFound, UserNotFound
from mistnet.domain.items import ItemId
from mistnet.domain.lineage import Around, Change, SeenPrice, snippet
from mistnet.domain.numbers import read_number
from mistnet.domain.plural import counted
from mistnet.domain.social import Platform, UserId
from mistnet.store.account_products import AccountProducts, LinkedProduct, Spot
from mistnet.store.item_products import ItemProduct, ItemProducts
from mistnet.store.lineage import Lineage, Lined, Promoting
from mistnet.store.mention_pages import Before
from mistnet.store.search import handle_key, holders

_WIDEST: Final = 100
_COLUMNS: Final = ("written (UTC)", "by", "", "price before", "age", "price after", "change", "lowest 30 d", "text")


BeforePlace = Annotated[
    str | None, typer.Option("--before", metavar="PLACE", help="The next page: as told at the end of this one.")
]


def _place(given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    match [read_number(part) for part in given.split(".")]:
        case [int(first), int(second)]:
            return first, second
        case _:
            raise typer.BadParameter("--before is as the page before told it: two numbers with a dot between")


@shared_options
async def lineage(
    invocation: Invocation,
    product: Named,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many posts at most.")] = 20,
    before: BeforePlace = None,
) -> None:
    """Show the posts that promoted a thing, with its price before and after each, and its price course as a plot."""
    place = _place(before)
    begin = Before(x=place[0], threads=place[1]) if place else None
    async with open_app(invocation.settings) as app:
        found = await product_called(app, product)
        store, now = Lineage(app.database), app.database.clock.now()
        page = await store.page(found.id, now=now, limit=limit, before=begin)
        course = await store.course(found.id)
    grid = Grid(
        title="posts that promoted it, the newest first",
        columns=_COLUMNS,
        rows=[_row(each) for each in page.posts],
        empty="that was the first" if begin else "no stored post links it",
    )
    further = f"{page.next.x}.{page.next.threads}" if page.next else None
    shown = document(
        product=product_fields(found),
        posts=[lined_fields(each) for each in page.posts],
        course=[price_fields(each) for each in course],
        next_before=further,
    )
    head = f"product {found.id}: {found.title or found.url}"
    gone = [f"gone since {at(found.gone_at)} UTC"] if found.gone_at else []
    drawn = _plot(course, [each.post for each in page.posts]) or "no price of it is known yet"
    more = [f"more: --before {further}"] if further else []
    invocation.out.show(shown, head, found.url, *gone, drawn, grid, *more)


@shared_options
async def products_of(
    invocation: Invocation,
    who: Annotated[
        str | None, typer.Argument(metavar="[HANDLE]", help="@name on X or Threads; or name an item with --item.")
    ] = None,
    *,
    item: Annotated[
        int | None,
        typer.Option("--item", min=1, max=LARGEST_ID, metavar="ID", help="The things an item's points came from."),
    ] = None,
    platform: Annotated[
        Platform | None, typer.Option("--platform", metavar="|".join(Platform), help="Where the handle is.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, metavar="N", help="How many at most.")] = 20,
    before: BeforePlace = None,
) -> None:
    """Show the things somebody links, the latest mention first, with what they cost since he named them first."""
    if (who is None) == (item is None):
        raise typer.BadParameter("name an account as @handle, or an item with --item ID")
    storable("the handle", who)
    place = _place(before)
    async with open_app(invocation.settings) as app:
        if who is None:
            await _of_item(invocation, app, ItemId(item or 0), limit, place[1] if place else 0)
        else:
            await _of_account(invocation, app, await _user(app, who, platform), limit, place)


async def _of_account(
    invocation: Invocation, app: App, who: tuple[Platform, UserId], limit: int, before: tuple[int, int] | None
) -> None:
    begin = Spot(post_id=before[0], product_id=before[1]) if before else None
    page = await AccountProducts(app.database).page(*who, limit=limit, before=begin)
    waiting = await waiting_links(app)
    place = f"{page.next.post_id}.{page.next.product_id}" if page.next else None
    empty = "no product is known that this account links" if begin is None else "none on this page"
    grid = Grid(
        columns=(
            "id",
            "title",
            "posts",
            "first (UTC)",
            "latest (UTC)",
            "then",
            "lowest",
            "highest",
            "now",
            "change",
            "",
        ),
        rows=[_linked_row(each) for each in page.products],
        empty=empty,
    )
    shown = document(
        platform=who[0],
        user_id=who[1],
        products=[linked_fields(each) for each in page.products],
        next_before=place,
        waiting_links=waiting,
    )
    more = [f"more: --before {place}"] if place else []
    invocation.out.show(shown, grid, *more, *hints_of(waiting))


async def _of_item(invocation: Invocation, app: App, item_id: ItemId, limit: int, after: int) -> None:
    store = ItemProducts(app.database)
    if not await store.there_is(item_id):
        raise ItemNotFound(item_id)
    rows = await store.page(item_id, after=after, limit=limit + 1)
    shown = rows[:limit]
    place = f"0.{shown[-1].product.id}" if len(rows) > limit else None
    grid = Grid(
        columns=("id", "title", "points", "best match", "first (UTC)", "latest (UTC)"),
        rows=[_item_row(each) for each in shown],
        empty="none of its points came from a product",
    )
    told = document(item_id=str(item_id), products=[item_fields(each) for each in shown], next_before=place)
    invocation.out.show(told, grid, *([f"more: --before {place}"] if place else []))


async def _user(app: App, given: str, platform: Platform | None) -> tuple[Platform, UserId]:
    """Whoever goes by that handle now, on the one platform where somebody does."""
    async with app.database.read() as connection:
        found = [each for each in await holders(connection, given) if platform in (None, each[0])]
    if not found:
        raise UserNotFound(f"@{handle_key(given)}")
    places = sorted({str(each[0]) for each in found})
    if len(places) > 1:
        known = " and ".join(places)
        raise typer.BadParameter(f"@{handle_key(given)} is on {known}: say which with --platform {places[0]}")
    return found[-1]


def _plot(course: Sequence[SeenPrice], posts: Sequence[Promoting]) -> str:
    fine = "utf" in (sys.stdout.encoding or "").lower()
    width = min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
    marks = [PlottedPost(at=each.created_at, kind=each.kind) for each in posts]
    return "\n".join(plot(course, marks, width=width, glyphs=FINE if fine else PLAIN))


def _row(lined: Lined) -> Sequence[str]:
    post, prices = lined.post, lined.prices
    last = prices.lowest[-1]
    gone = " (gone)" if post.gone_at else ""
    return (
        at(post.created_at),
        f"@{post.handle or post.author_id} on {post.platform}",
        f"{post.kind}{gone}",
        _asked(prices.before, "not known"),
        "" if prices.age is None else "held" if not prices.age else span(prices.age),
        _after(prices),
        percent(prices.change),
        _asked(last.price, "") + ("" if last.over or last.price is None else " so far"),
        snippet(post.text, 60),
    )


def _after(prices: Around) -> str:
    if prices.after is None:
        return "not seen"
    return f"{_asked(prices.after, '')} ({'still, ' if prices.unchanged else ''}{_later(prices.delay)})"


def _later(delay: timedelta | None) -> str:
    return f"after {span(delay or timedelta())}"


def _asked(price: SeenPrice | None, otherwise: str) -> str:
    return otherwise if price is None else money(price.amount, price.currency, price.amount_max)


def percent(change: Change) -> str:
    if change.percent is None:
        return str(change.why_not)
    return f"{change.percent:+,f} %" if change.percent else "0 %"


def _linked_row(linked: LinkedProduct) -> Sequence[str]:
    line, mentions = linked.product, linked.mentions
    reposts = f" ({counted(mentions.reposts, 'repost')})" if mentions.reposts else ""
    return (
        str(line.id),
        snippet(line.title or line.url, 50),
        f"{mentions.posts}{reposts}",
        at(mentions.first_at),
        at(mentions.latest_at),
        _asked(linked.at_first, "not known"),
        _asked(linked.lowest, ""),
        _asked(linked.highest, ""),
        _asked(linked.latest, ""),
        percent(linked.change),
        "gone" if line.gone_at else line.availability or "",
    )


def _item_row(each: ItemProduct) -> Sequence[str]:
    line = each.product
    told = (str(line.id), snippet(line.title or line.url, 60), str(each.points), f"{each.strength:.2f}")
    return *told, at(each.first_at), at(each.latest_at)
