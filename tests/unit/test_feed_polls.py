"""Polls of feeds, step by step, on a Threads that says exactly what a test wants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from mistnet.governor.errors import BadRequest, BrokenAnswer, NotPermitted
from mistnet.governor.model import CallPurpose
from mistnet.queue.model import Continue, Done, Job, JobId, KindName, Lane, Outcome, Write
from mistnet.social.accounts import Missing
from mistnet.social.errors import NotShown
from mistnet.social.feeds import (
    Feed,
    FeedFound,
    FeedGrown,
    FeedId,
    FeedPage,
    FeedPolled,
    FeedProfile,
    FeedRefused,
    FeedState,
)
from mistnet.social.jobs.feeds import SLACK, FeedPhase, FeedPollArgs, FeedPoller, FeedPosition, FeedRules, Visit
from mistnet.social.model import (
    THREADS,
    Detail,
    Gathered,
    Platform,
    Post,
    PostId,
    Reference,
    Unreadable,
    User,
    UserId,
)
from mistnet.sources.threads.decode import user_id_of
from tests.support import START, TurnedClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = user_id_of("ann")


def user(handle: str, detail: Detail = Detail.AUTHOR) -> User:
    return User(platform=THREADS, id=user_id_of(handle), detail=detail, handle=handle, raw=b"{}")


def post(number: int, *, hours: float = 0, handle: str = "ann", quotes: int | None = None) -> Post:
    return Post(
        platform=THREADS,
        id=PostId(number),
        author_id=user_id_of(handle),
        text=f"post {number}",
        created_at=NOON - timedelta(hours=hours),
        quoted=Reference(id=PostId(quotes)) if quotes else None,
        raw=b"{}",
    )


def page(
    *posts: Post,
    cursor: str | None = None,
    at: datetime | None = NOON,
    answered: Collection[int] = (),
    unreadable: Sequence[Unreadable] = (),
) -> FeedPage:
    gathered = Gathered(
        posts={each.id: each for each in posts},
        users={each.author_id: user("ann") for each in posts},
        unreadable=list(unreadable),
    )
    own = [each.id for each in posts]
    return FeedPage(
        own=own, gathered=gathered, cursor=cursor, at=at, answered=frozenset(PostId(each) for each in answered)
    )


def illegible(number: int | None) -> Unreadable:
    post_id = PostId(number) if number else None
    return Unreadable(platform=THREADS, endpoint="x", problem="bad", payload=b"{}", post_id=post_id)


Said = FeedPage | Gathered | FeedProfile | Exception | None


class Scripted:
    """Threads as a test has it: answers by question, or one for each time it is asked. Also what is stored."""

    def __init__(
        self, feed: Feed, answers: Mapping[tuple[object, ...], Said | list[Said]], known: Collection[int] = ()
    ) -> None:
        self._feed, self._answers, self._known = feed, answers, known
        self.asked: list[tuple[object, ...]] = []
        self.own = False
        self.platform = THREADS

    def _say(self, *question: object) -> Any:
        self.asked.append(question)
        said = self._answers[question]
        if isinstance(said, list):
            said = said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    async def is_own(self, _handle: str, *, purpose: CallPurpose) -> bool:
        assert purpose.job_id
        return self.own

    async def profile(self, handle: str, *, purpose: CallPurpose) -> FeedProfile | None:
        assert purpose.job_id
        found: FeedProfile | None = self._say("profile", handle)
        return found

    async def posts(self, _handle: str, *, own: bool, after: str | None, purpose: CallPurpose) -> FeedPage:
        assert purpose.job_id
        found: FeedPage = self._say("own posts" if own else "posts", after)
        return found

    async def own_replies(self, *, after: str | None, purpose: CallPurpose) -> FeedPage:
        assert purpose.job_id
        found: FeedPage = self._say("own replies", after)
        return found

    async def conversation(self, post_id: PostId, *, after: str | None, purpose: CallPurpose) -> FeedPage:
        assert purpose.job_id
        found: FeedPage = self._say("conversation", post_id, after)
        return found

    async def post(self, post_id: PostId, *, purpose: CallPurpose) -> Gathered | None:
        assert purpose.job_id
        found: Gathered | None = self._say("post", post_id)
        return found

    def found(self, user_id: UserId) -> None:
        """What the writer of FeedFound does."""
        self._feed = msgspec.structs.replace(self._feed, user_id=user_id)

    async def feed(self, _feed_id: FeedId) -> Feed | None:
        return self._feed

    async def profiled_at(self, _platform: Platform, _user_id: UserId) -> datetime | None:
        return START

    async def known_posts(self, _platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        return {each for each in ids if each in self._known}

    async def missing_posts(self, _platform: Platform, _ids: Collection[PostId]) -> set[PostId]:
        return set()


def feed(**about: Any) -> Feed:
    plain = {
        "id": FeedId(1),
        "platform": THREADS,
        "handle": "ann",
        "user_id": ANN,
        "state": FeedState.ACTIVE,
        "reason": None,
        "every_seconds": None,
        "added_at": START,
        "newest_post_at": None,
        "newest_reply_at": None,
        "polled_at": None,
        "posts": 0,
    }
    return Feed(**{**plain, **about})


def poller(threads: Scripted) -> FeedPoller:
    return FeedPoller(look=threads, sources={THREADS: threads}, clock=TurnedClock(), rules=FeedRules())


def job(args: FeedPollArgs) -> Job[FeedPollArgs]:
    about = {"kind": KindName("feed_poll"), "key": "1", "lane": Lane("threads"), "attempt": 1}
    return Job(id=JobId(5), args=args, run_at=START, created_at=START, **about)  # type: ignore[arg-type]


async def run(threads: Scripted, args: FeedPollArgs | None = None) -> tuple[list[Write], list[Outcome]]:
    """All steps of a poll; the args go through JSON each time, as they do in the store."""
    writes: list[Write] = []
    outcomes: list[Outcome] = []
    at = args or FeedPollArgs(feed_id=FeedId(1))
    for _ in range(50):
        outcome = await poller(threads).poll(job(at))
        assert isinstance(outcome, Continue | Done)
        outcomes.append(outcome)
        writes += outcome.writes
        for each in outcome.writes:
            if isinstance(each, FeedFound):
                threads.found(each.user_id)
        if isinstance(outcome, Done):
            return writes, outcomes
        assert isinstance(outcome.args, FeedPollArgs)
        at = msgspec.json.decode(msgspec.json.encode(outcome.args), type=FeedPollArgs)
    raise AssertionError("it does not end")


def stored(writes: Sequence[Write]) -> list[int]:
    return [each.id for each in writes if isinstance(each, Post)]


async def test_a_first_poll_reads_all_pages_and_what_the_author_said_below() -> None:
    said = [post(31, handle="bob"), post(32), post(33, handle="eve")]
    threads = Scripted(
        feed(state=FeedState.NEW, user_id=None),
        {
            ("profile", "ann"): FeedProfile(user=user("ann", Detail.PROFILE), own=False),
            ("posts", None): page(post(3), post(2, hours=1), cursor="c", answered=[3]),
            ("conversation", 3, None): page(*said, cursor="d"),
            ("conversation", 3, "d"): page(post(34, hours=2)),
            ("posts", "c"): page(post(1, hours=900)),
        },
    )
    writes, _ = await run(threads)
    assert stored(writes) == [3, 2, 32, 34, 1]
    assert FeedFound(feed_id=FeedId(1), user_id=ANN) in writes
    assert writes[-1] == FeedPolled(feed_id=FeedId(1), newest_post_at=NOON, newest_reply_at=NOON)
    assert sum(each.posts for each in writes if isinstance(each, FeedGrown)) == 5


async def test_a_later_poll_ends_below_what_is_known_and_looks_again_at_what_is_young() -> None:
    before = NOON - timedelta(hours=10)
    threads = Scripted(
        feed(newest_post_at=before, newest_reply_at=before),
        {
            ("posts", None): page(post(4), post(3, hours=20), post(2, hours=100), cursor="c", answered=[4, 3, 2]),
            ("conversation", 4, None): page(post(41)),
            ("conversation", 3, None): page(post(31, hours=5), post(30, hours=11), cursor="more"),
        },
        known=[3, 2, 30],
    )
    writes, _ = await run(threads)
    assert threads.asked == [("posts", None), ("conversation", 4, None), ("conversation", 3, None)]
    assert stored(writes) == [4, 3, 2, 41, 31, 30]
    assert sum(each.posts for each in writes if isinstance(each, FeedGrown)) == 3


async def test_quoted_posts_are_fetched_and_missing_ones_noted() -> None:
    threads = Scripted(
        feed(),
        {
            ("posts", None): page(post(3, quotes=7), post(2, quotes=8), post(1, quotes=9)),
            ("post", 7): page(post(7, handle="bob")).gathered,
            ("post", 8): None,
        },
        known=[9],
    )
    writes, _ = await run(threads)
    assert stored(writes) == [3, 2, 1, 7]
    assert [each.id for each in writes if isinstance(each, Missing)] == [8]


async def test_own_replies_are_read_where_the_token_is_the_accounts_own() -> None:
    threads = Scripted(
        feed(),
        {
            ("own posts", None): page(post(3), answered=[3]),
            ("own replies", None): page(post(31, quotes=7), cursor="r"),
            ("post", 7): None,
            ("own replies", "r"): page(post(30, hours=50)),
        },
    )
    threads.own = True
    writes, _ = await run(threads)
    assert stored(writes) == [3, 31, 30]


async def test_an_empty_end_is_believed_after_a_second_look() -> None:
    threads = Scripted(feed(), {("posts", None): page()})
    _, outcomes = await run(threads)
    assert threads.asked == [("posts", None)] * 2
    waits = [each for each in outcomes if isinstance(each, Continue) and each.run_at]
    assert [each.run_at for each in waits] == [START + timedelta(seconds=30)]


async def test_conversations_that_look_empty_wait_together() -> None:
    threads = Scripted(
        feed(),
        {
            ("posts", None): page(post(3), post(2), post(1), answered=[1, 2, 3]),
            **{("conversation", each, None): page() for each in (1, 2, 3)},
        },
    )
    _, outcomes = await run(threads)
    assert len([each for each in outcomes if isinstance(each, Continue) and each.run_at]) == 1
    assert len(threads.asked) == 7


async def test_a_cursor_that_leads_back_is_a_fault() -> None:
    for cursor in ("b", "a"):
        threads = Scripted(feed(), {("posts", "b"): page(post(1), cursor=cursor)})
        place = FeedPosition("b", ("a",))
        with pytest.raises(BrokenAnswer):
            await run(threads, FeedPollArgs(feed_id=FeedId(1), phase=FeedPhase.POSTS, place=place))


async def test_a_cursor_that_is_void_means_from_the_top_and_not_for_ever() -> None:
    bad = BadRequest("threads", "profile_posts", 400, "Invalid cursors values")
    threads = Scripted(feed(), {("posts", None): page(post(2), cursor="c"), ("posts", "c"): bad})
    with pytest.raises(BadRequest):
        await run(threads)
    assert threads.asked == [("posts", None), ("posts", "c")] * 4


async def test_what_cannot_be_read_is_asked_for_by_its_id_or_seen_again() -> None:
    threads = Scripted(
        feed(),
        {
            ("posts", None): page(post(3), unreadable=[illegible(8), illegible(None)]),
            ("post", 8): page(post(8, quotes=9)).gathered,
            ("post", 9): None,
            ("conversation", 8, None): page(post(81), unreadable=[illegible(82), illegible(83)]),
            ("post", 82): page(post(82)).gathered,
            ("post", 83): page(post(83, handle="bob")).gathered,
        },
    )
    writes, _ = await run(threads)
    assert stored(writes) == [3, 8, 81, 82]
    assert threads.asked.count(("posts", None)) == 2
    assert [each for each in writes if isinstance(each, Unreadable)]


async def test_an_empty_end_after_something_unreadable_is_no_second_look() -> None:
    for place in [("posts", None), ("conversation", 3, None)]:
        looks: list[Said] = [page(unreadable=[illegible(None)]), page(), page(post(31))]
        writes, _ = await run(Scripted(feed(), {("posts", None): page(post(3), answered=[3]), place: looks}))
        assert stored(writes)[-1] == 31, place


CLOSED = {
    "nobody": (None, "threads has no account @ann"),
    "not permitted": (NotPermitted("threads", "profile_lookup", "no", status=403), "does not let this token call"),
}


@pytest.mark.parametrize("case", CLOSED)
async def test_who_cannot_be_looked_up_is_refused_with_the_reason(case: str) -> None:
    said, reason = CLOSED[case]
    threads = Scripted(feed(state=FeedState.NEW, user_id=None), {("profile", "ann"): said})
    writes, _ = await run(threads)
    (refused,) = writes
    assert isinstance(refused, FeedRefused)
    assert reason in refused.reason


async def test_posts_that_may_not_be_read_end_the_feed_and_replies_do_not() -> None:
    closed = Scripted(feed(), {("posts", None): NotShown("threads", "profile_posts", "gone", status=400)})
    writes, _ = await run(closed)
    assert isinstance(writes[0], FeedRefused)
    denied = NotPermitted("threads", "media/conversation", "threads_read_replies", status=403)
    half = Scripted(
        feed(), {("posts", None): page(post(2), post(1), answered=[1, 2]), ("conversation", 2, None): denied}
    )
    writes, _ = await run(half)
    last = writes[-1]
    assert isinstance(last, FeedPolled)
    assert (last.newest_post_at, last.newest_reply_at) == (NOON, None)
    assert "threads_read_replies" in (last.reason or "")


async def test_a_post_of_tomorrow_does_not_hide_those_to_come() -> None:
    threads = Scripted(feed(), {("posts", None): page(post(2, hours=-1000), post(1))})
    writes, _ = await run(threads)
    assert isinstance(writes[-1], FeedPolled)
    assert writes[-1].newest_post_at == NOON


async def test_a_removed_feed_is_left_alone() -> None:
    threads = Scripted(feed(state=FeedState.REMOVED), {})
    _, outcomes = await run(threads)
    assert (outcomes, threads.asked) == ([Done()], [])


def test_visits_survive_the_store() -> None:
    args = FeedPollArgs(feed_id=FeedId(1), visits=[Visit(PostId(2**62), replies=True, place=FeedPosition("a", ("b",)))])
    assert msgspec.json.decode(msgspec.json.encode(args), type=FeedPollArgs).visits[0] == args.visits[0]
    assert timedelta() < SLACK
