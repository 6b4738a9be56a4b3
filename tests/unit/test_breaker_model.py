"""Governors of several processes against a plain model of a breaker, on one turned clock and one shared book."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from mistnet.governor.errors import BrokenAnswer, RateLimited, SourceDown
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernedCall, GovernorLimits
from mistnet.governor.model import CallPurpose, CallRecord, KeyLabel, KeyState, SourceName, SourceState
from mistnet.queue.errors import NotNow
from mistnet.social.errors import NotShown
from tests.examples import count_examples
from tests.support import TurnedClock

T = TypeVar("T")
SHOP, KEY = SourceName("shop"), KeyLabel("key")
FAILURES, COOLDOWN = 5, timedelta(minutes=5)
KNOWN_FOR = timedelta(seconds=1)
PROCESSES = 3


@dataclass
class SharedBook:
    """The port's book in memory: what one process changes all others see."""

    state: SourceState = field(default_factory=lambda: SourceState(name=SHOP))
    key: KeyState = field(default_factory=lambda: KeyState(source=SHOP, label=KEY))
    ledger: list[CallRecord] = field(default_factory=list)

    async def change(
        self,
        _source: SourceName,
        _label: KeyLabel,
        decide: Callable[[SourceState, KeyState], tuple[SourceState, KeyState, T]],
    ) -> T:
        self.state, self.key, decided = decide(self.state, self.key)
        return decided

    async def record(self, calls: Sequence[CallRecord]) -> None:
        self.ledger += calls

    async def another_works(self, _source: SourceName, _labels: Collection[KeyLabel], *, since: datetime) -> bool:
        assert since
        return False


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of what waits for nothing but the turned clock."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("it waits for something else")


@dataclass(eq=False)
class Call:
    process: int
    governed: GovernedCall
    is_probe: bool


class BreakerMachine(RuleBasedStateMachine):
    """The model: closed with a count, open until a time, or half-open with at most one call that tries."""

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.clock = TurnedClock()
        self.book = SharedBook()
        limits = GovernorLimits(rate_per_minute=6_000, burst=5, breaker_failures=FAILURES, breaker_cooldown=COOLDOWN)
        self.governors = [
            Governor(SHOP, {KEY: ""}, store=self.book, clock=self.clock, limits=limits, sleep=self.sleep)
            for _ in range(PROCESSES)
        ]
        self.opened_until: datetime | None = None
        self.opened_at: datetime | None = None
        self.streak = 0
        self.probe: Call | None = None
        self.made = 0

    async def sleep(self, seconds: float) -> None:
        self.clock.turn(seconds=seconds)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    @property
    def is_closed(self) -> bool:
        return self.opened_until is None

    @rule(seconds=st.sampled_from([0.1, 0.9, 5.0, 59.0, 61.0, 299.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        """While it does, every process looks after its probe, as it does in its background."""
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            self.clock.turn(seconds=min((until - self.now).total_seconds(), 20))
            for governor in self.governors:
                done(governor.keep_probe())

    @rule(target=calls, process=st.integers(0, PROCESSES - 1))
    def asks(self, process: int) -> Any:
        call = self._asked(process)
        return multiple() if call is None else call

    @rule(process=st.integers(0, PROCESSES - 1))
    @precondition(lambda self: self.is_closed)
    def breaks_down(self, process: int) -> None:
        """As many failures in a row as it takes."""
        while self.is_closed:
            call = self._asked(process)
            assert call is not None
            self._fail(call, SourceDown(SHOP, "503"))

    @rule(target=calls, process=st.integers(0, PROCESSES - 1))
    @precondition(lambda self: not self.is_closed)
    def asks_when_the_wait_is_over(self, process: int) -> Any:
        if self.opened_until is not None and self.opened_until > self.now:
            self.time_passes((self.opened_until - self.now).total_seconds())
        return self.asks(process)

    def _asked(self, process: int) -> Call | None:
        asked_at = self.now
        governed = self.governors[process].call("search", most=0, purpose=CallPurpose())
        try:
            done(governed.__aenter__())
        except NotNow as refused:
            self._turned_away(refused, asked_at)
            return None
        self.made += 1
        return self._admitted(Call(process, governed, governed.probe_until is not None))

    def _turned_away(self, refused: NotNow, asked_at: datetime) -> None:
        assert refused.until > asked_at
        assert not self.is_closed, "a closed breaker refuses no call at this rate"

    def _admitted(self, call: Call) -> Call:
        if self.is_closed:
            assert not call.is_probe
        elif call.is_probe:
            assert self.opened_until is not None
            assert self.opened_until <= self.now, "no call tries before the time is over"
            assert self.probe is None, "one call at a time tries"
            self.probe = call
        else:
            assert self.opened_at is not None
            assert self.now - self.opened_at <= KNOWN_FOR, "only who has not heard of it yet goes on, for a second"
        return call

    @rule(call=consumes(calls), broken=st.booleans())
    def fails(self, call: Call, broken: bool) -> None:
        self._fail(call, BrokenAnswer(SHOP, "search", "no JSON") if broken else SourceDown(SHOP, "503"))

    def _fail(self, call: Call, error: Exception) -> None:
        done(call.governed.__aexit__(type(error), error, None))
        self.streak += 1
        if call is self.probe or (self.is_closed and self.streak >= FAILURES):
            self.probe = None if call is self.probe else self.probe
            self.opened_until, self.opened_at = self.now + COOLDOWN, self.now
        assert self.book.state.last_failure_at == self.now

    @rule(call=consumes(calls), refusal=st.booleans())
    def answers(self, call: Call, refusal: bool) -> None:
        """What it cannot show is an answer too; it ends a probe, though it does not end a row of failures."""
        error = NotShown(SHOP, "a page", "it is gone", status=404) if refusal else None
        done(call.governed.__aexit__(type(error) if error else None, error, None))
        if call is self.probe:
            self.probe = self.opened_until = self.opened_at = None
            self.streak = 0
        elif self.is_closed and (not refusal or call.is_probe):
            assert self.book.state.failure_streak in (0, self.streak)  # its process may not have heard of failures
            self.streak = self.book.state.failure_streak

    @rule(call=consumes(calls), limited=st.booleans())
    def tells_nothing(self, call: Call, limited: bool) -> None:
        """Cut off, or told to come back later: neither well nor ill."""
        error = RateLimited(SHOP, self.now + timedelta(seconds=0.01)) if limited else GeneratorExit()
        done(call.governed.__aexit__(type(error), error, None))
        self.probe = None if call is self.probe else self.probe

    @rule()
    @precondition(lambda self: not self.is_closed)
    def is_closed_by_hand(self) -> None:
        """A probe that is on its way then decides nothing any more."""
        self.book.state = SourceState(name=SHOP)
        self.opened_until = self.opened_at = self.probe = None
        self.streak = 0

    @invariant()
    def the_shared_row_is_the_models(self) -> None:
        assert self.book.state.failure_streak == self.streak
        assert self.book.state.opened_until == self.opened_until

    @invariant()
    def a_probe_on_its_way_keeps_all_others_out(self) -> None:
        tried = self.book.state.probe_until
        assert (tried is not None and tried > self.now) == (self.probe is not None)

    def teardown(self) -> None:
        for governor in self.governors:
            done(governor.flush())
        assert len(self.book.ledger) <= self.made


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=count_examples(60), stateful_step_count=60)
