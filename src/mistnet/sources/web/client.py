"""Fetch a page: follow redirects, check each URL, and respect robots.txt, the host's delay and the cache."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from mistnet.governor.errors import RateLimited, SourceDown
from mistnet.governor.model import CallPurpose, Gate
from mistnet.kit.clock import Clock
from mistnet.kit.transport import Unanswered, retry_after
from mistnet.queue.errors import NotNow
from mistnet.shops.model import AnswerBook, CachedAnswer, CrawlRefused, Hop, HostBook, PageVisit
from mistnet.shops.shop import WEB_LANE
from mistnet.sources.web.port import PORTS, SafeUrl, WebAnswer, WebTransport, parse_safe_url, resolve_redirect

if TYPE_CHECKING:
    from protego import Protego


# RFC 9309: a cached robots.txt should not be used for longer than a day.
REMEMBERED: Final = timedelta(hours=24)
# In memory for a shorter time: another worker may have fetched a newer one.
_HELD: Final = timedelta(hours=1)
_MOST_RULES: Final = 1_000
# RFC 9309 requires at least 500 KiB to be read.
_LARGEST: Final = 512 * 1024
_SLOWEST: Final = 60.0
_ROBOTS_OK: Final = range(200, 300)


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """What a host's robots.txt says, and how long that is valid."""

    rules: Protego
    until: datetime

    def allow(self, url: str, agent: str) -> bool:
        return bool(self.rules.can_fetch(url, agent))

    def delay(self, agent: str) -> float:
        """The seconds between visits that the host asks for, at most a minute."""
        rate = self.rules.request_rate(agent)
        asked = [self.rules.crawl_delay(agent) or 0.0, rate.seconds / rate.requests if rate and rate.requests else 0.0]
        return min(float(max(asked)), _SLOWEST)


class Robots:
    """The rules of each host, fetched once a day."""

    def __init__(self, book: AnswerBook, clock: Clock, fetch: Callable[[SafeUrl, str], Awaitable[WebAnswer]]) -> None:
        self._book = book
        self._clock = clock
        self._fetch = fetch
        self._held: dict[str, Manners] = {}

    async def manners(self, target: SafeUrl, lane: str) -> Manners:
        """From memory, from the shared cache, or from the host. Raises SourceDown if the host does not return them."""
        now = self._clock.now()
        held = self._held.get(target.origin)
        if held is not None and held.until > now:
            return held
        stored = await self._book.get(_key(target))
        if stored is None or stored.fresh_until <= now:
            answer = await self._fetch(target, lane)
            stored = CachedAnswer(
                key=_key(target),
                source=lane,
                stored_at=now,
                fresh_until=now + REMEMBERED,
                status=answer.status,
                body=answer.body[:_LARGEST] if answer.status in _ROBOTS_OK else b"",
            )
            await self._book.put(stored)
        from protego import Protego  # noqa: PLC0415 (slow to load; only workers that fetch pages need it)

        # A host without a robots.txt allows everything.
        text = stored.body.decode("utf-8", "replace") if stored.status in _ROBOTS_OK else ""
        manners = Manners(rules=Protego.parse(text), until=min(stored.fresh_until, now + _HELD))
        if len(self._held) >= _MOST_RULES:
            self._held.clear()
        self._held[target.origin] = manners
        return manners


def _key(target: SafeUrl) -> str:
    return f"robots {target.origin}"


_KEPT: Final = ("content-type", "etag", "last-modified")
_LONGEST_KEY: Final = 1_000
_OK: Final = 200


def key_of(url: str) -> str:
    return f"GET {url}" if len(url) <= _LONGEST_KEY else f"GET sha256:{hashlib.sha256(url.encode()).hexdigest()}"


def conditions(stored: CachedAnswer | None) -> dict[str, str]:
    """Headers that let the server say that nothing changed."""
    if stored is None:
        return {}
    asked = {"If-None-Match": stored.headers.get("etag"), "If-Modified-Since": stored.headers.get("last-modified")}
    return {name: value for name, value in asked.items() if value}


def answer_to_store(answer: WebAnswer, url: str, *, lane: str, now: datetime, ttl: timedelta) -> CachedAnswer | None:
    """The answer to store, or None if its headers forbid that or it is not a complete page."""
    cache_control = answer.headers.get("cache-control", "").lower()
    varies = answer.headers.get("vary", "").strip() == "*"
    if answer.status != _OK or answer.unread or "no-store" in cache_control or varies:
        return None
    return CachedAnswer(
        key=key_of(url),
        source=lane,
        stored_at=now,
        fresh_until=now + ttl,
        headers={name: answer.headers[name] for name in _KEPT if name in answer.headers},
        body=answer.body,
    )


_MOST_TURNS: Final = 10_000


class Turns:
    """Spaces visits to a host, for all workers. Refused visits get successive times, not all the same one."""

    def __init__(self, book: HostBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._queued_until: dict[str, datetime] = {}

    async def take(self, host: str, delay: float) -> None:
        """Raises NotNow with the time to come back if it is not our turn."""
        if delay <= 0:
            return
        free_at = await self._book.claim(host, now=self._clock.now(), delay=delay)
        if free_at is None:
            return
        # Bounded, because the open web has any number of hosts.
        if len(self._queued_until) > _MOST_TURNS:
            self._queued_until.clear()
        last = self._queued_until.get(host)
        until = last + timedelta(seconds=delay) if last is not None and last >= free_at else free_at
        self._queued_until[host] = until
        raise NotNow(until, f"{host} is visited every {delay:g} s")

    async def leave_alone(self, host: str, until: datetime) -> None:
        await self._book.leave_alone(host, until=until)


T = TypeVar("T")

NOT_MODIFIED: Final = 304
TOO_MANY: Final = 429
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
READ_TYPES: Final = ("text/html", "application/xhtml", "application/json", "text/plain", "text/json", "text/xml")
ROBOTS_ENDPOINT: Final = "robots.txt"
_SHORTEST_WAIT: Final = timedelta(seconds=30)
_LONGEST_WAIT: Final = timedelta(hours=1)
_HOST_REST: Final = timedelta(minutes=1)
_SERVER_FAULTS: Final = range(500, 600)
# RFC 9309 asks to follow at least five redirects.
_MOST_ROBOTS_HOPS: Final = 5


class WebRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of visits. `robots` names the lanes that obey robots.txt; errors name the setting `robots_key`."""

    agent: str = "mistnet"
    ports: Collection[int] = PORTS
    trusted: Collection[str] = ()
    most_hops: int = 5
    host_delay: float = 1.0
    robots: Collection[str] = (WEB_LANE,)
    robots_key: str = "crawl_robots"
    cache_ttl: timedelta | None = None
    headers: Mapping[str, str] = {}


class WebClient:
    """Fetches pages and raises typed errors. It does not know the jobs that it is called for."""

    def __init__(
        self,
        transport: WebTransport,
        *,
        gates: Mapping[str, Gate],
        hosts: HostBook,
        answers: AnswerBook,
        clock: Clock,
        rules: WebRules,
    ) -> None:
        self._transport = transport
        self._gates = gates
        self._turns = Turns(hosts, clock)
        self._answers = answers
        self._clock = clock
        self._rules = rules
        self._robots = Robots(answers, clock, self._fetch_robots)

    async def visit(
        self,
        url: str,
        *,
        lane: str,
        what: str,
        hop: Callable[[str, str], Hop],
        read: Callable[[PageVisit], Awaitable[T]],
        purpose: CallPurpose,
        fresh: bool = False,
    ) -> tuple[PageVisit, T]:
        """Follow redirects as far as `hop` and the settings allow."""
        begun, current, hops = time.perf_counter(), url, list[str]()
        while True:
            # Checked at every step: a redirect may lead to an address inside the network.
            target = parse_safe_url(current, ports=self._rules.ports, trusted=self._rules.trusted)
            seen = VisitStep(url=url, target=target, hops=tuple(hops), begun=begun, hop=hop, read=read, fresh=fresh)
            found = await self._step(seen, lane, what, purpose)
            if not isinstance(found, str):
                return found
            hops.append(current)
            if len(hops) > self._rules.most_hops:
                raise CrawlRefused(url, f"it redirects more than {self._rules.most_hops} times (`crawl_hops`)")
            current = found

    async def _step(self, seen: VisitStep[T], lane: str, what: str, purpose: CallPurpose) -> str | tuple[PageVisit, T]:
        """Fetch one URL: from the cache, or from its host when it is our turn."""
        stored = None
        if self._rules.cache_ttl and not seen.fresh:
            stored = await self._answers.get(key_of(seen.target.url))
        if stored is not None and stored.fresh_until > self._clock.now():
            return await seen.judge(_as_answer(stored), cached=True)
        # The host's turn comes before the gate: a visit that has to wait must not use up a slot of the lane.
        delay = self._rules.host_delay
        if lane in self._rules.robots:
            manners = await self._robots.manners(seen.target, lane)
            if not manners.allow(seen.target.url, self._rules.agent):
                why = f"its host's robots.txt asks visitors like us to stay away (`{self._rules.robots_key}`)"
                raise CrawlRefused(seen.target.url, why)
            delay = max(delay, manners.delay(self._rules.agent))
        await self._turns.take(seen.target.host, delay)
        answer, found = await self._governed(seen, lane, what, purpose, stored)
        if self._rules.cache_ttl and answer is not None:
            keeping = answer_to_store(
                answer, seen.target.url, lane=lane, now=self._clock.now(), ttl=self._rules.cache_ttl
            )
            if keeping is not None:
                await self._answers.put(keeping)
        return found

    async def _governed(
        self, seen: VisitStep[T], lane: str, what: str, purpose: CallPurpose, stored: CachedAnswer | None
    ) -> tuple[WebAnswer | None, str | tuple[PageVisit, T]]:
        """A shop's failure counts against its lane. On the open web it is the host's, which then gets a pause."""
        try:
            async with self._gates[lane].call(what, most=0, purpose=purpose) as call:
                try:
                    answer = await self._send(seen.target, lane, stored)
                    fresh = answer.status != NOT_MODIFIED
                    if not fresh and stored is not None:
                        until = self._clock.now() + (self._rules.cache_ttl or timedelta())
                        await self._answers.refresh(stored.key, fresh_until=until)
                        answer = _as_answer(stored)
                    found = await seen.judge(answer, cached=False)  # "not modified" is an answer of today
                except (SourceDown, RateLimited) as error:
                    if lane == WEB_LANE:
                        raise _HostTrouble(error) from error
                    raise
                call.settle(items=1, credits_due=0)
                return (answer if fresh else None), found
        except _HostTrouble as trouble:
            cause = trouble.error
            until = cause.until if isinstance(cause, RateLimited) else self._clock.now() + _HOST_REST
            await self._turns.leave_alone(seen.target.host, until)
            limited = isinstance(cause, RateLimited)
            raise (NotNow(until, f"{seen.target.host} asks us to wait") if limited else cause) from cause

    async def _send(self, target: SafeUrl, lane: str, stored: CachedAnswer | None) -> WebAnswer:
        headers = {**self._rules.headers, **conditions(stored)}
        try:
            answer = await self._transport.get(target, headers=headers, readable=worth_reading)
        except Unanswered as error:
            raise SourceDown(lane, str(error), host=target.host) from error
        if answer.status == TOO_MANY:
            now = self._clock.now()
            wait = retry_after(answer.headers, now, longest=_LONGEST_WAIT) or _SHORTEST_WAIT
            raise RateLimited(lane, now + max(wait, _SHORTEST_WAIT))
        if answer.status == NOT_MODIFIED and stored is None:
            problem = "it says that nothing changed, though that was not asked"
            raise SourceDown(lane, problem, status=answer.status, host=target.host)
        return answer

    async def _fetch_robots(self, target: SafeUrl, lane: str) -> WebAnswer:
        """Fetch robots.txt. A host that cannot return it is not visited now."""
        current = parse_safe_url(f"{target.origin}/robots.txt", ports=self._rules.ports, trusted=self._rules.trusted)
        for _ in range(_MOST_ROBOTS_HOPS):
            try:
                answer = await self._send_for_robots(current, lane)
            except Unanswered as error:
                raise await self._silent(target, lane, str(error)) from error
            location = answer.headers.get("location")
            if answer.status not in REDIRECTS or not location:
                break
            current = parse_safe_url(
                resolve_redirect(current.url, location), ports=self._rules.ports, trusted=self._rules.trusted
            )
        if _is_at_fault(answer):
            raise await self._silent(target, lane, f"status {answer.status}")
        return answer

    async def _send_for_robots(self, target: SafeUrl, lane: str) -> WebAnswer:
        """A shop whose robots.txt fails is down: raise the error inside the call, so that the governor counts it."""
        async with self._gates[lane].call(ROBOTS_ENDPOINT, most=0, purpose=CallPurpose()) as call:
            try:
                answer = await self._transport.get(target, headers={}, readable=worth_reading)
            except Unanswered as error:
                if lane == WEB_LANE:
                    raise
                raise SourceDown(lane, str(error), host=target.host) from error
            if lane != WEB_LANE and _is_at_fault(answer):
                problem = f"it does not say what its robots.txt allows: status {answer.status}"
                raise SourceDown(lane, problem, status=answer.status, host=target.host)
            call.settle(items=1, credits_due=0)
        return answer

    async def _silent(self, target: SafeUrl, lane: str, problem: str) -> SourceDown:
        await self._turns.leave_alone(target.host, self._clock.now() + _HOST_REST)
        return SourceDown(lane, f"it does not say what its robots.txt allows: {problem}", host=target.host)


class VisitStep(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One step of a visit: the URL, and how its answer is judged."""

    url: str
    target: SafeUrl
    hops: tuple[str, ...]
    begun: float
    hop: Callable[[str, str], Hop]
    read: Callable[[PageVisit], Awaitable[T]]
    fresh: bool = False

    async def judge(self, answer: WebAnswer, *, cached: bool) -> str | tuple[PageVisit, T]:
        """The next URL if the answer is a redirect to follow; otherwise the page and what was read from it."""
        location = answer.headers.get("location")
        if answer.status not in REDIRECTS or not location:
            return await self._read(answer, self.target.url, cached=cached)
        joined_url = resolve_redirect(self.target.url, location)
        match self.hop(self.target.url, joined_url):
            case Hop.FOLLOW:
                return joined_url
            case Hop.STOP:
                return await self._read(answer, joined_url, cached=cached)
            case Hop.REFUSE:
                raise CrawlRefused(self.url, f"it leads to {joined_url[:200]}, where nothing of it can be")

    async def _read(self, answer: WebAnswer, final_url: str, *, cached: bool) -> tuple[PageVisit, T]:
        visited = PageVisit(
            url=self.url,
            final_url=final_url,
            status=answer.status,
            headers=answer.headers,
            body=answer.body,
            seconds=time.perf_counter() - self.begun,
            hops=self.hops,
            unread=answer.unread,
            cached=cached,
        )
        return visited, await self.read(visited)


class _HostTrouble(Exception):
    """Carries a host's failure past the governor of the open web, which must not count it."""

    def __init__(self, error: SourceDown | RateLimited) -> None:
        super().__init__(str(error))
        self.error = error


def _is_at_fault(answer: WebAnswer) -> bool:
    return answer.status in _SERVER_FAULTS or answer.status == TOO_MANY


def worth_reading(status: int, headers: Mapping[str, str]) -> str | None:
    """Why a body is not read: it is a redirect, or of a type that cannot be read. None if it is read."""
    if status in REDIRECTS and "location" in headers:
        return "it leads on"
    kind = headers.get("content-type", "").strip().lower()
    if not kind or kind.startswith(READ_TYPES) or "+json" in kind or "javascript" in kind:
        return None
    return f"nothing here reads {kind.partition(';')[0][:60]}"


def _as_answer(stored: CachedAnswer) -> WebAnswer:
    return WebAnswer(status=stored.status, headers=stored.headers, body=stored.body)
