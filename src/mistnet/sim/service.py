"""The protocol around the endpoints: API keys with their credits and rate limits, and faults."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar
from urllib.parse import parse_qsl

from mistnet.sim.clock import Draw, mix, to_ms
from mistnet.sim.endpoints import MINIMUM, Endpoints, Reply, SimBadRequest, SimListing
from mistnet.sim.faults import BODY_FAULTS, REFUSALS, UNBELIEVABLE, Decision, Faults, SimFault, spoil
from mistnet.sim.users import dump
from mistnet.sim.world import World

FREE_SPACING_MS = 5_000
PAID_PER_SECOND = 20
# Upstream shows spent credits late: what compares bills must wait for them.
LAG_MS = (20_000, 60_000)
FREE_REFUSAL = "For free-tier users, the QPS limit is one request every 5 seconds."
PAID_REFUSAL = "Too many requests, please slow down."


class Tier(StrEnum):
    FREE = "free"
    PAID = "paid"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key. Bonus credits are spent first."""

    name: str
    tier: Tier = Tier.PAID
    recharge_credits: int = 0
    bonus_credits: int = 0
    per_second: int = PAID_PER_SECOND


@dataclass(slots=True)
class SimKeyBalance:
    """The credits and calls of one key. The shown balance lags behind."""

    key: Key
    granted: int
    spent: int = 0
    charges: int = 0
    settled: int = 0
    unsettled: Counter[int] = field(default_factory=Counter)  # credits by the second in which they appear
    asked_ms: deque[int] = field(default_factory=deque)

    @property
    def left(self) -> int:
        return self.granted - self.spent


class SimLedger:
    def __init__(self, keys: list[Key]) -> None:
        self.balances = {key.name: SimKeyBalance(key, key.recharge_credits + key.bonus_credits) for key in keys}

    def admit(self, balance: SimKeyBalance, now_ms: int) -> bool:
        """Whether the rate limit allows a call now. If so, it is counted."""
        most, window_ms = balance.key.per_second, 1_000
        match balance.key.tier:
            case Tier.UNLIMITED:
                return True
            case Tier.FREE:
                most, window_ms = 1, FREE_SPACING_MS
            case Tier.PAID:
                pass
        while balance.asked_ms and balance.asked_ms[0] <= now_ms - window_ms:
            balance.asked_ms.popleft()
        if len(balance.asked_ms) >= most:
            return False
        balance.asked_ms.append(now_ms)
        return True

    def charge(self, balance: SimKeyBalance, credits_due: int, now_ms: int) -> None:
        if credits_due <= 0:
            return
        balance.charges += 1
        balance.spent += credits_due
        low, high = LAG_MS
        shows_ms = now_ms + low + mix(Draw.LAG, balance.charges) % (high - low)
        balance.unsettled[shows_ms // 1000] += credits_due
        # The balance may never be asked for, so that it is settled here too.
        if len(balance.unsettled) > 10_000:
            self._settle(balance, now_ms)

    def shown_balance(self, balance: SimKeyBalance, now_ms: int) -> tuple[int, int]:
        """Recharge and bonus credits as the balance endpoint shows them."""
        self._settle(balance, now_ms)
        shown = max(balance.granted - balance.settled, 0)
        bonus = min(max(balance.key.bonus_credits - balance.settled, 0), shown)
        return shown - bonus, bonus

    def grant(self, name: str, credits_left: int) -> None:
        """Set the credits that a key has left, effective at once."""
        balance = self.balances[name]
        balance.granted = credits_left + balance.spent
        balance.settled = balance.spent
        balance.unsettled.clear()

    def _settle(self, balance: SimKeyBalance, now_ms: int) -> None:
        for second in [second for second in balance.unsettled if second * 1000 <= now_ms]:
            balance.settled += balance.unsettled.pop(second)


BALANCE = "/oapi/my/info"
KEY_MISSING = "API key required. Please include x-api-key in your request header..."
DEFAULT_KEY = Key(name="sim-key", recharge_credits=100_000_000)


class NeverAnswers(Exception):
    """No answer. The transport hangs or raises its own timeout."""


class NeverConnects(NeverAnswers):
    """The connection is refused: the request does not arrive and is not billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimAnswer:
    """`cut`: the body is shorter than its Content-Length."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False


def json_answer(status: int, value: object, **headers: str) -> SimAnswer:
    return answer_with(status, dump(value).encode(), **headers)


def answer_with(status: int, body: bytes, kind: str = "application/json", **headers: str) -> SimAnswer:
    described = {"content-type": kind, "content-length": str(len(body))}
    return SimAnswer(status=status, headers=described | headers, body=body)


def damage(answer: SimAnswer, fault: SimFault | None) -> SimAnswer:
    """Apply a fault of the body. The length stays that of the whole body if it is cut."""
    body = answer.body
    match fault:
        case SimFault.TIMEOUT:
            raise NeverAnswers
        case SimFault.CUT_BODY:
            return replace(answer, body=body[: len(body) // 2], cut=True)
        case SimFault.BROKEN_JSON:
            broken = body[: len(body) * 3 // 4] + b"<!-- -->"
            return replace(answer, headers={**answer.headers, "content-length": str(len(broken))}, body=broken)
        case _:
            return answer


BAD_GATEWAY = answer_with(
    502,
    b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>",
    "text/html",
)


@dataclass
class ServiceStats:
    """Requests and injected faults since the start or the last reset."""

    calls: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    spoiled: list[str] = field(default_factory=list)  # ids of posts that were returned malformed


@dataclass
class Stats(ServiceStats):
    """The same with what requests cost."""

    credits: Counter[str] = field(default_factory=Counter)
    credits_by_endpoint: Counter[str] = field(default_factory=Counter)
    pages: Counter[str] = field(default_factory=Counter)  # how often each request got a correct page


S = TypeVar("S", bound=ServiceStats)


class Unreliable(Generic[S]):
    """A service with faults on demand, which it counts."""

    def __init__(self, stats: S, faults: Faults | None, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.stats = stats
        self.faults = faults or Faults()
        self._sleep = sleep

    async def _decide(self, question: str) -> Decision:
        decision = self.faults.decide(question)
        if decision.latency_seconds > 0:
            await self._sleep(decision.latency_seconds)
        return decision

    def _note(self, question: str, fault: SimFault | None) -> None:
        if fault:
            self.stats.faults[fault] += 1
        # Without faults nothing needs to be remembered of each request.
        if not self.faults.quiet:
            self.faults.answered(question, fault)


class XService(Unreliable[Stats]):
    def __init__(
        self,
        world: World,
        now: Callable[[], datetime],
        *,
        keys: Iterable[Key] = (DEFAULT_KEY,),
        faults: Faults | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        bill_failures: bool = False,
    ) -> None:
        super().__init__(Stats(), faults, sleep)
        self.world = world
        self.now = now
        self.ledger = SimLedger(list(keys))
        self.endpoints = Endpoints(world)
        self._routes = self.endpoints.routes()
        self._failure_credits = MINIMUM if bill_failures else 0

    async def handle(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        body: bytes = b"",  # noqa: ARG002 - part of a request, though no endpoint reads it
    ) -> SimAnswer:
        """Answer one request, or raise NeverAnswers."""
        key = next((value for name, value in headers.items() if name.lower() == "x-api-key"), "")
        balance, now_ms = self.ledger.balances.get(key), to_ms(self.now())
        if not key and method == "OPTIONS":
            answer = _refusal(401, "Unauthorized", "Missing API key.Please add x-api-key in header")
        elif not key:
            answer = _refusal(403, "Forbidden", KEY_MISSING)
        elif balance is None:
            answer = _refusal(401, "Unauthorized", "API key is invalid")
        # The rate comes before the path, so that wrong requests count too.
        elif not self.ledger.admit(balance, now_ms):
            told = FREE_REFUSAL if balance.key.tier is Tier.FREE else PAID_REFUSAL
            answer = self._failed(balance, path, _refusal(429, "Too Many Requests", told), now_ms)
        elif path == BALANCE:
            self.stats.calls[BALANCE] += 1
            recharge, bonus = self.ledger.shown_balance(balance, now_ms)
            left = {"recharge_credits": recharge, "total_bonus_credits": bonus}
            answer = json_answer(200, left) if method == "GET" else json_answer(405, {"detail": "Method Not Allowed"})
        else:
            answer = await self._dispatch(method, path, query, balance, now_ms)
        self.stats.statuses[answer.status] += 1
        return answer

    def warm(self, handles: Iterable[str]) -> int:
        """Render these accounts' posts in advance; returns how many."""
        now_ms = to_ms(self.now())
        written = 0
        for handle in handles:
            person = self.world.holder(handle, now_ms)
            if person is None:
                continue
            timeline = self.world.timeline(person.index, now_ms)
            for place in range(timeline.until(now_ms)):
                self.endpoints.renderer.listed(person.index, timeline.ids[place], timeline.marks[place], now_ms)
                written += 1
        return written

    async def _dispatch(self, method: str, path: str, query: str, balance: SimKeyBalance, now_ms: int) -> SimAnswer:
        params, answer = dict(parse_qsl(query, keep_blank_values=True)), self._routes.get(path)
        if answer is None:
            return self._failed(balance, path, json_answer(404, {"detail": "Not Found"}), now_ms)
        self.stats.calls[path] += 1
        if method != "GET":
            return self._failed(balance, path, json_answer(405, {"detail": "Method Not Allowed"}), now_ms)
        if balance.left < MINIMUM:
            return _refusal(402, "Unauthorized", "Credits is not enough.Please recharge")
        question = f"{path}?{query}"
        decision = await self._decide(question)
        if decision.fault in REFUSALS:
            self._note(question, decision.fault)
            return self._failed(balance, path, _faulty_refusal(decision), now_ms)
        try:
            reply = answer(params, now_ms)
        except SimBadRequest as refused:
            return self._failed(balance, path, json_answer(400, {"detail": str(refused)}), now_ms)
        fault = self._spoil(reply, question, decision)
        self._charge(balance, path, reply.credits_due, now_ms)
        return damage(answer_with(200, reply.body() if isinstance(reply, SimListing) else reply.body), fault)

    def _spoil(self, reply: Reply, question: str, decision: Decision) -> SimFault | None:
        """Apply the fault and count it; None if it does not apply to this answer."""
        fault = decision.fault
        if fault is not None and fault not in BODY_FAULTS:
            fault = fault if isinstance(reply, SimListing) and spoil(reply, fault, decision.luck) else None
        self._note(question, fault)
        if isinstance(reply, SimListing):
            self.stats.spoiled += reply.spoiled
            if reply.records and fault not in UNBELIEVABLE:
                self.stats.pages[question] += 1
        return fault

    def _failed(self, balance: SimKeyBalance, endpoint: str, answer: SimAnswer, now_ms: int) -> SimAnswer:
        self._charge(balance, endpoint, self._failure_credits, now_ms)
        return answer

    def _charge(self, balance: SimKeyBalance, endpoint: str, credits_due: int, now_ms: int) -> None:
        self.ledger.charge(balance, credits_due, now_ms)
        self.stats.credits[balance.key.name] += credits_due
        self.stats.credits_by_endpoint[endpoint] += credits_due


def _faulty_refusal(decision: Decision) -> SimAnswer:
    match decision.fault:
        case SimFault.RATE_LIMITED:
            return _refusal(429, "Too Many Requests", PAID_REFUSAL)
        case SimFault.RATE_LIMITED_WITH_WAIT:
            return _refusal(429, "Too Many Requests", PAID_REFUSAL, **{"retry-after": str(1 + decision.luck % 10)})
        case SimFault.CONNECTION_REFUSED:
            raise NeverConnects
        case SimFault.KEY_REFUSED:
            return _refusal(403, "Forbidden", KEY_MISSING)
        case SimFault.SERVER_ERROR:
            return json_answer((500, 502, 503)[decision.luck % 3], {"message": "Internal server error"})
        case _:
            return BAD_GATEWAY


def _refusal(status: int, error: str, message: str, **headers: str) -> SimAnswer:
    return json_answer(status, {"error": error, "message": message}, **headers)
