"""A strip shows what matters in each cell of an account's life."""

from datetime import UTC, datetime, timedelta

from mistnet.queue.model import JobId, JobState
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import (
    AccountProgress,
    Stretch,
    StretchState,
    Sweep,
    SweepKind,
    moment_of,
    own_posts,
    reposts,
    strip,
)
from mistnet.social.model import PostId, UserId

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MARKS = {
    StretchState.VERIFIED: "#",
    StretchState.SWEEPING: "~",
    StretchState.MISSING: "!",
    StretchState.NOT_LOOKED_AT: ".",
}


def drawn(*stretches: tuple[float, StretchState], cells: int = 10) -> str:
    """Stretches one after the other, each so many days long."""
    laid: list[Stretch] = []
    for days, standing in stretches:
        since = laid[-1].until if laid else BEGIN
        laid.append(Stretch(since=since, until=since + timedelta(days=days), standing=standing))
    return "".join(MARKS[each] for each in strip(laid, cells))


def test_equal_parts_of_a_life_get_equal_parts_of_the_strip() -> None:
    assert drawn((3, StretchState.MISSING), (6, StretchState.VERIFIED), (1, StretchState.SWEEPING)) == "!!!######~"


def test_the_least_that_is_missing_shows() -> None:
    assert (
        drawn((4.5, StretchState.VERIFIED), (0.001, StretchState.MISSING), (5.499, StretchState.VERIFIED))
        == "####!#####"
    )


def test_what_is_missing_shows_before_what_is_being_swept() -> None:
    assert (
        drawn((4.9, StretchState.SWEEPING), (0.05, StretchState.MISSING), (5.05, StretchState.VERIFIED)) == "~~~~!#####"
    )


def test_the_hours_since_the_last_look_do_not_hide_a_verified_month() -> None:
    assert drawn((9.7, StretchState.VERIFIED), (0.3, StretchState.NOT_LOOKED_AT)) == "##########"
    assert drawn((9.3, StretchState.VERIFIED), (0.7, StretchState.NOT_LOOKED_AT)) == "#########."


def test_a_life_without_length_has_no_strip() -> None:
    assert drawn() == ""


def test_an_id_tells_when_its_post_was_written() -> None:
    assert moment_of(PostId(1_050_118_621_198_921_728)).isoformat(timespec="seconds") == "2018-10-10T20:19:24+00:00"


def waiting(*sweeps: Sweep) -> AccountProgress:
    return AccountProgress(
        user_id=UserId(1),
        handle="ann",
        state=AccountState.ACTIVE,
        state_reason=None,
        tracked_at=BEGIN + timedelta(days=9),
        born_at=BEGIN,
        sweeps=sweeps,
    )


def test_an_account_that_waits_to_begin_is_neither_missing_nor_verified() -> None:
    now = BEGIN + timedelta(days=10)
    live, dead = (
        Sweep(job_id=JobId(1), kind=SweepKind.BACKFILL, state=state, user_id=UserId(1))
        for state in (JobState.PENDING, JobState.DEAD)
    )
    for found in (own_posts(waiting(live), now), reposts(waiting(live), now)):
        assert [each.standing for each in found] == [StretchState.NOT_LOOKED_AT]
    for sweeps in ((), (dead,)):
        assert [each.standing for each in own_posts(waiting(*sweeps), now)] == [StretchState.MISSING]
