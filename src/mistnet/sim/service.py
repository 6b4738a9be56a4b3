"""The protocol around the endpoints: keys, rate limits, credits and faults."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import parse_qsl

from mistnet.sim.clock import to_ms
from mistnet.sim.endpoints import Endpoints, Reply, SimBadRequest
from mistnet.sim.faults import BODY_FAULTS, REFUSALS, UNBELIEVABLE, Decision, Faults, SimFault, spoil
from mistnet.sim.ledger import FREE_REFUSAL, MINIMUM, PAID_REFUSAL, Key, SimKeyBalance, SimLedger, Tier
from mistnet.sim.render import SimListing
from mistnet.sim.users import dump
from mistnet.sim.world import World

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
class Stats:
    """Requests and their costs since the start or the last reset."""

    calls: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    credits: Counter[str] = field(default_factory=Counter)
    credits_by_endpoint: Counter[str] = field(default_factory=Counter)
    spoiled: list[str] = field(default_factory=list)  # ids of posts that were returned malformed
    pages: Counter[str] = field(default_factory=Counter)  # how often each request got a correct page


class XService:
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
        self.world = world
        self.now = now
        self.faults = faults or Faults()
        self.ledger = SimLedger(list(keys))
        self.stats = Stats()
        self.endpoints = Endpoints(world)
        self._routes = self.endpoints.routes()
        self._sleep = sleep
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
        balance = self._balance_of(method, headers)
        now_ms = to_ms(self.now())
        if isinstance(balance, SimAnswer):
            answer = balance
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

    def _balance_of(self, method: str, headers: Mapping[str, str]) -> SimKeyBalance | SimAnswer:
        key = next((value for name, value in headers.items() if name.lower() == "x-api-key"), "")
        if not key:
            if method == "OPTIONS":
                return _refusal(401, "Unauthorized", "Missing API key.Please add x-api-key in header")
            return _refusal(403, "Forbidden", KEY_MISSING)
        return self.ledger.balances.get(key) or _refusal(401, "Unauthorized", "API key is invalid")

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
        decision = self.faults.decide(question)
        if decision.latency_seconds > 0:
            await self._sleep(decision.latency_seconds)
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

    def _note(self, question: str, fault: SimFault | None) -> None:
        if fault:
            self.stats.faults[fault] += 1
        # Without faults nothing needs to be remembered of each request.
        if not self.faults.quiet:
            self.faults.answered(question, fault)

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
