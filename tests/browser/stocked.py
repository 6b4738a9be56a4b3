"""Feeds, links, products and lanes with something of everything: hostile titles, doubted offers, gone and blocked."""

from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from mistnet.app import App
from mistnet.governor.model import SourceName
from mistnet.shops.extraction import KeptReading, PriceCandidate, PriceRole
from mistnet.shops.model import Evidence, PageKind
from mistnet.social.model import THREADS, Detail, Post, PostId, User, UserId
from tests.harvests import tell
from tests.shelves import crawl, feed, job, link, mention, offer, product

THREADS_ID = PostId(18_000_000_000_000_123)
BEA = UserId(-77)
OFFERS = 30


class Stocked(msgspec.Struct, frozen=True, kw_only=True):
    """What was put where."""

    link: int
    short: int
    product: int
    gone: int
    plain: int
    letter: int


async def stock(app: App, posts: list[PostId], *, hostile: str, long: str) -> Stocked:
    """Posts are of X and stored already."""
    database, now = app.database, app.database.clock.now()
    worst = f"{hostile} {long}"
    await _somebody_on_threads(app, worst)
    cup = await product(
        database, "9007199254740993", title=f"茶杯 {hostile} {long}", brand=long, sku=long, image_url="javascript:1"
    )
    item = await link(
        database,
        "https://shopee.tw/product/1/9007199254740993",
        url=f"https://shopee.tw/{long}-i.1.9007199254740993?x=<b>",
        product_id=cup,
        state="blocked",
        problem=worst,
        crawled_at=now,
        item_id="9007199254740993",
    )
    short = await link(database, f"https://s.shopee.tw/{long}", kind="short", state="resolved", leads_to=item)
    code = await link(database, "code://taobao/abc", lane="taobao", kind="code", state="unresolved", problem=worst)
    for place, post_id in enumerate(posts):
        await mention(database, (item, short, code)[place % 3], post_id, url=f"https://s.shopee.tw/{long}?<b>", nr=0)
    await mention(database, short, THREADS_ID, platform=THREADS, place="attachment")
    await _offers(app, cup, item, now, worst)
    for outcome in ("offer", "blocked", "gone", "no_price", "failed"):
        about = {"problem": worst, "final_url": f"https://shopee.tw/{long}", "product_id": cup, "job_id": 1}
        await crawl(database, item, outcome, at=now - timedelta(minutes=5), **about)
    gone = await product(database, "3", platform="ebay", title="A bowl", gone_at=now - timedelta(days=3))
    await offer(database, gone, "12.50", at=now - timedelta(days=9), currency="USD", amount_max=Decimal("20.00"))
    plain = await product(database, "4", platform="web", title=None, url=f"https://web.example/{long}")
    letter = await _lanes(app, worst)
    for handle, state, reason in (("bea.on.threads", "active", None), ("cat", "refused", worst), ("dan", "new", None)):
        about = {"reason": reason, "polled_at": now if state == "active" else None, "posts": 1_234, "user_id": None}
        await feed(database, handle, state=state, every_seconds=3_600.0 if state == "new" else None, **about)
    return Stocked(link=item, short=short, product=cup, gone=gone, plain=plain, letter=letter)


async def _somebody_on_threads(app: App, worst: str) -> None:
    await tell(
        app,
        User(platform=THREADS, id=BEA, detail=Detail.PROFILE, handle="bea.on.threads", name=worst, raw=b"{}"),
        Post(
            platform=THREADS,
            id=THREADS_ID,
            author_id=BEA,
            text=f"{worst} https://s.shopee.tw/abc",
            url="https://www.threads.com/@bea.on.threads/post/abc",
            created_at=app.database.clock.now() - timedelta(days=1),
            raw=b"{}",
        ),
    )


async def _offers(app: App, cup: int, item: int, now: datetime, worst: str) -> None:
    """A month of them: the price falls, variants cost more for a while, a few are not believed."""
    told = msgspec.json.encode(
        [
            Evidence(field="amount", path="shopee:item.price", snippet=worst, confidence=0.98),
            Evidence(field="list_amount", path="shopee:item.price_before_discount", snippet="29900000", confidence=0.9),
        ]
    )
    for day in range(OFFERS):
        at = now - timedelta(days=OFFERS - day)
        doubt = {7: "a hundred times the last", 19: worst}.get(day)
        amount = {7: "24900", 19: "2.49"}.get(day) or str(299 - day * 4 + (day % 3) * 7)
        dearer = Decimal(amount) + 60 if 10 <= day < 16 else None
        await offer(
            app.database,
            cup,
            amount,
            at=at,
            doubt=doubt,
            amount_max=dearer,
            link_id=item,
            evidence=told,
            list_amount=Decimal(299),
            sold_count=1_000 + day,
            reading=_reading(Decimal(amount), worst),
            corrected_at=at if day == OFFERS - 2 else None,
            last_seen_at=at + timedelta(hours=20),
        )


async def _lanes(app: App, worst: str) -> int:
    database, now = app.database, app.database.clock.now()
    for lane, states in (
        ("shopee", ("pending",) * 9 + ("queued",) * 3 + ("running", "retryable", "dead")),
        ("ebay", ("pending", "retryable", "dead", "failed")),
    ):
        for place, state in enumerate(states):
            about = {"last_error": worst} if state in ("dead", "failed") else {}
            await job(database, lane, state, key=f"https://{lane}.example/{place}", run_at=now, **about)
    await app.sources.store.pause(SourceName("ebay"), worst, now=now)
    name = "https://shopee.tw/product/1/9007199254740993"
    return await job(database, "shopee", "dead", key=name, run_at=now, last_error=f"403: {worst}")


def _reading(amount: Decimal, worst: str) -> bytes:
    """What the price was chosen from, with names as long as pages have them."""
    features = {"title_120": 1.0, "name_price": 1.0, "data_and_visible": 1.0, "struck": 0.0}
    rivals = [
        PriceCandidate(
            amount=amount + 9, currency="TWD", path=f"visible:span.{worst}", snippet=worst, role=role, score=1.5
        )
        for role in (PriceRole.LIST_PRICE, PriceRole.SHIPPING, PriceRole.INSTALMENT)
    ]
    chosen = PriceCandidate(
        amount=amount,
        currency="TWD",
        path="shopee:item.price",
        snippet=f"{amount}",
        features=features,
        score=7.25,
        chosen=True,
    )
    why = [Evidence(field="page_kind", path="page:url_product", snippet="speaks for product", confidence=0.9)]
    kept = KeptReading(page_kind=PageKind.PRODUCT, kind_evidence=why, candidates=[chosen, *rivals])
    return msgspec.json.encode(kept)
