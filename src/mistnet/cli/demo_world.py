"""The demo's world: called without a network, and compared with the database at the end."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import urlencode, urlsplit

from mistnet.app import App
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered, Unreached
from mistnet.shops.store.mentions import MentionPages
from mistnet.shops.store.product_pages import ProductFilter, ProductPages
from mistnet.sim.clock import SimClock, to_ms
from mistnet.sim.people import SimAccountState
from mistnet.sim.server import Box, pack
from mistnet.sim.service import Key, NeverAnswers, NeverConnects, Tier, XService
from mistnet.sim.shelf import PRICE_DAYS, SHELF, Fate, SimProduct, thing_behind
from mistnet.sim.shops import ROUGH, ShopService
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import AccountProgress
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.posts import stored_posts
from mistnet.social.store.tracking import TrackingStore
from mistnet.sources.web.port import Readable, SafeUrl, WebAnswer

_KEY: Final = "sim-key"
_PAGE: Final = 500
UNKNOWN_HANDLE: Final = "nobody_is_here"
_CREDITS: Final = 10**12
_PRICE_SECONDS: Final = 15.0
"""How long a price stays once time passes: as long as the demo waits between two visits of a shop."""
_UNSEEN: Final = (SimAccountState.PROTECTED, SimAccountState.SUSPENDED)


class WorldTransport:
    """Calls the simulated X in this process. A silent or cut connection raises `Unanswered`."""

    def __init__(self, service: XService) -> None:
        self._service = service

    async def send(self, request: HttpRequest) -> HttpAnswer:
        try:
            answer = await self._service.handle("GET", request.path, urlencode(request.query), request.headers)
        except NeverConnects:
            raise Unreached("the connection was refused") from None
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        if answer.cut:
            raise Unanswered("the answer was cut short")
        return HttpAnswer(status=answer.status, headers=answer.headers, body=answer.body)


class ShopTransport:
    """Calls the simulated shops in this process. A silent or cut connection raises `Unanswered`."""

    def __init__(self, shops: ShopService) -> None:
        self._shops = shops

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        asked = urlsplit(target.url)
        try:
            answer = self._shops.handle(target.host, asked.path, asked.query, headers)
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        if answer.cut:
            raise Unanswered("the answer was cut short")
        unread = readable(answer.status, answer.headers)
        return WebAnswer(
            status=answer.status, headers=answer.headers, body=b"" if unread else answer.body, unread=unread
        )


class DemoWorld:
    """A world whose time stands still until `let_time_pass`."""

    def __init__(self, *, seed: int, size: str, faults: str, latency_seconds: tuple[float, float]) -> None:
        key = Key(name=_KEY, tier=Tier.UNLIMITED, recharge_credits=_CREDITS)
        self._box: Box = pack(seed=seed, size=size, faults=faults, latency_seconds=latency_seconds, key=key)
        self.key = _KEY
        self.clock = self._box.clock
        self.transport = WorldTransport(self._box.service)
        troubles = None if faults == "none" else ROUGH
        self._shops = ShopService(self.clock.now, seed=seed, faults=troubles)
        self.web = ShopTransport(self._shops)
        self._truth = self._box.truth
        self.open_handles: Sequence[str] = self._box.handles
        now_ms, stars = to_ms(self.clock.now()), self._box.service.world.stars
        # One account of each sort that cannot be collected.
        unseen = [next(star for star in stars if star.state_at(now_ms) is state).handle_at(now_ms) for state in _UNSEEN]
        self.handles: Sequence[str] = [*self.open_handles, *unseen, UNKNOWN_HANDLE]

    def let_time_pass(self, speed: float) -> None:
        """Let time pass at this speed. Shops are faster, so that prices change meanwhile."""
        begun = self.clock.now()
        self.clock = SimClock(begun, speed=speed)
        self._box.service.now = self.clock.now
        self._shops.now = SimClock(begun, speed=max(speed, PRICE_DAYS * 86_400 / _PRICE_SECONDS)).now

    async def disagreements(self, app: App) -> list[str]:
        """What the world has and the database lacks, in words. Empty: everything was collected."""
        progress = {each.user_id: each for each in await Coverage(app.database).accounts()}
        wrong = [problem for handle in self.handles for problem in self._account(handle, progress)]
        store = TrackingStore(app.database, app.job_writer)
        suggestions = {each.handle: each for each in await store.suggestions(live_only=False)}
        for handle in self.handles:
            truth = self._truth.account(handle, self.clock.now())
            seen = truth is not None and truth.state in (SimAccountState.ACTIVE, SimAccountState.PROTECTED)
            outcome = suggestions[handle].outcome if handle in suggestions else None
            if outcome != ("accepted" if seen else "refused"):
                wrong.append(f"the suggestion of @{handle} is {outcome or 'still open'}")
        linked: defaultdict[SimProduct, set[int]] = defaultdict(set)
        for handle in self.open_handles:
            truth = self._truth.account(handle, self.clock.now())
            if truth is None:
                raise LookupError(f"the world has no @{handle}")
            wrong += await _missing(app, f"posts of @{handle}", {*truth.search, *truth.retweets})
            for post_id, posted in self._truth.links(truth.search):
                thing = thing_behind(posted)
                if thing and thing.fate is Fate.SALE:
                    linked[thing].add(post_id)
        ancestors = self._truth.missing_ancestors(self.open_handles, self.clock.now())
        wrong += await _missing(app, "posts that were answered", ancestors)
        return wrong + await _shop_disagreements(app, linked, self.clock.now())

    def _account(self, handle: str, progress: Mapping[UserId, AccountProgress]) -> Iterator[str]:
        truth = self._truth.account(handle, self.clock.now())
        found = progress.get(UserId(truth.user_id)) if truth else None
        match truth.state if truth else None:
            case SimAccountState.ACTIVE if truth and found:
                if not found.backfilled_at or not found.reposts_backfilled_at:
                    yield f"@{handle} is not backfilled"
                ends = (min(truth.search, default=None), max(truth.search, default=None))
                known = (found.oldest_post_id, found.newest_post_id, found.newest_repost_id)
                if known != (*ends, max(truth.retweets, default=None)):
                    yield f"@{handle}: the boundaries are not those of the world"
            case SimAccountState.PROTECTED if found:
                if found.state is not AccountState.PROTECTED:
                    yield f"@{handle} is {found.state}, not protected"
            case SimAccountState.ACTIVE | SimAccountState.PROTECTED:
                yield f"@{handle} is not tracked"
            case _ if found:
                yield f"@{handle} is tracked, though it cannot be seen"


async def _missing(app: App, what: str, wanted: set[int]) -> list[str]:
    ids = {PostId(each) for each in wanted}
    lost = ids - await stored_posts(app.database, X, ids)
    return [f"{len(lost):,} of {len(ids):,} {what} are missing, first {min(lost)}"] if lost else []


async def _shop_disagreements(app: App, linked: Mapping[SimProduct, set[int]], at: datetime) -> list[str]:
    """Linked products that are not stored, have another price, or lack some of their posts, in words."""
    page = await ProductPages(app.database).list(ProductFilter(limit=len(SHELF)))
    found = {product.url: product for product in page.items}
    mentions, wrong = MentionPages(app.database), []
    for thing, post_ids in linked.items():
        product = found.get(thing.canonical)
        if product is None:
            wrong.append(f"{thing.canonical} is linked, and no product of it is stored")
            continue
        if (product.amount, product.currency) != (thing.price(at), thing.currency):
            asks = f"{thing.currency} {thing.price(at)}, not {product.currency} {product.amount}"
            wrong.append(f"{thing.canonical} costs {asks}")
        lost = {PostId(each) for each in post_ids}
        reach, before = await mentions.reach_of_product(product.id), None
        while True:
            posts = await mentions.page(reach, before=before, limit=_PAGE)
            lost -= {each.post_id for each in posts.items}
            if (before := posts.next) is None:
                break
        if lost:
            wrong.append(f"{len(lost):,} posts that link {thing.canonical} are not stored with it, first {min(lost)}")
    return wrong
