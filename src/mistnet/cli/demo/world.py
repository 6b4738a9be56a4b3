"""The demo's world: asked without a network, and asked at the end whether all of it was collected."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from mistnet.app import App
from mistnet.cli.demo.command import ShopTransport, unlike_the_shops
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered, Unreached
from mistnet.sim.clock import SimClock, to_ms
from mistnet.sim.ledger import Key, Tier
from mistnet.sim.people import SimAccountState
from mistnet.sim.server import Box, pack
from mistnet.sim.service import NeverAnswers, NeverConnects, XService
from mistnet.sim.shelf import PRICE_DAYS, Fate, SimProduct, thing_behind
from mistnet.sim.shops import ROUGH, ShopService
from mistnet.sim.truth import AccountTruth
from mistnet.social.accounts import AccountState
from mistnet.social.coverage.model import AccountProgress
from mistnet.social.coverage.store import Coverage
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.stored_ids import stored_posts
from mistnet.social.store.tracking import TrackingStore

_KEY: Final = "sim-key"
NOBODY: Final = "nobody_is_here"
_CREDITS: Final = 10**12
_PRICE_SECONDS: Final = 15.0
"""How long a price stays once time passes: as long as the demo waits between two visits of a shop."""
_UNSEEN: Final = (SimAccountState.PROTECTED, SimAccountState.SUSPENDED)


class WorldTransport:
    """Calls the world in this process; what would be a silent or a cut connection is unanswered."""

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


class DemoWorld:
    """A world that stands still until time is let pass."""

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
        self.handles: Sequence[str] = [*self.open_handles, *self._unseen(), NOBODY]

    def _unseen(self) -> Iterator[str]:
        """One account of each sort that cannot be collected."""
        now_ms = to_ms(self.clock.now())
        for standing in _UNSEEN:
            stars = (star for star in self._box.service.world.stars if star.standing_at(now_ms) is standing)
            yield next(stars).handle_at(now_ms)

    def let_time_pass(self, speed: float) -> None:
        """So many simulated seconds in a second from now on; shops are faster, so that prices change meanwhile."""
        begun = self.clock.now()
        self.clock = SimClock(begun, speed=speed)
        self._box.service.now = self.clock.now
        self._shops.now = SimClock(begun, speed=max(speed, PRICE_DAYS * 86_400 / _PRICE_SECONDS)).now

    async def disagreements(self, app: App) -> list[str]:
        """Whatever the world knows and the database does not, in words. None: everything was collected."""
        progress = {each.user_id: each for each in await Coverage(app.database).accounts()}
        wrong = [problem for handle in self.handles for problem in self._account(handle, progress)]
        wrong += await self._refused(app)
        linked: defaultdict[SimProduct, set[int]] = defaultdict(set)
        for handle in self.open_handles:
            truth = self._known(handle)
            wrong += await _lacking(app, f"posts of @{handle}", {*truth.search, *truth.retweets})
            for post_id, posted in self._truth.links(truth.search):
                thing = thing_behind(posted)
                if thing and thing.fate is Fate.SALE:
                    linked[thing].add(post_id)
        ancestors = self._truth.missing_ancestors(self.open_handles, self.clock.now())
        wrong += await _lacking(app, "posts that were answered", ancestors)
        return wrong + await unlike_the_shops(app, linked, self.clock.now())

    def _account(self, handle: str, progress: Mapping[UserId, AccountProgress]) -> Iterator[str]:
        truth = self._truth.account(handle, self.clock.now())
        found = progress.get(UserId(truth.user_id)) if truth else None
        match truth.standing if truth else None:
            case SimAccountState.ACTIVE if truth and found:
                yield from _unlike(found, truth)
            case SimAccountState.PROTECTED if found:
                if found.state is not AccountState.PROTECTED:
                    yield f"@{handle} is {found.state}, not protected"
            case SimAccountState.ACTIVE | SimAccountState.PROTECTED:
                yield f"@{handle} is not tracked"
            case _ if found:
                yield f"@{handle} is tracked, though nobody can see it"

    async def _refused(self, app: App) -> list[str]:
        told = {
            each.handle: each for each in await TrackingStore(app.database, app.job_writer).suggestions(live_only=False)
        }
        wrong = []
        for handle in self.handles:
            truth = self._truth.account(handle, self.clock.now())
            seen = truth is not None and truth.standing in (SimAccountState.ACTIVE, SimAccountState.PROTECTED)
            outcome = told[handle].outcome if handle in told else None
            if outcome != ("accepted" if seen else "refused"):
                wrong.append(f"the suggestion of @{handle} is {outcome or 'still open'}")
        return wrong

    def _known(self, handle: str) -> AccountTruth:
        truth = self._truth.account(handle, self.clock.now())
        if truth is None:
            raise LookupError(f"the world has no @{handle}")
        return truth


def _unlike(found: AccountProgress, truth: AccountTruth) -> Iterator[str]:
    if not found.backfilled_at or not found.reposts_backfilled_at:
        yield f"@{truth.handle} is not backfilled"
    bounds = (found.oldest_post_id, found.newest_post_id, found.newest_repost_id)
    if bounds != (min(truth.search, default=None), max(truth.search, default=None), max(truth.retweets, default=None)):
        yield f"@{truth.handle}: the boundaries are not those of the world"


async def _lacking(app: App, what: str, wanted: set[int]) -> list[str]:
    ids = {PostId(each) for each in wanted}
    lost = ids - await stored_posts(app.database, X, ids)
    return [f"{len(lost):,} of {len(ids):,} {what} are missing, first {min(lost)}"] if lost else []
