"""The demo's shops: visited without a network, and asked at the end whether what posts link to was found in them."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from urllib.parse import urlsplit

from mistnet.app import App
from mistnet.domain.products import ProductId
from mistnet.domain.social import PostId
from mistnet.sim.service import NeverAnswers
from mistnet.sim.shelf import SHELF, Thing
from mistnet.sim.shops import ShopService
from mistnet.store.mention_pages import MentionPages
from mistnet.store.product_pages import ProductFilter, ProductPages
from mistnet.upstream.transport import Unanswered
from mistnet.upstream.web.doors import Door
from mistnet.upstream.web.port import Readable, WebAnswer

_PAGE = 500


class ShopTransport:
    """Calls the shops in this process; what would be a silent or a cut connection is unanswered."""

    def __init__(self, shops: ShopService) -> None:
        self._shops = shops

    async def get(self, door: Door, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        asked = urlsplit(door.url)
        try:
            answer = self._shops.handle(door.host, asked.path, asked.query, headers)
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        if answer.cut:
            raise Unanswered("the answer was cut short")
        unread = readable(answer.status, answer.headers)
        return WebAnswer(
            status=answer.status, headers=answer.headers, body=b"" if unread else answer.body, unread=unread
        )


async def unlike_the_shops(app: App, linked: Mapping[Thing, set[int]], at: datetime) -> list[str]:
    """What posts link to and is no product here, has another price, or lacks some of its posts, in words."""
    page = await ProductPages(app.database).list(ProductFilter(limit=len(SHELF)))
    found = {product.url: product for product in page.products}
    wrong = []
    for thing, post_ids in linked.items():
        product = found.get(thing.canonical)
        if product is None:
            wrong.append(f"{thing.canonical} is linked, and no product of it is stored")
            continue
        if (product.amount, product.currency) != (thing.price(at), thing.currency):
            asks = f"{thing.currency} {thing.price(at)}, not {product.currency} {product.amount}"
            wrong.append(f"{thing.canonical} costs {asks}")
        lost = {PostId(each) for each in post_ids} - {each async for each in _mentioned(app, product.id)}
        if lost:
            wrong.append(f"{len(lost):,} posts that link to {thing.canonical} are not told with it, first {min(lost)}")
    return wrong


async def _mentioned(app: App, product_id: ProductId) -> AsyncIterator[PostId]:
    mentions = MentionPages(app.database)
    reach, before = await mentions.reach_of_product(product_id), None
    while True:
        page = await mentions.page(reach, before=before, limit=_PAGE)
        for post in page.posts:
            yield post.post_id
        before = page.next
        if before is None:
            return
