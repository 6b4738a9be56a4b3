"""The token bucket against a plain model: whatever several processes take and leave, the rate holds in any span."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mistnet.governor.grants import CallSlots, crowd, take_slots, tokens
from tests.examples import count_examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROCESSES = 3
ROUNDING = 1e-3


class BucketMachine(RuleBasedStateMachine):
    """Three processes share one time line. Each takes runs of it and uses them when it likes, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOON
        self.next_at: datetime | None = None
        self.runs = [CallSlots() for _ in range(PROCESSES)]
        self.started: list[float] = []

    @initialize(rate=st.sampled_from([0.5, 3.0, 15.0, 100.0, 7_777.7, 300_000.0]), burst=st.integers(1, 6))
    def configure(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst

    @rule(slots=st.floats(0, 12), stall=st.sampled_from([0.0, 0.02, 0.06, 1.0]))
    def time_passes(self, slots: float, stall: float) -> None:
        self.now += timedelta(seconds=slots / self.rate + stall)

    @rule(process=st.integers(0, PROCESSES - 1), count=st.integers(1, 8))
    def takes_a_run(self, process: int, count: int) -> None:
        """What was left of the one before is lost."""
        self.runs[process], self.next_at = take_slots(
            self.next_at, self.now, rate=self.rate, burst=self.burst, count=count
        )

    @rule(process=st.integers(0, PROCESSES - 1), calls=st.integers(1, 5))
    def calls_at_once(self, process: int, calls: int) -> None:
        for _ in range(calls):
            if self.runs[process].take_due(self.now.timestamp()):
                self.started.append(self.now.timestamp())

    @rule(process=st.integers(0, PROCESSES - 1))
    def waits_for_its_moment(self, process: int) -> None:
        run = self.runs[process]
        run.drop_late(self.now.timestamp())
        if len(run):
            self.now = max(self.now, datetime.fromtimestamp(run.take(), UTC) + timedelta(microseconds=1))
            self.started.append(self.now.timestamp())

    @invariant()
    def no_span_holds_more_than_the_rate_and_the_crowd(self) -> None:
        if not self.started:
            return
        most = crowd(self.rate, self.burst)
        for first, begun in enumerate(self.started):
            within = len(self.started) - first
            assert within <= self.rate * (self.started[-1] - begun) + most + ROUNDING


TestBucket = BucketMachine.TestCase
TestBucket.settings = settings(max_examples=count_examples(50), stateful_step_count=40)


@given(rate=st.floats(0.01, 1_000_000), count=st.integers(1, 100_000), burst=st.integers(1, 20))
def test_what_is_taken_moves_the_line_on_by_no_less_than_the_rate_demands(rate: float, count: int, burst: int) -> None:
    slots, next_at = take_slots(NOON, NOON, rate=rate, burst=burst, count=count)
    assert len(slots) == count
    moved = (next_at - NOON).total_seconds()
    assert moved >= count / rate * (1 - 1e-9) - 1e-9
    assert moved <= count / rate + 2e-6


@given(waited=st.floats(0, 100), rate=st.floats(0.1, 1_000), burst=st.integers(1, 20))
def test_tokens_are_as_many_as_would_be_let_through_at_once(waited: float, rate: float, burst: int) -> None:
    now = NOON + timedelta(seconds=waited)
    told = tokens(NOON, now, rate=rate, burst=burst)
    slots, _ = take_slots(NOON, now, rate=rate, burst=burst, count=burst + 1)
    at_once = sum(slots.take_due(now.timestamp()) for _ in range(burst + 1))
    assert abs(told - at_once) <= 1
    assert told <= burst


def test_a_moment_that_is_long_gone_is_let_go_and_the_next_is_used() -> None:
    slots, _ = take_slots(NOON, NOON, rate=10, burst=1, count=5)
    assert slots.take_due(NOON.timestamp())
    later = NOON.timestamp() + 0.24
    assert slots.take_due(later)
    assert (slots.used, slots.let_go, len(slots)) == (2, 1, 2)
    assert not slots.take_due(later)


def test_at_hundreds_of_thousands_a_second_no_call_is_gained_by_rounding() -> None:
    next_at: datetime | None = NOON
    for _ in range(1_000):
        _, next_at = take_slots(next_at, NOON, rate=300_000, burst=1, count=1)
    assert next_at is not None
    assert (next_at - NOON).total_seconds() >= 1_000 / 300_000
