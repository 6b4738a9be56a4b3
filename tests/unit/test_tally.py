"""What came in over time is counted once, and nothing is lost on the way from seconds to minutes to one sum."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from mistnet.operations.overview import Unit
from mistnet.web.pages.cached_counts import KEPT, ChartSpan, EventCounts

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)


class Log:
    """Moments at which something came, as a database would tell of them; and from when on it was asked."""

    def __init__(self, *moments: datetime) -> None:
        self.moments = list(moments)
        self.asked_since: list[datetime] = []

    async def read(self, unit: Unit, since: datetime, until: datetime | None = None) -> Mapping[datetime, int]:
        self.asked_since.append(since)
        found: dict[datetime, int] = {}
        for moment in self.moments:
            if since <= moment and (until is None or moment < until):
                floor = moment.replace(microsecond=0, second=moment.second if unit == "second" else 0)
                found[floor] = found.get(floor, 0) + 1
        return found

    async def before(self, moment: datetime) -> int:
        return sum(each < moment for each in self.moments)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


async def test_everything_is_counted_from_the_first_look_on() -> None:
    log = Log(ago(days=400), ago(days=20), ago(hours=3), ago(minutes=3), ago(seconds=2))
    tally = EventCounts(log.read, log.before)
    await tally.renew(NOW)
    assert tally.total == 5
    assert tally.since(ago(days=1)) == 3
    for span, seen in ((ChartSpan.MINUTES, 1), (ChartSpan.HOUR, 2), (ChartSpan.DAY, 3), (ChartSpan.MONTH, 4)):
        bars = tally.bars(span, NOW)
        assert (len(bars.since), sum(bars.amounts)) == (span.bars[0], seen)
        assert bars.since[-1] <= NOW.timestamp() < bars.since[-1] + span.bars[1]


async def test_a_young_collection_is_drawn_from_its_beginning() -> None:
    log = Log(ago(seconds=60), ago(seconds=2))
    tally = EventCounts(log.read, log.before)
    await tally.renew(NOW)
    bars = tally.bars(ChartSpan.MINUTES, NOW, tally.first_at)
    assert (len(bars.since), sum(bars.amounts)) == (33, 2)
    assert len(tally.bars(ChartSpan.HOUR, NOW, tally.first_at).since) == 12
    log.moments.append(ago(days=400))
    old = EventCounts(log.read, log.before)
    await old.renew(NOW)
    assert old.first_at is None


async def test_later_looks_ask_only_for_the_end_and_find_late_ones() -> None:
    log = Log(ago(hours=1))
    tally = EventCounts(log.read, log.before)
    await tally.renew(NOW)
    log.asked_since.clear()
    log.moments += [NOW + timedelta(seconds=1), NOW - timedelta(seconds=5)]  # the second one was committed late
    await tally.renew(NOW + timedelta(seconds=2))
    assert tally.total == 3
    log.moments.append(NOW - timedelta(minutes=2))  # very late
    await tally.renew(NOW + timedelta(seconds=61))
    assert tally.total == 4
    assert min(log.asked_since) >= NOW - timedelta(minutes=6)


async def test_nothing_is_lost_or_counted_twice_as_time_goes_by() -> None:
    log = Log()
    tally = EventCounts(log.read, log.before)
    now = NOW
    for step in range(600):
        now += timedelta(seconds=37)
        log.moments += [now - timedelta(seconds=each) for each in range(step % 4)]
        await tally.renew(now)
        assert tally.total == len(log.moments)
    await tally.renew(now + KEPT + timedelta(days=1))
    assert tally.total == len(log.moments)
    assert tally.first_at is None
    assert sum(tally.bars(ChartSpan.MONTH, now + KEPT + timedelta(days=1)).amounts) == 0
