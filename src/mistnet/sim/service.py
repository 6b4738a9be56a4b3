"""The protocol around the endpoints: keys, rate limits, credits and faults."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl

from mistnet.sim.clock import to_ms
from mistnet.sim.endpoints import Endpoint, Endpoints, Reply, SimBadRequest
from mistnet.sim.faults import BODY_FAULTS, REFUSALS, UNBELIEVABLE, Decision, Faults, SimFault, spoil
from mistnet.sim.ledger import FREE_REFUSAL, MINIMUM, PAID_REFUSAL, Key, SimKeyBalance, SimLedger, Tier
from mistnet.sim.render import SimListing
from mistnet.sim.users import dump
from mistnet.sim.world import World

BALANCE = "/oapi/my/info"
ALIAS = "/twitter/user/"
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


@dataclass(slots=True)
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
        elif not self.ledger.admit(balance, now_ms):
            told = FREE_REFUSAL if balance.key.tier is Tier.FREE else PAID_REFUSAL
            answer = self._failed(balance, path, _refusal(429, "Too Many Requests", told), now_ms)
        elif path == BALANCE:
            answer = self._balance(method, balance, now_ms)
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
            timeline = self.world.timeline(person.index, now_ms) if person else None
            for place in range(timeline.until(now_ms) if timeline else 0):
                if person and timeline:
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
        endpoint = self._route(path)
        if endpoint is None:
            return self._failed(balance, path, _json(404, {"detail": "Not Found"}), now_ms)
        self.stats.calls[endpoint.name] += 1
        if method != "GET":
            return self._failed(balance, endpoint.name, _json(405, {"detail": "Method Not Allowed"}), now_ms)
        if balance.left < MINIMUM:
            return _refusal(402, "Unauthorized", "Credits is not enough.Please recharge")
        return await self._serve(endpoint, path, query, balance, now_ms)

    async def _serve(self, endpoint: Endpoint, path: str, query: str, balance: SimKeyBalance, now_ms: int) -> SimAnswer:
        question = f"{path}?{query}"
        decision = self.faults.decide(question)
        if decision.latency_seconds > 0:
            await self._sleep(decision.latency_seconds)
        if decision.fault in REFUSALS:
            self._note(question, decision.fault)
            return self._failed(balance, endpoint.name, _faulty_refusal(decision), now_ms)
        try:
            reply = endpoint.answer(self._params(path, query), now_ms)
        except SimBadRequest as refused:
            return self._failed(balance, endpoint.name, _json(400, {"detail": str(refused)}), now_ms)
        fault = self._spoil(reply, decision)
        self._note(question, fault)
        if isinstance(reply, SimListing) and reply.records and fault not in UNBELIEVABLE:
            self.stats.pages[question] += 1
        self._charge(balance, endpoint.name, reply.credits_due, now_ms)
        return _sent(reply.body() if isinstance(reply, SimListing) else reply.body, fault)

    def _route(self, path: str) -> Endpoint | None:
        """`/twitter/user/{username}` is an alias of the profile lookup."""
        found = self._routes.get(path)
        if found is None and path.startswith(ALIAS) and "/" not in path.removeprefix(ALIAS) and path != ALIAS:
            return self._routes["/twitter/user/info"]
        return found

    def _params(self, path: str, query: str) -> dict[str, str]:
        params = dict(parse_qsl(query, keep_blank_values=True))
        if path.startswith(ALIAS) and path not in self._routes:
            params["userName"] = path.removeprefix(ALIAS)
        return params

    def _spoil(self, reply: Reply, decision: Decision) -> SimFault | None:
        """The fault that was applied: not every fault applies to every answer."""
        fault = decision.fault
        if fault is None or fault in BODY_FAULTS:
            return fault
        if not isinstance(reply, SimListing):
            return None
        struck = spoil(reply, fault, decision.luck)
        self.stats.spoiled += reply.spoiled
        return fault if struck else None

    def _note(self, question: str, fault: SimFault | None) -> None:
        if fault:
            self.stats.faults[fault] += 1
        if not self.faults.quiet:
            self.faults.answered(question, fault)

    def _balance(self, method: str, balance: SimKeyBalance, now_ms: int) -> SimAnswer:
        self.stats.calls[BALANCE] += 1
        if method != "GET":
            return _json(405, {"detail": "Method Not Allowed"})
        recharge, bonus = self.ledger.shown_balance(balance, now_ms)
        return _json(200, {"recharge_credits": recharge, "total_bonus_credits": bonus})

    def _failed(self, balance: SimKeyBalance, endpoint: str, answer: SimAnswer, now_ms: int) -> SimAnswer:
        self._charge(balance, endpoint, self._failure_credits, now_ms)
        return answer

    def _charge(self, balance: SimKeyBalance, endpoint: str, credits_due: int, now_ms: int) -> None:
        self.ledger.charge(balance, credits_due, now_ms)
        self.stats.credits[balance.key.name] += credits_due
        self.stats.credits_by_endpoint[endpoint] += credits_due


def _sent(body: bytes, fault: SimFault | None) -> SimAnswer:
    match fault:
        case SimFault.TIMEOUT:
            raise NeverAnswers
        case SimFault.CUT_BODY:
            return SimAnswer(status=200, headers=_headers(len(body)), body=body[: len(body) // 2], cut=True)
        case SimFault.BROKEN_JSON:
            broken = body[: len(body) * 3 // 4] + b"<!-- -->"
            return SimAnswer(status=200, headers=_headers(len(broken)), body=broken)
        case _:
            return SimAnswer(status=200, headers=_headers(len(body)), body=body)


def _faulty_refusal(decision: Decision) -> SimAnswer:
    match decision.fault:
        case SimFault.RATE_LIMITED:
            return _refusal(429, "Too Many Requests", PAID_REFUSAL)
        case SimFault.RATE_LIMITED_WITH_WAIT:
            refused = _refusal(429, "Too Many Requests", PAID_REFUSAL)
            waits = {**refused.headers, "retry-after": str(1 + decision.luck % 10)}
            return SimAnswer(status=429, headers=waits, body=refused.body)
        case SimFault.CONNECTION_REFUSED:
            raise NeverConnects
        case SimFault.KEY_REFUSED:
            return _refusal(403, "Forbidden", KEY_MISSING)
        case SimFault.SERVER_ERROR:
            return _json((500, 502, 503)[decision.luck % 3], {"message": "Internal server error"})
        case _:
            page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
            return SimAnswer(status=502, headers={**_headers(len(page)), "content-type": "text/html"}, body=page)


def _refusal(status: int, error: str, message: str) -> SimAnswer:
    return _json(status, {"error": error, "message": message})


def _json(status: int, value: object) -> SimAnswer:
    body = dump(value).encode()
    return SimAnswer(status=status, headers=_headers(len(body)), body=body)


def _headers(length: int) -> dict[str, str]:
    return {"content-type": "application/json", "content-length": str(length)}
