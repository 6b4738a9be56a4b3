"""Follow syncs on every database: what they write, what they believe, and what they never do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mistnet.graph.follows.model import Cause, FollowsSeen, Side, SyncMode
from mistnet.kit.errors import DatabaseError, WriteRefused
from mistnet.social.ingests import IngestKind, IngestStatus
from mistnet.social.model import UserId, X
from mistnet.social.store.ingests import Ingests
from tests.follow_lists import ANN, Harness, ScriptedSource, open_harness
from tests.harvests import user

pytestmark = pytest.mark.common_sql

MANY = [*range(2, 462)]  # three pages


def seen(ids: Sequence[int], ingest_id: int | None) -> FollowsSeen:
    return FollowsSeen(
        platform=X,
        side=Side.FOLLOWERS,
        subject_id=ANN,
        ids=[UserId(each) for each in ids],
        ingest_id=ingest_id,  # type: ignore[arg-type]
        cause=Cause.PUSHED,
    )


async def begun(harness: Harness) -> int:
    return await Ingests(harness.database).begin(IngestKind.WEBHOOK, asked_by="a test", subject_id=ANN)


async def latest(harness: Harness, side: Side = Side.FOLLOWERS) -> tuple[str, bool | None, str | None, str | None]:
    (found,) = (await harness.ingests.list(kind=side.ingest_kind, subject_id=ANN, limit=1)).items
    return str(found.status), found.plausible, found.mode, found.problem


async def test_an_edge_to_an_unknown_user_rolls_back_its_whole_transaction(url: str) -> None:
    async with open_harness(url, ScriptedSource()) as harness:
        ingest_id = await begun(harness)
        for known in ([user(1), user(2)], [user(2)]):
            with pytest.raises(DatabaseError):
                await harness.tell(*known, seen([2, 3], ingest_id))
        assert await harness.one("SELECT count(*) FROM users") == 0
        assert await harness.one("SELECT count(*) FROM follows") == 0
        assert await harness.one("SELECT count(*) FROM follow_events") == 0


async def test_an_edge_without_an_ingest_is_refused(url: str) -> None:
    async with open_harness(url, ScriptedSource()) as harness:
        with pytest.raises(WriteRefused, match="need an open ingest"):
            await harness.tell(user(1), user(2), seen([2], None))


async def test_an_edge_has_one_event_however_often_it_is_pushed(url: str) -> None:
    async with open_harness(url, ScriptedSource()) as harness:
        ingest_id = await begun(harness)
        for _ in range(3):
            harness.clock.turn(hours=1)
            await harness.tell(user(1), user(2, "bob"), seen([2, 2], ingest_id))
        assert await harness.changes() == [("followed", "pushed", 2)]
        (edge,) = (await harness.follows.page(ANN, Side.FOLLOWERS, limit=5)).items
        assert (edge.last_seen_at - edge.first_seen_at).total_seconds() == 7200


async def test_a_sync_of_an_empty_database_brings_the_subject_everybody_and_every_edge(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=MANY)) as harness:
        await harness.sync()
        assert await harness.live() == MANY
        assert await harness.one("SELECT count(*) FROM users") == len(MANY) + 1
        assert await harness.one("SELECT count(*) FROM users WHERE handle IS NULL OR last_updated_at IS NULL") == 0
        assert await harness.changes() == [], "the first list is no news"
        assert await latest(harness) == ("success", True, "full", None)
        assert harness.source.asked == {"users": 2, "followers": 3}
        (sync,) = (await harness.ingests.list(kind=Side.FOLLOWERS.ingest_kind, subject_id=ANN, limit=1)).items
        assert await harness.rows("SELECT DISTINCT ingest_id FROM users") == [(sync.id,)], "each row names who wrote it"


async def test_the_first_complete_list_is_a_baseline_and_later_ones_bring_news(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[3, 2], followings_of=[4])) as harness:
        assert await harness.follows.known_since(ANN) == {}
        await harness.sync()
        first = harness.clock.now()
        assert await harness.changes() == []
        harness.clock.turn(days=1)
        harness.source.followers_of = [5, 3, 2]
        await harness.sync(SyncMode.INCREMENTAL)
        await harness.sync(side=Side.FOLLOWINGS)
        assert await harness.changes() == [("followed", "seen", 5)]
        known = await harness.follows.known_since(ANN)
        assert known == {Side.FOLLOWERS: first, Side.FOLLOWINGS: harness.clock.now()}


async def test_a_list_that_is_not_believed_is_no_baseline(url: str) -> None:
    async with open_harness(
        url, ScriptedSource(followers_of=[*range(2, 102)], left_out=set(range(50, 100)))
    ) as harness:
        await harness.sync()
        assert (await latest(harness))[1] is False
        harness.source.left_out = set()
        await harness.sync()
        assert len(await harness.live()) == 100
        assert await harness.changes() == [], "it is unknown when the users left out began to follow"
        harness.source.followers_of.insert(0, 200)
        await harness.sync()
        assert await harness.changes() == [("followed", "seen", 200)]


async def test_an_edge_that_a_known_list_of_its_other_end_did_not_show_is_news(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[3, 2])) as harness:
        await harness.sync()
        ingest_id = await Ingests(harness.database).begin(
            IngestKind.FOLLOWINGS_SYNC, asked_by="a test", subject_id=UserId(9)
        )
        shown = FollowsSeen(
            platform=X,
            side=Side.FOLLOWINGS,
            subject_id=UserId(9),
            ids=[ANN, UserId(2)],
            ingest_id=ingest_id,
        )
        await harness.tell(user(9), shown)
        assert await harness.changes() == [("followed", "seen", 9)]
        assert await harness.one("SELECT count(*) FROM follow_events") == 1


async def test_followers_and_followed_are_kept_apart(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[2, 3], followings_of=[3, 4])) as harness:
        await harness.sync(side=Side.FOLLOWERS)
        await harness.sync(side=Side.FOLLOWINGS)
        assert await harness.live(Side.FOLLOWERS) == [2, 3]
        assert await harness.live(Side.FOLLOWINGS) == [3, 4]
        edges = await harness.rows("SELECT follower_id, followed_id FROM follows ORDER BY 1, 2")
        assert edges == [(1, 3), (1, 4), (2, 1), (3, 1)]


async def test_one_sync_of_a_list_is_alive_at_a_time(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[2])) as harness:
        assert [
            await harness.ask(),
            await harness.ask(SyncMode.INCREMENTAL),
            await harness.ask(side=Side.FOLLOWINGS),
        ] == [
            1,
            0,
            1,
        ]


async def test_a_worker_that_dies_between_pages_costs_one_page_and_no_event(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=MANY, page_seconds=1)) as harness:
        await harness.ask()
        assert await harness.step()
        assert await harness.step()
        assert await harness.step(lost=True)
        assert len(await harness.live()) == 200
        harness.clock.turn(seconds=301)
        await harness.settle_all()
        assert await harness.live() == MANY
        assert harness.source.asked["followers"] == 4
        assert await harness.changes() == [], "the first list is no news"
        assert await harness.one("SELECT count(*) FROM ingest_events") == 1


async def test_pages_that_come_at_once_are_written_together(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=MANY)) as harness:
        await harness.ask()
        assert await harness.step()
        assert await harness.step()
        assert await harness.live() == MANY
        assert harness.source.asked["followers"] == 3


async def test_a_fault_between_pages_that_come_at_once_keeps_those_before_it(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=MANY, broken=["", "", "missing"])) as harness:
        await harness.ask()
        assert await harness.step()
        assert await harness.step()
        assert len(await harness.live()) == 400
        await harness.settle_all()
        assert await harness.live() == MANY
        assert harness.source.asked["followers"] == 4
        assert await harness.changes() == [], "the first list is no news"


async def test_who_left_is_doubted_first_and_gone_after_a_second_look(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[5, 4, 3, 2])) as harness:
        await harness.sync()
        harness.source.followers_of.remove(3)
        harness.clock.turn(days=1)
        await harness.ask()
        while await harness.step():
            pass
        assert await harness.live() == [2, 3, 4, 5]
        assert await harness.doubted() == [3]
        await harness.settle_all()
        assert await harness.live() == [2, 4, 5]
        assert await harness.changes() == [("unfollowed", "unfollowed", 3)]
        assert harness.source.asked["relation"] == 0, (
            "the list shows everybody the profile counts: that is proof enough"
        )
        assert await harness.one("SELECT count(*) FROM ingest_events") == 3


async def test_a_returning_follower_has_a_new_event_and_the_old_first_seen_time(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[3, 2])) as harness:
        await harness.sync()
        first = (await harness.follows.page(ANN, Side.FOLLOWERS, limit=5)).items[0].first_seen_at
        harness.source.followers_of.remove(2)
        await harness.sync()
        ended = await harness.follows.page(ANN, Side.FOLLOWERS, ended=True, limit=5)
        assert [each.user_id for each in ended.items] == [2]
        harness.source.followers_of.insert(0, 2)
        await harness.sync(SyncMode.INCREMENTAL)
        assert await harness.live() == [2, 3]
        assert await harness.changes() == [("unfollowed", "unfollowed", 2), ("followed", "seen", 2)]
        assert (await harness.follows.page(ANN, Side.FOLLOWERS, limit=5)).items[0].first_seen_at == first


@pytest.mark.parametrize("cut", [1, 3, 5])
async def test_a_list_that_always_leaves_the_same_ones_out_ends_nothing(url: str, cut: int) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[*range(2, 42)])) as harness:
        await harness.sync()
        harness.source.left_out = set(range(10, 10 + cut))
        for _ in range(3):
            await harness.sync()
        assert await harness.live() == [*range(2, 42)]
        assert await harness.changes() == []
        assert harness.source.asked["relation"] >= cut


async def test_a_list_that_is_cut_by_a_third_is_not_believed_and_casts_no_doubt(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[*range(2, 102)])) as harness:
        await harness.sync()
        harness.source.left_out = set(range(70, 100))
        await harness.sync()
        assert await harness.doubted() == []
        assert len(await harness.live()) == 100
        status, plausible, _, problem = await latest(harness)
        assert (status, plausible) == ("success", False)
        assert problem == "the list ended early: it shows 70 of the 100 the profile counts"


async def test_an_empty_list_of_a_user_with_followers_is_not_believed(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[2, 3])) as harness:
        await harness.sync()
        harness.source.left_out = {2, 3}
        await harness.sync()
        assert await harness.live() == [2, 3]
        assert (await latest(harness))[1] is False


async def test_edges_of_suspended_and_vanished_users_end_with_that_reason(url: str) -> None:
    source = ScriptedSource(followers_of=[*range(2, 22)])
    async with open_harness(url, source) as harness:
        await harness.sync()
        source.suspended, source.gone = {4}, {5}
        source.followers_of.remove(6)
        await harness.sync()
        assert sorted(await harness.changes()) == [
            ("unfollowed", "suspended", 4),
            ("unfollowed", "unfollowed", 6),
            ("unfollowed", "vanished", 5),
        ]
        assert source.asked["relation"] == 1, "the profile counts two who are on no list: only an answer is proof"


async def test_a_list_that_shrinks_because_many_were_suspended_is_believed(url: str) -> None:
    source = ScriptedSource(followers_of=[*range(2, 102)])
    async with open_harness(url, source) as harness:
        await harness.sync()
        source.suspended = set(range(10, 50))
        await harness.sync()
        assert len(await harness.live()) == 60
        assert {each[:2] for each in await harness.changes()} == {("unfollowed", "suspended")}
        await harness.sync()
        assert (await latest(harness))[1] is True


async def test_a_user_who_is_seen_again_before_the_second_look_is_doubted_no_more(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[4, 3, 2])) as harness:
        await harness.sync()
        harness.source.left_out = {3}
        harness.clock.turn(days=1)
        await harness.ask()
        while await harness.step():
            pass
        assert await harness.doubted() == [3]
        harness.source.left_out = set()
        await harness.settle_all()
        assert (await harness.doubted(), await harness.live()) == ([], [2, 3, 4])
        assert await harness.changes() == []


async def test_a_sync_checks_only_a_few_users_one_by_one(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[*range(2, 502)])) as harness:
        await harness.sync()
        harness.source.left_out = set(range(100, 145))
        await harness.sync()
        assert harness.source.asked["relation"] == 20
        assert len(await harness.live()) == 500
        assert (await latest(harness))[3] == "25 edges stay as they are: the list is incomplete"
        await harness.sync()
        assert harness.source.asked["relation"] == 60, "two looks, each at no more than 20"


async def test_an_incremental_sync_reads_down_to_what_it_knows_and_one_page_more(url: str) -> None:
    people = [*range(900, 199, -1)]
    async with open_harness(url, ScriptedSource(followers_of=people)) as harness:
        await harness.sync()
        harness.source.asked.clear()
        harness.source.followers_of = [903, 902, 901, *people]
        await harness.sync(SyncMode.INCREMENTAL)
        assert harness.source.asked == {"users": 1, "followers": 3}
        assert len(await harness.live()) == len(people) + 3
        assert await latest(harness) == ("success", True, "incremental", None)
        harness.source.asked.clear()
        await harness.sync(SyncMode.INCREMENTAL)
        assert harness.source.asked == {"users": 1, "followers": 2}


async def test_an_incremental_sync_that_broke_off_leaves_no_hole(url: str) -> None:
    people = [*range(600, 199, -1)]
    async with open_harness(url, ScriptedSource(followers_of=people)) as harness:
        await harness.sync()
        harness.source.followers_of = [*range(1300, 199, -1)]
        harness.clock.turn(days=1)
        await harness.ask(SyncMode.INCREMENTAL)
        assert await harness.step()
        assert await harness.step()
        await harness.forget_jobs()
        await harness.ingests.settle(harness.clock.now(), lost_before=harness.clock.now())
        await harness.sync(SyncMode.INCREMENTAL)
        assert len(await harness.live()) == 1101


async def test_an_incremental_sync_ends_no_edge(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[4, 3, 2])) as harness:
        await harness.sync()
        harness.source.followers_of.remove(3)
        await harness.sync(SyncMode.INCREMENTAL)
        await harness.sync(SyncMode.INCREMENTAL)
        assert (await harness.live(), await harness.doubted()) == ([2, 3, 4], [])


async def test_the_first_sync_of_a_list_is_a_full_one(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=MANY)) as harness:
        await harness.sync(SyncMode.INCREMENTAL)
        assert await latest(harness) == ("success", True, "full", None)


@pytest.mark.parametrize("fault", ["loop", "no cursor", "missing"])
async def test_a_page_that_cannot_be_continued_is_fetched_again(url: str, fault: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=MANY)) as harness:
        harness.source.broken = ["", fault, fault]
        await harness.sync()
        assert await harness.live() == MANY
        assert await latest(harness) == ("success", True, "full", None)
        assert await harness.changes() == [], "the first list is no news"


async def test_a_list_that_never_comes_is_an_error_and_no_empty_graph(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[2, 3])) as harness:
        await harness.sync()
        harness.source.broken = ["missing"] * 10
        await harness.sync()
        assert await harness.one("SELECT state FROM jobs") == "dead"
        await harness.ingests.settle(harness.clock.now(), lost_before=harness.clock.now())
        status, plausible, _, problem = await latest(harness)
        assert (status, plausible) == ("error", None)
        assert "no 'followers' in it" in (problem or "")
        assert (await harness.live(), await harness.doubted()) == ([2, 3], [])


async def test_a_subject_that_changes_its_name_meanwhile_is_followed(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=MANY)) as harness:
        await harness.ask()
        await harness.step()
        await harness.step()
        harness.source.handle = "ann_now"
        await harness.settle_all()
        assert await harness.live() == MANY


@pytest.mark.parametrize("why", ["protected", "suspended", "gone"])
async def test_an_unreadable_list_ends_the_sync_with_the_reason_and_changes_nothing(url: str, why: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[2, 3])) as harness:
        await harness.sync()
        match why:
            case "protected":
                harness.source.protected = True
            case "suspended":
                harness.source.suspended = {ANN}
            case _:
                harness.source.gone = {ANN}
        await harness.sync()
        assert await harness.one("SELECT count(*) FROM jobs") == 0, "there is nothing to do about it: it is no gap"
        status, _, _, problem = await latest(harness)
        assert status == IngestStatus.ERROR
        assert "the followers of user 1 cannot be read" in (problem or "")
        assert (await harness.live(), await harness.doubted()) == ([2, 3], [])


async def test_a_failure_about_an_unknown_user_is_recorded_without_a_user_row(url: str) -> None:
    async with open_harness(url, ScriptedSource(gone={ANN})) as harness:
        await harness.sync()
        assert (await latest(harness))[0] == "error"
        assert await harness.one("SELECT count(*) FROM users") == 0
        assert await harness.one("SELECT id FROM missing WHERE what = 'user'") == ANN


async def test_the_state_of_every_list_can_be_looked_up(url: str) -> None:
    async with open_harness(url, ScriptedSource(followers_of=[2, 3], followings_of=[4])) as harness:
        await harness.sync(side=Side.FOLLOWERS)
        await harness.sync(side=Side.FOLLOWINGS)
        found = await harness.follows.syncs()
        assert [(each.side, each.handle, each.status, each.items) for each in found] == [
            (Side.FOLLOWINGS, "ann", IngestStatus.SUCCESS, 1),
            (Side.FOLLOWERS, "ann", IngestStatus.SUCCESS, 2),
        ]
        counts = await harness.follows.counts(ANN, Side.FOLLOWERS)
        assert (counts.live, counts.doubted, counts.ended) == (2, 0, 0)
        harness.source.followers_of = [5, 6, 7, 2, 3]
        await harness.sync(side=Side.FOLLOWERS)
        assert [each.id for each in (await harness.follows.events(ANN, limit=2)).items] == [3, 2]
        assert [each.id for each in (await harness.follows.events(ANN, before=2, limit=2)).items] == [1]


async def test_a_sync_stops_at_its_cap_and_says_so(url: str) -> None:
    source = ScriptedSource(followers_of=[*range(2, 2_002)])
    async with open_harness(url, source) as harness:
        await harness.ask(max_credits=1_000)
        await harness.settle_all()
        status, plausible, _, problem = await latest(harness)
        assert (status, plausible) == ("success", False)
        assert problem == "stopped at its cap of 1,000 credits: 618 are spent, 600 users are read"
        assert source.asked["followers"] == 3
        assert await harness.one("SELECT count(*) FROM follows") == 600
        await harness.ask()
        await harness.settle_all()
        assert (await latest(harness))[:2] == ("success", True)


async def test_tries_that_failed_count_against_the_cap(url: str) -> None:
    source = ScriptedSource(followers_of=[*range(2, 2_002)], broken=["missing"] * 2)
    async with open_harness(url, source) as harness:
        await harness.ask(max_credits=1_000)
        await harness.settle_all()
        assert "stopped at its cap of 1,000 credits: 850 are spent" in ((await latest(harness))[3] or "")
