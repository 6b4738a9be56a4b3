"""Products that were promoted for two months: prices that move, posts, reposts and quotes, one of them gone."""

from datetime import timedelta
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.app import App
from mistnet.social.accounts import AccountTracked, Missing
from mistnet.social.coverage import moment_of
from mistnet.social.model import THREADS, Detail, Post, PostId, Reference, User, UserId, X
from tests.harvests import id_at, tell, user
from tests.shelves import link, mention, offer, product

ANN: Final = UserId(1_234_567)
BEA: Final = UserId(7_654_321)
CAT: Final = UserId(-99)
THREADS_ID: Final = PostId(18_000_000_000_000_777)
PRICES: Final = ("329", "329", "299", "249", "279", "199", "219", "259", "259", "239", "189", "209")
SAID: Final = (
    "The best kettle I ever had, and it is cheap this week. Look at how it pours!",
    "Everybody asks where my kettle is from: here it is.",
    "Again on sale, again sold out in an hour I guess.",
)


class Promoted(msgspec.Struct, frozen=True, kw_only=True):
    """What was put where."""

    kettle: int
    plain: int
    first: PostId
    single: PostId


async def promote(app: App) -> Promoted:
    """The kettle has a price every five days; posts come from before the first until now."""
    database, now = app.database, app.database.clock.now()
    await tell(
        app,
        user(ANN, "ann_finds", name="Ann finds things", posts_count=900),
        user(BEA, "bea", name="Bea"),
        User(platform=THREADS, id=CAT, detail=Detail.PROFILE, handle="cat.shops", name="Cat", raw=b"{}"),
        AccountTracked(platform=X, user_id=ANN),
    )
    kettle = await product(database, "21448123549", title="Gooseneck kettle 0.9 l, matt black", brand="Pour & Co.")
    item = await link(database, "https://shopee.tw/product/1/21448123549", product_id=kettle, state="crawled")
    short = await link(database, "https://s.shopee.tw/abc", kind="short", state="resolved", leads_to=item)
    for place, amount in enumerate(PRICES):
        at = now - timedelta(days=5 * (len(PRICES) - place))
        most = Decimal(amount) + 40 if 3 <= place < 6 else None
        await offer(database, kettle, amount, at=at, last_seen_at=at + timedelta(days=4), amount_max=most)
    doubted = now - timedelta(days=22)
    await offer(database, kettle, "2.19", at=doubted, doubt="a hundredth of the last")
    posts = [_post(now - timedelta(days=days), place) for place, days in enumerate((70, 52, 41, 40.5, 40, 31, 18, 3))]
    await tell(app, *posts)
    for place, each in enumerate(posts):
        where = "quoted" if each.quoted else "text"
        await mention(database, (item, short)[place % 2], each.id, url="https://s.shopee.tw/abc", place=where)
    await tell(app, Missing(platform=X, what="post", id=posts[6].id, reason="gone"))
    await _on_threads(app, short)
    plain = await _others(app, posts)
    return Promoted(kettle=kettle, plain=plain, first=posts[0].id, single=posts[7].id)


def _post(at: object, place: int) -> Post:
    number = id_at(at, place)  # type: ignore[arg-type]
    return Post(
        platform=X,
        id=number,
        author_id=BEA if place in (3, 5) else ANN,
        text=SAID[place % len(SAID)],
        created_at=moment_of(number),
        conversation_id=number,
        reposted=Reference(id=PostId(9), text=SAID[0]) if place == 5 else None,
        quoted=Reference(id=PostId(8), text=SAID[1]) if place == 1 else None,
        raw=b"{}",
    )


async def _on_threads(app: App, short: int) -> None:
    told = Post(
        platform=THREADS,
        id=THREADS_ID,
        author_id=CAT,
        text="Found on Threads: the kettle again",
        url="https://www.threads.com/@cat.shops/post/abc",
        created_at=app.database.clock.now() - timedelta(days=12),
        raw=b"{}",
    )
    await tell(app, told)
    await mention(app.database, short, THREADS_ID, platform=THREADS, place="attachment")


async def _others(app: App, posts: list[Post]) -> int:
    """Another that is gone, one in another currency, and one without a price."""
    database, now = app.database, app.database.clock.now()
    mug = await product(database, "5", platform="ebay", title="Mug", gone_at=now - timedelta(days=2))
    scale = await product(database, "6", platform="web", title="Coffee scale with a very long name " * 3)
    plain = await product(database, "7", platform="taobao", title=None)
    for place, (number, amounts, currency) in enumerate(
        ((mug, ("12.50", "11.00", "14.75"), "USD"), (scale, ("1200", "1100", "990"), "TWD"), (plain, (), "TWD"))
    ):
        named = await link(database, f"https://shop.example/{number}", product_id=number, state="crawled")
        await mention(database, named, posts[place].id, nr=5)
        for day, amount in enumerate(amounts):
            at = now - timedelta(days=60 - 15 * day)
            await offer(database, number, amount, at=at, last_seen_at=at + timedelta(days=9), currency=currency)
    return plain
