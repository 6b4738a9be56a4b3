"""Job handlers that collect users and posts, and the list of their kinds for the sources of a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from mistnet.kit.clock import Clock
from mistnet.queue.kinds import Kind, batched, single
from mistnet.queue.model import Job, JobClass, JobId, Outcome
from mistnet.social.ingests import recorded
from mistnet.social.jobs import args
from mistnet.social.jobs.args import CollectRules
from mistnet.social.jobs.hydration import Profiler, Threads
from mistnet.social.jobs.posts_sync import POSTS_SYNC, PostsSync, PostsSyncArgs, begun
from mistnet.social.jobs.sweeps import Sweeper
from mistnet.social.model import SocialSources

if TYPE_CHECKING:
    from mistnet.social.store.accounts import StoreLook


def social_kinds(sources: SocialSources, *, look: StoreLook, clock: Clock, rules: CollectRules) -> Sequence[Kind]:
    """Each platform is a lane of every kind, so that a pause or limit of one source never holds up another."""
    sweeper = Sweeper(look=look, sources=sources, clock=clock, rules=rules)
    threads = Threads(look=look, sources=sources, clock=clock, rules=rules, in_flight={})
    profiler = Profiler(look=look, sources=sources, clock=clock, rules=rules)
    posts_sync = recorded(PostsSync(sweeper=sweeper).sync, begun)
    sweep: dict[str, Any] = {"job_class": JobClass.SWEEP, "lanes": tuple(sources)}
    walk: dict[str, Any] = {"job_class": JobClass.WALK, "lanes": tuple(sources)}
    hydrate: dict[str, Any] = {"job_class": JobClass.HYDRATION, "lanes": tuple(sources)}
    suggest: dict[str, Any] = {"job_class": JobClass.SUGGESTION, "lanes": tuple(sources)}
    users, posts = _by_platform(profiler.hydrate), _by_platform(threads.hydrate)
    return [
        single(args.BACKFILL, sweeper.backfill, args.BackfillArgs, **sweep),
        single(args.CATCH_UP, sweeper.catch_up, args.RangeArgs, **sweep),
        single(args.REPOSTS, sweeper.reposts, args.RangeArgs, **sweep),
        batched(args.WALK, _by_platform(threads.walk), args.WalkArgs, batch=args.WALKS_PER_CALL, **walk),
        batched(args.HYDRATE_USER, users, args.HydrateUserArgs, batch=rules.users_per_call, **hydrate),
        batched(args.HYDRATE_POST, posts, args.HydratePostArgs, batch=rules.posts_per_call, **hydrate),
        single(POSTS_SYNC, posts_sync, PostsSyncArgs, **sweep),
        single(args.RELOOK, profiler.relook, args.RelookArgs, **hydrate),
        single(args.SUGGESTION, profiler.suggestion, args.SuggestionArgs, **suggest),
    ]


def _by_platform(
    handle: Callable[[Sequence[Job[Any]]], Awaitable[Sequence[Outcome]]],
) -> Callable[[Sequence[Job[Any]]], Awaitable[Sequence[Outcome]]]:
    """One call goes to one source: a batch with jobs of several platforms is handled in parts."""

    async def run(jobs: Sequence[Job[Any]]) -> Sequence[Outcome]:
        outcomes: dict[JobId, Outcome] = {}
        for platform in dict.fromkeys(job.args.platform for job in jobs):
            own = [job for job in jobs if job.args.platform == platform]
            outcomes |= zip((job.id for job in own), await handle(own), strict=True)
        return [outcomes[job.id] for job in jobs]

    return run
