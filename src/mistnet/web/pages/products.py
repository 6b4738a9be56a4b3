"""Links, products and items: their lists, each with its prices and chart, and who mentions it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Path, Query
from fastapi.responses import Response

from mistnet.prices.item_validation import LONGEST_TITLE, item_request_of, problem_text
from mistnet.prices.model import BadItem, ItemId, ItemState, PointFilter
from mistnet.prices.service import fetch_now, item_points, items_of, sources_of, weigh_points, whole_item
from mistnet.prices.store.item_listing import ItemFilter, ItemListing
from mistnet.prices.store.items import ItemOutcome
from mistnet.prices.store.lineage import Lineage
from mistnet.prices.store.related_products import AccountProducts, ProductCursor, who_is
from mistnet.prices.store.valuations import Valuations
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import LinkId, LinkKind, LinkState, PriceKind, ProductId
from mistnet.shops.store.corrections import CorrectionPages
from mistnet.shops.store.link_pages import COUNTED, LinkFilter, LinkPages, find_links, waiting_links
from mistnet.shops.store.mentions import MentionCursor, MentionPages, read_mention_cursor
from mistnet.shops.store.product_pages import Asks, ProductFilter, ProductPages
from mistnet.social.model import Platform, UserId
from mistnet.web.errors import NotFound, require
from mistnet.web.fields import LARGEST_ID, BeforeId, NumberPath, QueryText, Word, one_of
from mistnet.web.pages.charts import HEIGHT, WIDTH, item_chart
from mistnet.web.pages.offer_charts import SPARK_HEIGHT, SPARK_WIDTH, offer_chart, post_marks, spark
from mistnet.web.pages.render import OperatorPage, PageRequest, ReaderPage, redirect_to

router = APIRouter(include_in_schema=False)
_PAGE: Final = 20
_BESIDE: Final = 20
"""Of the posts, crawls, offers, links and watches beside one link or product."""

BeforePosts = Annotated[str, Query(max_length=500)]


@router.get("/links")
async def links(
    page: ReaderPage, lane: Word = "", state: Word = "", kind: Word = "", q: QueryText = "", before: BeforeId = None
) -> Response:
    asked = LinkFilter(
        lane=lane if lane in CRAWL_LANES else None,
        state=one_of(LinkState, state),
        kind=one_of(LinkKind, kind),
        words=q,
        before=before,
        limit=_PAGE,
    )
    found = await find_links(page.app, asked)
    return page.render(
        "links.html",
        links=found.items,
        waiting=await waiting_links(page.app),
        more=found.next,
        before=before,
        asked={"lane": asked.lane or "", "state": asked.state or "", "kind": asked.kind or "", "q": q},
        narrowed=asked.narrows or bool(q.strip()),
        lanes=CRAWL_LANES,
        states=list(LinkState),
        kinds=list(LinkKind),
        counted=COUNTED,
    )


@router.get("/links/{link_id}")
async def link(
    page: ReaderPage, link_id: NumberPath, before: BeforePosts = "", crawls_before: BeforeId = None
) -> Response:
    pages, mentions = LinkPages(page.app.database), MentionPages(page.app.database)
    line = require(await pages.one(LinkId(link_id)), f"link {link_id}")
    crawls = await pages.crawls(line.id, before=crawls_before, limit=_BESIDE)
    reach = await mentions.reach_of_link(line.id)
    posts = await mentions.page(reach, before=before_of(before), limit=_BESIDE)
    return page.render(
        "link.html",
        link=line,
        target=await pages.one(line.leads_to) if line.leads_to else None,
        leading=await pages.leading_here(line.id, limit=_BESIDE),
        crawls=crawls.items,
        crawls_before=crawls_before,
        more_crawls=crawls.next,
        mentions=posts.items,
        before=before,
        more=posts.next,
    )


def before_of(written: str) -> MentionCursor | None:
    """A page that begins at anything but a cursor is the first one."""
    try:
        return read_mention_cursor(written)
    except ValueError:
        return None


_DRAWN: Final = 500
_MARKED: Final = 200
_PROMOTING: Final = 12


@router.get("/products")
async def products(
    page: ReaderPage, shop: Word = "", price: Word = "", q: QueryText = "", before: BeforeId = None
) -> Response:
    shops = page.app.shops.names
    asked = ProductFilter(
        shop=shop if shop in shops else None, asks=one_of(Asks, price), words=q, before=before, limit=_PAGE
    )
    found = await ProductPages(page.app.database).list(asked)
    return page.render(
        "products.html",
        products=found.items,
        waiting=await waiting_links(page.app),
        more=found.next,
        before=before,
        asked={"shop": asked.shop or "", "price": asked.asks or "", "q": q},
        narrowed=bool(asked.shop or asked.asks or q.strip()),
        shops=shops,
        prices=list(Asks),
    )


@router.get("/products/{product_id}")
async def product(
    page: ReaderPage, product_id: NumberPath, before: BeforePosts = "", offers_before: BeforeId = None
) -> Response:
    database, now = page.app.database, page.now
    pages, lineage = ProductPages(database), Lineage(database)
    line = require(await pages.one(ProductId(product_id)), f"product {product_id}")
    drawn = (await pages.offers(line.id, limit=_DRAWN)).items
    offers = await pages.offers(line.id, before=offers_before, limit=_BESIDE)
    links = await LinkPages(database).of_product(line.id, limit=_BESIDE)
    marked = await lineage.page(line.id, now=now, limit=_MARKED)
    begin = before_of(before)
    posts = await lineage.page(line.id, now=now, limit=_PROMOTING, before=begin) if begin else marked.cut(_PROMOTING)
    chart = offer_chart(drawn, [each.post.created_at for each in marked.posts])
    return page.render(
        "product.html",
        product=line,
        current=next((each for each in (*drawn, *offers.items) if each.id == line.offer_id), None),
        chart=chart,
        marks=post_marks(chart, marked.posts, listed=f"/products/{line.id}#posts-title") if chart else None,
        more_marks=marked.next is not None,
        paper=(WIDTH, HEIGHT),
        offers=offers.items,
        offers_before=offers_before,
        more_offers=offers.next,
        readings=await CorrectionPages(database).readings([each.id for each in offers.items]),
        links=links,
        watches=(await page.app.price_watches.page(product_id=line.id, limit=_BESIDE)).items,
        blocked=[each for each in links if each.state is LinkState.BLOCKED],
        posts=posts.posts,
        before=before,
        more=posts.next,
    )


_LINKED: Final = 25


@router.get("/people/{platform}/{user_id}/products")
async def linked_products(
    page: ReaderPage,
    platform: str,
    user_id: Annotated[int, Path(ge=-LARGEST_ID, le=LARGEST_ID)],
    before: Annotated[str, Query(max_length=45)] = "",
) -> Response:
    platforms, database = page.app.platforms, page.app.database
    if platform not in platforms:
        raise NotFound(f"such platform: there are {' and '.join(platforms)}")
    there, own = Platform(platform), UserId(user_id)
    async with database.read() as connection:
        who = require(await who_is(connection, there, own), f"user {user_id} of {there}")
    parts, place = before.split("."), None
    if len(parts) == 2 and all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        # Two ids with a dot between; anything else begins at the beginning.
        post_id, product_id = (min(int(part), LARGEST_ID) for part in parts)
        place = ProductCursor(post_id=post_id, product_id=product_id)
    found = await AccountProducts(database).page(there, own, limit=_LINKED, before=place)
    return page.render(
        "linked_products.html",
        who=who,
        linked=[(each, spark(each)) for each in found.items],
        paper=(SPARK_WIDTH, SPARK_HEIGHT),
        before=before,
        more=f"{found.next.post_id}.{found.next.product_id}" if found.next else None,
    )


_POINTS: Final = 25
_PAST: Final = 10
_WATCHES: Final = 20
Written = Annotated[str, Form(max_length=2 * LONGEST_TITLE)]
_DID: Final = {ItemOutcome.ADDED: "item-added", ItemOutcome.CHANGED: "item-added", ItemOutcome.SAME: "item-known"}
VALUED: Final = {"yes": True, "no": False}


@router.get("/items")
async def items(
    page: ReaderPage, q: QueryText = "", state: Word = "", valued: Word = "", before: BeforeId = None
) -> Response:
    return await _list(page, ItemFilter(state=one_of(ItemState, state), words=q, valued=VALUED.get(valued)), before)


async def _list(page: PageRequest, filters: ItemFilter, before: int | None = None, **form: Any) -> Response:
    found = await ItemListing(page.app.database).page(filters, after=before, limit=_PAGE)
    valued = {True: "yes", False: "no", None: ""}[filters.valued]
    asked = {"q": filters.words, "state": filters.state or "", "valued": valued}
    return page.render(
        "items.html",
        items=found.items,
        more=found.next,
        before=before,
        asked=asked,
        narrowed=any(asked.values()),
        states=list(ItemState),
        longest=LONGEST_TITLE,
        **{"problem": None, "given": {"title": "", "currency": ""}, **form},
    )


@router.post("/items")
async def add(page: OperatorPage, title: Written = "", currency: Written = "") -> Response:
    given = {"title": title, "currency": currency}
    try:
        item_request = item_request_of(given, sources=sources_of(page.app))
    except BadItem as error:
        problem = "; ".join(map(problem_text, error.problems))
        return await _list(page, ItemFilter(), problem=problem, given=given, status=400)
    (kept,) = await items_of(page.app).add([item_request], page.now)
    return redirect_to(f"/items/{kept.item_id}", _DID[kept.outcome])


@router.get("/items/{item_id}")
async def item(page: ReaderPage, item_id: NumberPath, kind: Word = "", points_before: BeforeId = None) -> Response:
    app = page.app
    listing, number = ItemListing(app.database), ItemId(item_id)
    whole = await whole_item(app, number)
    past = await listing.past_summaries(number, limit=_DRAWN)
    chosen = one_of(PriceKind, kind)
    points = await item_points(app, number, PointFilter(kind=chosen), after=points_before, limit=_POINTS)
    drawn = await Valuations(app.database).points(number, limit=_DRAWN)
    return page.render(
        "item.html",
        item=whole,
        chart=item_chart(past, weigh_points(drawn.items, whole.valuation), page.now),
        drawn_all=drawn.next is None,
        paper=(WIDTH, HEIGHT),
        points=points.items,
        kinds=list(PriceKind),
        kind=chosen or "",
        points_before=points_before,
        more_points=points.next,
        watches=(await app.price_watches.page(item_id=number, limit=_WATCHES)).items,
        past=past[::-1][:_PAST],
        past_all=len(past) <= _PAST,
        pending=await listing.pending_fetches(number, sources_of(app)),
        is_active=whole.state is ItemState.ACTIVE,
        is_removed=whole.state is ItemState.REMOVED,
    )


@router.post("/items/{item_id}/ask")
async def ask(page: OperatorPage, item_id: NumberPath) -> Response:
    """Fetch from all its sources now. Fetches that are already waiting are not added again."""
    made = await fetch_now(page.app, [ItemId(item_id)])
    return redirect_to(f"/items/{item_id}", "item-asked" if made.created else "item-asked-already")


@router.post("/items/{item_id}/{change}")
async def change_state(
    page: OperatorPage, item_id: NumberPath, change: Annotated[str, Path(pattern="^(pause|resume|remove)$")]
) -> Response:
    state = {"pause": ItemState.PAUSED, "resume": ItemState.ACTIVE, "remove": ItemState.REMOVED}[change]
    await items_of(page.app).set_state(ItemId(item_id), state, page.now)
    return redirect_to(f"/items/{item_id}", f"item-{change}")


@router.get("/watches")
async def watches(page: ReaderPage, before: BeforeId = None) -> Response:
    found = await page.app.price_watches.page(after=before, limit=_PAGE)
    return page.render("watches.html", watches=found.items, before=before, more=found.next)
