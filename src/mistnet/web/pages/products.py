"""Links and products: their lists; one link with its crawls, one product with its offers, and who mentions them."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from mistnet.prices.store.lineage import Lineage
from mistnet.prices.store.related_products import AccountProducts, ProductCursor, who_is
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import LinkId, LinkKind, LinkState, ProductId
from mistnet.shops.service import find_links, waiting_links
from mistnet.shops.store.link_pages import COUNTED, LinkFilter, LinkPages
from mistnet.shops.store.mentions import MentionCursor, MentionPages, read_mention_cursor
from mistnet.shops.store.product_pages import Asks, ProductFilter, ProductPages
from mistnet.social.model import Platform, UserId
from mistnet.web.errors import NotFound, require
from mistnet.web.fields import LARGEST_ID, BeforeId, NumberPath, QueryText, Word
from mistnet.web.pages.charts import HEIGHT, WIDTH
from mistnet.web.pages.offer_charts import SPARK_HEIGHT, SPARK_WIDTH, offer_chart, post_marks, spark
from mistnet.web.pages.render import ReaderPage

links_router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
_BESIDE: Final = 20
"""Of the posts, crawls, offers, links and watches beside one link or product."""

BeforePosts = Annotated[str, Query(max_length=500)]


@links_router.get("/links")
async def links(
    page: ReaderPage, lane: Word = "", state: Word = "", kind: Word = "", q: QueryText = "", before: BeforeId = None
) -> Response:
    asked = LinkFilter(
        lane=lane if lane in CRAWL_LANES else None,
        state=LinkState(state) if state in set(LinkState) else None,
        kind=LinkKind(kind) if kind in set(LinkKind) else None,
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


@links_router.get("/links/{link_id}")
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


router = APIRouter(include_in_schema=False)
_DRAWN: Final = 500
_MARKED: Final = 200


@router.get("/products")
async def products(
    page: ReaderPage, shop: Word = "", price: Word = "", q: QueryText = "", before: BeforeId = None
) -> Response:
    shops = page.app.shops.names
    asked = ProductFilter(
        shop=shop if shop in shops else None,
        asks=Asks(price) if price in set(Asks) else None,
        words=q,
        before=before,
        limit=_PAGE,
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
    posts = await lineage.page(line.id, now=now, limit=_BESIDE, before=begin) if begin else marked.cut(_BESIDE)
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
        links=links,
        watches=(await page.app.price_watches.page(product_id=line.id, limit=_BESIDE)).items,
        blocked=[each for each in links if each.state is LinkState.BLOCKED],
        posts=posts.posts,
        before=before,
        more=posts.next,
    )


linked_products_router = APIRouter(include_in_schema=False)
_LINKED: Final = 25


@linked_products_router.get("/people/{platform}/{user_id}/products")
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
