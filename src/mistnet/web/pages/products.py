"""Pages of products: the list with current prices; one with its offers, their evidence, and posts that mention it."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse

from mistnet.prices.lineage.account_products import AccountProducts, ProductCursor, who_is
from mistnet.prices.lineage.store import Lineage
from mistnet.shops.model import LinkState, ProductId
from mistnet.shops.service import waiting_links
from mistnet.shops.store.link_pages import LinkPages
from mistnet.shops.store.product_pages import Asks, ProductFilter, ProductPages
from mistnet.social.model import Platform, UserId
from mistnet.web.auth import Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound
from mistnet.web.pages.accounts import BeforeId, LargestId
from mistnet.web.pages.charts import HEIGHT, WIDTH
from mistnet.web.pages.links import BeforePosts, before_of
from mistnet.web.pages.offer_charts import SPARK_HEIGHT, SPARK_WIDTH, offer_chart, post_marks, spark
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)
_PRODUCTS_PAGE: Final = 50
_DRAWN: Final = 500
_OFFERS: Final = 20
_POSTS: Final = 20
_MARKED: Final = 200
_LINKS: Final = 20
_WATCHES: Final = 20
ProductPath = Annotated[int, Path(ge=1, le=LargestId)]
Chosen = Annotated[str, Query(max_length=20)]


@router.get("/products")
async def products(
    request: Request,
    caller: Reader,
    app: Mistnet,
    shop: Chosen = "",
    price: Chosen = "",
    q: Annotated[str, Query(max_length=500)] = "",
    before: BeforeId = None,
) -> HTMLResponse:
    wanted = ProductFilter(
        shop=shop if shop in app.shops.names else None,
        asks=Asks(price) if price in set(Asks) else None,
        words=q.replace("\x00", ""),
        before=before,
        limit=_PRODUCTS_PAGE,
    )
    found = await ProductPages(app.database).list(wanted)
    return page(
        request,
        "products.html",
        caller,
        products=found.items,
        waiting=await waiting_links(app),
        more=found.next,
        before=before,
        asked={"shop": wanted.shop or "", "price": wanted.asks or "", "q": q},
        narrowed=bool(wanted.shop or wanted.asks or q.strip()),
        shops=app.shops.names,
        prices=list(Asks),
    )


@router.get("/products/{product_id}")
async def product(
    request: Request,
    caller: Reader,
    app: Mistnet,
    product_id: ProductPath,
    before: BeforePosts = "",
    offers_before: BeforeId = None,
) -> HTMLResponse:
    pages, lineage, now = ProductPages(app.database), Lineage(app.database), app.database.clock.now()
    line = await pages.one(ProductId(product_id))
    if line is None:
        raise NotFound(f"product {product_id}")
    drawn = (await pages.offers(line.id, limit=_DRAWN)).items
    offers = await pages.offers(line.id, before=offers_before, limit=_OFFERS)
    links = await LinkPages(app.database).of_product(line.id, limit=_LINKS)
    marked = await lineage.page(line.id, now=now, limit=_MARKED)
    begin = before_of(before)
    posts = await lineage.page(line.id, now=now, limit=_POSTS, before=begin) if begin else marked.cut(_POSTS)
    chart = offer_chart(drawn, [each.post.created_at for each in marked.posts])
    return page(
        request,
        "product.html",
        caller,
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
        watches=(await app.price_watches.page(product_id=line.id, limit=_WATCHES)).items,
        blocked=[each for each in links if each.state is LinkState.BLOCKED],
        posts=posts.posts,
        before=before,
        more=posts.next,
    )


linked_products_router = APIRouter(include_in_schema=False)
_PAGE: Final = 25
UserPath = Annotated[int, Path(ge=-LargestId, le=LargestId)]


@linked_products_router.get("/people/{platform}/{user_id}/products")
async def linked_products(
    request: Request,
    caller: Reader,
    app: Mistnet,
    platform: str,
    user_id: UserPath,
    before: Annotated[str, Query(max_length=45)] = "",
) -> HTMLResponse:
    if platform not in app.platforms:
        raise NotFound(f"such platform: there are {' and '.join(app.platforms)}")
    there, own = Platform(platform), UserId(user_id)
    async with app.database.read() as connection:
        who = await who_is(connection, there, own)
    if who is None:
        raise NotFound(f"user {user_id} of {there}")
    found = await AccountProducts(app.database).page(there, own, limit=_PAGE, before=spot_of(before))
    return page(
        request,
        "linked_products.html",
        caller,
        who=who,
        linked=[(each, spark(each)) for each in found.items],
        paper=(SPARK_WIDTH, SPARK_HEIGHT),
        before=before,
        more=f"{found.next.post_id}.{found.next.product_id}" if found.next else None,
    )


def spot_of(written: str) -> ProductCursor | None:
    """Two ids with a dot between; anything else begins at the beginning."""
    parts = written.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        return None
    post_id, product_id = (min(int(part), LargestId) for part in parts)
    return ProductCursor(post_id=post_id, product_id=product_id)
