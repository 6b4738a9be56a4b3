"""The strict order of work among the kinds the app registers: sweeps, then walks, then profiles, then suggestions."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import pytest

from mistnet.app import App
from mistnet.queue.kinds import Kind, KindRegistry
from mistnet.queue.model import JobClass, KindName, NewJob, WorkerName
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.enqueue import JobWriter
from mistnet.settings import Settings
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId
from tests.support import START
from tests.worlds import KEY

ORDER = (
    (args.BACKFILL, args.CATCH_UP, args.REPOSTS),
    (args.WALK,),
    (args.HYDRATE_USER, args.HYDRATE_POST, args.RELOOK),
    (args.SUGGESTION,),
)
USER = UserId(7)


def jobs() -> list[NewJob]:
    """One of each kind; the later its class, the longer it has been due."""
    walk = args.WalkArgs(
        conversation_id=PostId(1), reply_id=PostId(2), next_id=PostId(1), next_user_id=USER, account_id=USER
    )
    made = [
        args.backfill(USER),
        args.catch_up(USER, PostId(1)),
        args.reposts(USER, PostId(1)),
        NewJob(kind=args.WALK, key="2", args=walk),
        args.hydrate_user(USER, now=START, fill=timedelta()),
        args.hydrate_post(PostId(3)),
        args.relook(USER),
        args.suggestion("ann"),
    ]
    return [
        msgspec.structs.replace(job, run_at=START - timedelta(hours=place + 1), reason=None)
        for place, job in enumerate(made)
    ]


async def claim_all(url: str, swapped: Mapping[KindName, JobClass] | None = None) -> list[KindName]:
    """The kinds of all jobs in the order in which a worker with room for one takes them."""
    app = App(Settings.model_validate({"database_url": url, "x_api_key": KEY}))
    kinds = KindRegistry([_with_class(kind, (swapped or {}).get(kind.name)) for kind in app.kinds.values()])
    job_writer = JobWriter(kinds.rules)
    queue = JobQueue(app.database, job_writer, app.writers)
    try:
        await queue.enqueue(jobs(), now=START)
        taken: list[KindName] = []
        while leases := await queue.claim(
            worker=WorkerName("ann"),
            targets=[
                msgspec.structs.replace(each, take=1) for each in kinds.targets(slots=1, lanes=None, lane_caps={})
            ],
            room=1,
            lease=timedelta(minutes=5),
            now=START,
            aged_before=None,
        ):
            taken += [lease.kind for lease in leases]
        return taken
    finally:
        await app.database.close()


def _with_class(kind: Kind, job_class: JobClass | None) -> Kind:
    rules = msgspec.structs.replace(kind.rules, job_class=job_class or kind.rules.job_class)
    return msgspec.structs.replace(kind, rules=rules)


def in_order(taken: Sequence[KindName]) -> bool:
    classes = [next(place for place, kinds in enumerate(ORDER) if kind in kinds) for kind in taken]
    return len(taken) == len(jobs()) and classes == sorted(classes)


def test_every_kind_of_the_app_is_of_the_class_it_was_given(sqlite_url: str) -> None:
    app = App(Settings.model_validate({"database_url": sqlite_url, "x_api_key": KEY}))
    classes = {
        job_class: {name for name, kind in app.kinds.items() if kind.rules.job_class == job_class}
        for job_class in JobClass
    }
    assert classes == {
        JobClass.SWEEP: {*ORDER[0], "scrape", "follow_sync", "posts_sync", "feed_poll", "deliver"},
        JobClass.WALK: {*ORDER[1], "crawl", "price", "materialize"},
        JobClass.HYDRATION: set(ORDER[2]),
        JobClass.SUGGESTION: set(ORDER[3]),
    }


async def test_the_kinds_of_the_app_are_claimed_in_the_strict_order_of_their_classes(sqlite_url: str) -> None:
    assert in_order(await claim_all(sqlite_url))


@pytest.mark.parametrize(
    "swapped",
    [
        {args.BACKFILL: JobClass.WALK, args.WALK: JobClass.SWEEP},
        {args.WALK: JobClass.HYDRATION, args.HYDRATE_USER: JobClass.WALK},
        {args.RELOOK: JobClass.SUGGESTION, args.SUGGESTION: JobClass.HYDRATION},
    ],
    ids=["walk-before-sweep", "profile-before-walk", "suggestion-before-profile"],
)
async def test_swapped_classes_are_noticed(sqlite_url: str, swapped: Mapping[KindName, JobClass]) -> None:
    assert not in_order(await claim_all(sqlite_url, swapped))
