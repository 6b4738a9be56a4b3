"""What is there of an account or a conversation, what is on its way, what is missing; and how it is mended."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from mistnet.app import App
from mistnet.cli.coverage import coverage
from mistnet.cli.status import status
from mistnet.queue.model import NewJob
from mistnet.social.accounts import (
    AccountState,
    AccountStateChange,
    AccountTracked,
    Frontier,
    HistoryJudged,
    Missing,
    SuggestionClosed,
    Swept,
)
from mistnet.social.coverage import AccountProgress, Completeness, Stretch, StretchState, Sweep, own_posts, reposts
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.tracking import NewSuggestion, TrackingStore
from mistnet.social.tracking import repair_sweeps
from tests.contract import test_plans as plans
from tests.databases import analyze
from tests.harvests import change, days_ago, end_badly, id_at, open_harvest, post, rows, run, tell, told, user
from tests.loops import LOOP
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql

ANN = UserId(11)
OLDEST, NEWEST = id_at(days_ago(40)), id_at(days_ago(10))


@asynccontextmanager
async def with_ann(url: str, *, swept: bool = True, backfilled: bool = False, **settings: Any) -> Any:
    """An account that is a hundred days old, swept from forty days ago until ten days ago."""
    async with open_harvest(url, **settings) as app:
        await tell(app, user(ANN, created_at=days_ago(100)), AccountTracked(platform=X, user_id=ANN))
        await change(
            app,
            "UPDATE accounts SET tracked_at = (SELECT created_at FROM users WHERE id = 11), backfilled_at = NULL",
        )
        if swept:
            await tell(app, post(OLDEST), post(NEWEST), boundaries(oldest=OLDEST, newest=NEWEST))
        if backfilled:
            await tell(app, boundaries(backfilled=True))
        yield app


def boundaries(**about: Any) -> Swept:
    return Swept(platform=X, user_id=ANN, **about)


async def ann(app: App) -> AccountProgress:
    found = await Coverage(app.database).account("ANN")
    assert found is not None
    return found


def shown(stretches: Sequence[Stretch]) -> list[tuple[str, int, int]]:
    """Each stretch by its standing and its ends in days ago."""
    return [
        (
            each.standing.value,
            round((START - each.since) / timedelta(days=1)),
            round((START - each.until) / timedelta(days=1)),
        )
        for each in stretches
    ]


async def own(app: App) -> list[tuple[str, int, int]]:
    return shown(own_posts(await ann(app), app.database.clock.now()))


def catch_up(*, ceiling: PostId | None = None, top: PostId | None = None, floor: PostId = NEWEST) -> NewJob:
    about = args.RangeArgs(user_id=ANN, floor=floor, ceiling=ceiling, top=top)
    return NewJob(kind=args.CATCH_UP, key=str(ANN), args=about)


async def test_what_lies_between_the_boundaries_is_verified_and_a_live_backfill_sweeps_below(url: str) -> None:
    async with with_ann(url) as app:
        await app.enqueue([args.backfill(ANN)])
        assert await own(app) == [("sweeping", 100, 40), ("verified", 40, 10), ("not_looked_at", 10, 0)]


async def test_a_dead_backfill_is_missing(url: str) -> None:
    async with with_ann(url) as app:
        await end_badly(app, args.backfill(ANN))
        assert await own(app) == [("missing", 100, 40), ("verified", 40, 10), ("not_looked_at", 10, 0)]
        assert [gap.last_error for gap in (await ann(app)).gaps] == ["it broke"]


async def test_an_account_without_a_sweep_is_missing_and_one_with_a_pending_sweep_is_not(url: str) -> None:
    async with with_ann(url, swept=False) as app:
        assert await own(app) == [("missing", 100, 0)]
        await app.enqueue([args.backfill(ANN)])
        assert await own(app) == [("not_looked_at", 100, 0)]


async def test_an_account_that_is_tracked_while_it_is_read_is_not_missing(url: str) -> None:
    class WithSweepsReadBefore(Coverage):
        reads = 0

        async def sweeps(self, user_id: UserId | None = None) -> Sequence[Sweep]:
            found = await super().sweeps(user_id)
            self.reads += 1
            if self.reads == 1:  # a worker tracks the account right after
                await tell(app, user(ANN, created_at=days_ago(100)), AccountTracked(platform=X, user_id=ANN))
                await app.enqueue([args.backfill(ANN)])
            return found

    async with open_harvest(url) as app:
        (found,) = await WithSweepsReadBefore(app.database).accounts()
        assert found.waits
        assert shown(own_posts(found, app.database.clock.now())) == [("not_looked_at", 100, 0)]


async def test_a_finished_backfill_verifies_from_the_beginning_until_tracking_began_at_least(url: str) -> None:
    async with with_ann(url, backfilled=True) as app:
        assert await own(app) == [("verified", 100, 10), ("not_looked_at", 10, 0)]
        await change(app, "UPDATE accounts SET tracked_at = (SELECT first_seen_at FROM users WHERE id = 11)")
        assert await own(app) == [("verified", 100, 0)]


async def test_a_live_catch_up_sweeps_above_and_has_verified_what_it_passed(url: str) -> None:
    async with with_ann(url, backfilled=True) as app:
        await app.enqueue([catch_up()])
        assert await own(app) == [("verified", 100, 10), ("sweeping", 10, 0)]
    async with open_harvest(url) as app:
        await change(app, "DELETE FROM jobs")
        await app.enqueue([catch_up(ceiling=id_at(days_ago(6)), top=id_at(days_ago(2)))])
        assert await own(app) == [
            ("verified", 100, 10),
            ("sweeping", 10, 6),
            ("verified", 6, 2),
            ("not_looked_at", 2, 0),
        ]


async def test_a_look_for_the_first_post_of_an_account_leaves_its_empty_past_verified(url: str) -> None:
    async with with_ann(url, swept=False, backfilled=True) as app:
        await change(app, f"UPDATE accounts SET tracked_at = '{days_ago(10):%Y-%m-%d %H:%M:%S}+00:00'")
        await app.enqueue([catch_up(floor=PostId(0))])
        assert await own(app) == [("verified", 100, 10), ("sweeping", 10, 0)]
        await change(app, "DELETE FROM jobs")
        first = id_at(days_ago(4))
        await tell(app, post(first), boundaries(oldest=first, newest=first))
        assert await own(app) == [("verified", 100, 4), ("not_looked_at", 4, 0)]


async def test_a_dead_catch_up_is_missing_until_a_later_sweep_has_been_there(url: str) -> None:
    async with with_ann(url, backfilled=True) as app:
        await end_badly(app, catch_up(ceiling=id_at(days_ago(6)), top=id_at(days_ago(2))), state="failed")
        assert await own(app) == [
            ("verified", 100, 10),
            ("missing", 10, 6),
            ("verified", 6, 2),
            ("not_looked_at", 2, 0),
        ]
        await app.enqueue([catch_up()])
        assert await own(app) == [("verified", 100, 10), ("sweeping", 10, 0)]
        await change(app, "DELETE FROM jobs WHERE state = 'pending'")
        await tell(app, boundaries(newest=id_at(days_ago(1))))
        assert await own(app) == [("verified", 100, 1), ("not_looked_at", 1, 0)]
        assert (await ann(app)).gaps == []


async def test_a_dead_second_look_is_missing_inside_what_is_verified(url: str) -> None:
    async with with_ann(url, backfilled=True) as app:
        await end_badly(app, args.mend(ANN, id_at(days_ago(30)), id_at(days_ago(25))))
        assert [each for each in await own(app) if each[0] == "missing"] == [("missing", 30, 25)]


async def test_other_accounts_sweeps_are_not_mixed_up_with_ones_own(url: str) -> None:
    async with with_ann(url) as app:
        await tell(app, user(111, "bob"), AccountTracked(platform=X, user_id=UserId(111)))
        await end_badly(app, args.backfill(UserId(111)), args.mend(UserId(111), PostId(5), PostId(9)))
        assert (await ann(app)).sweeps == []
        by_handle = {each.handle: each for each in await Coverage(app.database).accounts()}
        assert {handle: len(each.gaps) for handle, each in by_handle.items()} == {"ann": 0, "bob": 2}


async def test_native_retweets_stand_for_themselves(url: str) -> None:
    async def retweets() -> list[tuple[str, int, int]]:
        return shown(reposts(await ann(app), START))

    async with with_ann(url) as app:
        assert await retweets() == [("missing", 100, 0)]
        await app.enqueue([args.backfill(ANN)])
        assert await retweets() == [("sweeping", 100, 0)]
        await tell(app, boundaries(backfilled=True))
        await change(app, "DELETE FROM jobs")
        await end_badly(app, args.reposts(ANN, PostId(0)))
        assert await retweets() == [("missing", 100, 0)]
        assert await own(app) == [("verified", 100, 10), ("not_looked_at", 10, 0)]
        await tell(app, boundaries(reposts_backfilled=True, newest_repost=id_at(days_ago(12))))
        assert await retweets() == [("verified", 100, 0)]
        assert (await ann(app)).gaps == []


async def test_posts_are_counted_with_and_without_native_retweets(url: str) -> None:
    async with with_ann(url) as app:
        await tell(app, user(12, "bob"), post(5, 12), post(id_at(days_ago(20)), reposts=5))
        found = await ann(app)
        assert (found.stored, await Coverage(app.database).native_reposts(ANN)) == (3, 1)


async def test_an_account_is_found_by_its_handle_and_remembered_by_its_earlier_one(url: str) -> None:
    async with with_ann(url) as app:
        reader = Coverage(app.database)
        await tell(app, user(ANN, "annie"))
        assert await reader.account("ann") is None
        assert await reader.now_called("Ann") == "annie"
        assert await reader.handles() == ["annie"]


def judged(*, suspect: bool) -> HistoryJudged:
    return HistoryJudged(platform=X, user_id=ANN, suspect=suspect)


async def test_of_a_suspect_history_nothing_is_verified_until_it_is_plausible(url: str) -> None:
    async with with_ann(url, backfilled=True) as app:
        await tell(app, user(ANN, posts_count=500), boundaries(reposts_backfilled=True), judged(suspect=True))
        assert await own(app) == [("suspect", 100, 10), ("not_looked_at", 10, 0)]
        assert shown(reposts(await ann(app), START))[0] == ("suspect", 100, 0)
        found = await ann(app)
        assert (found.suspect_since, found.next_look_at) == (START, START + timedelta(hours=1))
        await app.enqueue([args.backfill(ANN)])
        assert await own(app) == [("sweeping", 100, 40), ("suspect", 40, 10), ("not_looked_at", 10, 0)]
        await change(app, "DELETE FROM jobs")
        await tell(app, judged(suspect=False))
        assert await own(app) == [("verified", 100, 10), ("not_looked_at", 10, 0)]
        assert (await ann(app)).next_look_at is None


async def test_a_suspect_account_is_looked_at_again_on_a_growing_rhythm(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await tell(app, user(ANN), AccountTracked(platform=X, user_id=ANN), boundaries(backfilled=True))
        await tell(app, judged(suspect=True))
        looked: list[timedelta] = []
        last = clock.now()
        for _ in range(6):
            next_at = (await ann(app)).next_look_at
            assert next_at
            assert await app.collecting.recheck_accounts(app.job_writer) == 0
            clock.turn(seconds=(next_at - clock.now()).total_seconds())
            assert await app.collecting.recheck_accounts(app.job_writer) == 1
            assert await rows(app, "SELECT kind, key FROM jobs") == [("backfill", "11")]
            await change(app, "DELETE FROM jobs")
            await tell(app, judged(suspect=True))
            looked.append(clock.now() - last)
            last = clock.now()
        assert looked == [
            timedelta(hours=1),
            timedelta(hours=6),
            timedelta(days=1),
            timedelta(days=3),
            timedelta(days=7),
            timedelta(days=7),
        ]


async def test_repair_sweeps_a_suspect_history_again(url: str) -> None:
    async with with_ann(url, backfilled=True) as app:
        await tell(app, boundaries(reposts_backfilled=True), judged(suspect=True))
        assert await repair_sweeps(app, await ann(app)) == ["@ann: its history is suspect and is swept again"]
        assert await rows(app, "SELECT kind, key FROM jobs ORDER BY kind") == [
            ("catch_up", "11:0-"),
            ("reposts", "11:0-"),
        ]
        assert await repair_sweeps(app, await ann(app)) == ["@ann: its history is being swept again already"]


async def test_repair_retries_dead_sweeps(url: str) -> None:
    async with with_ann(url, backfilled=True) as app:
        await tell(app, boundaries(reposts_backfilled=True))
        await end_badly(app, catch_up())
        (said,) = await repair_sweeps(app, await ann(app))
        assert said.startswith("@ann: catch_up job ")
        assert await rows(app, "SELECT kind, state, attempts FROM jobs") == [("catch_up", "pending", 0)]
        assert await repair_sweeps(app, await ann(app)) == []


async def test_repair_revives_a_dead_backfill_instead_of_making_another(url: str) -> None:
    async with with_ann(url) as app:
        await end_badly(app, args.backfill(ANN))
        assert len(await repair_sweeps(app, await ann(app))) == 1
        assert await rows(app, "SELECT kind, state FROM jobs") == [("backfill", "pending")]
        assert (await own(app))[0] == ("sweeping", 100, 40)


async def test_repair_starts_sweeps_that_never_began(url: str) -> None:
    async with with_ann(url) as app:
        assert await repair_sweeps(app, await ann(app)) == ["@ann: a backfill sweep is started"]
        assert await repair_sweeps(app, await ann(app)) == []
        await change(app, "DELETE FROM jobs")
        await tell(app, boundaries(backfilled=True))
        assert await repair_sweeps(app, await ann(app)) == ["@ann: a reposts sweep is started"]
        assert await rows(app, "SELECT kind, state FROM jobs") == [("reposts", "pending")]


async def test_repair_starts_no_reposts_sweep_when_reposts_are_switched_off(url: str) -> None:
    async with with_ann(url, backfilled=True, x_reposts=False) as app:
        assert await repair_sweeps(app, await ann(app)) == []


async def test_repair_leaves_accounts_alone_that_cannot_be_collected(url: str) -> None:
    async with with_ann(url) as app:
        await end_badly(app, args.backfill(ANN))
        await tell(app, AccountStateChange(platform=X, user_id=ANN, state=AccountState.PROTECTED))
        assert await repair_sweeps(app, await ann(app)) == ["@ann is protected: left alone until it can be collected"]
        assert await rows(app, "SELECT state FROM jobs") == [("dead",)]


ROOT, FIRST, SECOND, THIRD = 1000, 1001, 1002, 1003


async def converse(app: App, *stored: int) -> None:
    """A conversation of four posts, each an answer to the one before; some of them are stored."""
    chain = {ROOT: None, FIRST: ROOT, SECOND: FIRST, THIRD: SECOND}
    await tell(app, user(ANN), *(post(each, answers=chain[each], conversation=ROOT) for each in stored))


def walk(reply_id: int, next_id: int) -> NewJob:
    return args.walk(post(reply_id, conversation=ROOT), Frontier(PostId(next_id)), ANN)


async def verdict(app: App) -> Completeness:
    return (await Coverage(app.database).conversation(PostId(ROOT))).verdict


async def test_a_conversation_is_complete_when_every_reply_has_its_way_up(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, ROOT, FIRST, SECOND, THIRD)
        found = await Coverage(app.database).conversation(PostId(ROOT))
        assert (found.verdict, found.posts, found.parents) == (Completeness.COMPLETE, 4, [])


async def test_a_conversation_is_in_progress_while_a_walk_will_bring_what_it_lacks(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, ROOT, SECOND, THIRD)
        await app.enqueue([walk(THIRD, SECOND)])
        found = await Coverage(app.database).conversation(PostId(ROOT))
        assert found.verdict is Completeness.IN_PROGRESS
        assert [(each.post_id, each.reply_id, each.awaited) for each in found.parents] == [(FIRST, SECOND, True)]


async def test_a_conversation_is_as_complete_as_upstream_has_it_when_the_rest_is_gone(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, SECOND, THIRD)
        await tell(app, Missing(platform=X, what="post", id=FIRST, reason="deleted"))
        assert await verdict(app) is Completeness.AS_FAR_AS_UPSTREAM


async def test_a_conversation_has_gaps_where_no_job_fetches_a_parent(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, ROOT, SECOND, THIRD)
        assert await verdict(app) is Completeness.HAS_GAPS
        await tell(app, Missing(platform=X, what="user", id=FIRST, reason="a user of the same number"))
        assert await verdict(app) is Completeness.HAS_GAPS


async def test_a_dead_walk_leaves_a_gap_and_a_live_one_elsewhere_does_not_hide_it(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, FIRST, THIRD)
        await end_badly(app, walk(THIRD, SECOND))
        await app.enqueue([walk(FIRST, ROOT)])
        found = await Coverage(app.database).conversation(PostId(ROOT))
        assert found.verdict is Completeness.HAS_GAPS
        assert [(each.post_id, each.gap) for each in found.parents] == [(ROOT, False), (SECOND, True)]
        assert [(each.alive, each.last_error) for each in found.walks] == [(False, "it broke"), (True, None)]


async def test_a_dead_walk_whose_posts_came_another_way_is_no_gap(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, ROOT, FIRST)
        await end_badly(app, walk(FIRST, ROOT))
        assert await verdict(app) is Completeness.COMPLETE


async def test_walks_of_a_conversation_with_a_longer_number_are_others(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, ROOT, FIRST)
        other = args.walk(post(20001, conversation=ROOT * 10), Frontier(PostId(20000)), ANN)
        await app.enqueue([other])
        await end_badly(app, args.walk(post(20002, conversation=ROOT * 10), Frontier(PostId(20000)), ANN))
        assert (await Coverage(app.database).conversation(PostId(ROOT))).walks == []


@pytest.mark.parametrize(("stored", "code"), [((ROOT, FIRST), 0), ((FIRST,), 3)])
def test_the_command_tells_gaps_of_a_conversation_by_its_exit_code(
    url: str, stored: tuple[int, ...], code: int
) -> None:
    async def prepare() -> None:
        async with open_harvest(url) as app:
            await converse(app, *stored)

    LOOP.run(prepare())
    done = run(coverage, url, "--conversation", str(ROOT), "--json")
    assert done.exit_code == code
    assert told(done)["conversation_id"] == str(ROOT)
    assert run(coverage, url, "--conversation", str(ROOT)).exit_code == code


def test_the_command_shows_strips_and_repairs(url: str) -> None:
    async def prepare() -> None:
        async with with_ann(url) as app:
            await end_badly(app, args.backfill(ANN))

    LOOP.run(prepare())
    whole = run(coverage, url)
    assert "@ann" in whole.stdout
    assert "!" in whole.stdout
    one = told(run(coverage, url, "https://x.com/Ann", "--json"))
    assert one["account"]["user_id"] == "11"
    assert one["account"]["gaps"][0]["error"] == "it broke"
    assert [each["standing"] for each in one["own_posts"]][:2] == [StretchState.MISSING, StretchState.VERIFIED]
    assert "is retried" in run(coverage, url, "@ann", "--repair").stdout
    assert "nothing to repair" in run(coverage, url, "--repair").stdout


def test_the_command_shows_a_suspect_account_as_one(url: str) -> None:
    async def prepare() -> None:
        async with with_ann(url, backfilled=True) as app:
            await tell(app, user(ANN, posts_count=500), judged(suspect=True))

    LOOP.run(prepare())
    whole = run(coverage, url)
    assert "active, suspect" in whole.stdout
    assert "???" in whole.stdout
    one = run(coverage, url, "@ann")
    assert "2 of the 500 posts its profile counts are stored, although its history was read to the end" in one.stdout
    assert told(run(coverage, url, "--json"))["accounts"][0]["suspect_since"] is not None


def test_of_an_account_that_never_showed_its_posts_no_strip_claims_that_any_are_missing(url: str) -> None:
    async def prepare() -> None:
        async with with_ann(url, swept=False) as app:
            await tell(app, AccountStateChange(platform=X, user_id=ANN, state=AccountState.PROTECTED))

    LOOP.run(prepare())
    (line,) = [line for line in run(coverage, url).stdout.splitlines() if "@ann" in line]
    assert line.split() == ["@ann", "protected", "0"]


def test_a_handle_that_was_asked_for_is_shown_before_it_is_an_account(url: str) -> None:
    async def prepare() -> None:
        async with open_harvest(url) as app:
            await TrackingStore(app.database, app.job_writer).suggest(
                [NewSuggestion(handle="ann")], job=args.suggestion, now=START
            )

    LOOP.run(prepare())
    shown = run(coverage, url).stdout
    assert "requested, not looked up yet: @ann" in shown
    assert "no account is tracked" not in shown
    assert told(run(coverage, url, "--json"))["asked_for"] == ["ann"]


def test_a_refused_handle_is_shown_where_accounts_are(url: str) -> None:
    async def prepare() -> None:
        async with open_harvest(url) as app:
            await TrackingStore(app.database, app.job_writer).suggest(
                [NewSuggestion(handle="nobody")], job=args.suggestion, now=START
            )
            closed = SuggestionClosed(platform=X, handle="nobody", accepted=False, reason="there is nobody")
            await tell(app, closed)

    LOOP.run(prepare())
    for command_ in (coverage, status):
        shown = run(command_, url)
        assert "@nobody" in shown.stdout
        assert "there is nobody" in shown.stdout
        (refused,) = told(run(command_, url, "--json"))["refused"]
        assert (refused["handle"], refused["reason"]) == ("nobody", "there is nobody")
    one = run(coverage, url, "@nobody")
    assert one.exit_code == 2
    assert "there is nobody. `mistnet track @nobody` tries again" in " ".join(one.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("@nobody",), "Track it with `mistnet track @nobody`"),
        (("@anne",), "Did you mean 'ann'?"),
        (("--conversation", "77"), "nothing is stored of a conversation 77"),
        (("--conversation", str(FIRST)), f"belongs to conversation {ROOT}"),
        (("@ann", "--conversation", "77"), "--conversation goes with neither a handle"),
        (("@not a handle",), "1 to 15 letters"),
    ],
)
def test_wrong_usage_of_the_command_is_told_with_the_next_step(
    sqlite_url: str, arguments: tuple[str, ...], said: str
) -> None:
    async def prepare() -> None:
        async with with_ann(sqlite_url) as app:
            await converse(app, FIRST)

    LOOP.run(prepare())
    done = run(coverage, sqlite_url, *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


async def test_the_questions_go_through_their_indexes(url: str) -> None:
    async with open_harvest(url) as app:
        await converse(app, ROOT, FIRST)
        await app.enqueue(
            [args.walk(post(n, conversation=n + 5), Frontier(PostId(n - 1)), ANN) for n in range(2000, 5000)]
        )
        await tell(app, *(post(n, answers=n - 1, conversation=n - n % 50) for n in range(10_000, 13_000)))
        async with app.database.read() as connection:
            await analyze(connection)
        conversation = {"platform": "x", "id": ROOT}
        for name, binds, indexes in (
            ("sweeps", {"key": "11", "mends": "11:%"}, ("jobs_live_key", "jobs_gaps")),
            (
                "walks_of",
                {**conversation, "prefix": "", "walks": f"{ROOT}:%"},
                ("posts_conversation", "jobs_live_key", "jobs_gaps"),
            ),
            ("lost_parents", conversation, ("posts_conversation",)),
        ):
            explained = await plan(app, name, binds)
            assert [index for index in indexes if index not in explained] == [], explained
            assert "Seq Scan" not in explained.replace("Seq Scan on missing", ""), explained


async def plan(app: App, name: str, binds: dict[str, Any]) -> str:
    async with app.database.read() as connection:
        return await plans.plan(connection, name, binds)
