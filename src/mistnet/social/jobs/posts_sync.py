"""Posts sync: the posts of a set of users since a post, one page per step, several authors per search."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from loguru import logger

from mistnet.governor.errors import BrokenAnswer
from mistnet.governor.model import CallPurpose
from mistnet.kit.text import are, counted
from mistnet.queue.model import Args, Continue, Done, Fail, Job, KindName, Lane, NewJob, Outcome, Write
from mistnet.social.accounts import AccountState
from mistnet.social.ingests import IngestAdvanced, IngestBegun, IngestEnded, IngestKind, IngestStatus, NotReturned
from mistnet.social.jobs import args
from mistnet.social.jobs.sweeps import ENDPOINT, PROFILE_DAYS, SECOND_LOOK, Sweeper, holes
from mistnet.social.model import Gathered, Page, Platform, Post, PostId, Span, UserId, X

POSTS_SYNC: Final = KindName("posts_sync")
READ_AGAIN: Final = "reads a page again on which something was illegible"
MOST_USERS: Final = 1_000
AUTHORS_PER_QUESTION: Final = 16
"""Sixteen of the longest handles with both bounds stay below the 512 characters that X allows."""


class PostsSyncArgs(Args, frozen=True):
    """The users, the floor, and the progress: which group of users, down to which id, and what was odd."""

    user_ids: tuple[UserId, ...]
    floor: PostId
    asked_by: str = "operator"
    ready: bool = False
    question: int = 0
    ceiling: PostId | None = None
    suspected: bool = False
    renamed: bool = False
    reread: bool = False
    outsiders: int = 0
    unread: int = 0
    platform: Platform = X

    @property
    def group(self) -> tuple[UserId, ...]:
        """The users of the current search."""
        first = self.question * AUTHORS_PER_QUESTION
        return self.user_ids[first : first + AUTHORS_PER_QUESTION]


def posts_sync(
    user_ids: Collection[UserId], floor: PostId, *, asked_by: str = "operator", platform: Platform = X
) -> NewJob:
    """The same users since the same post are one job, however often it is requested."""
    ids = tuple(sorted(set(user_ids)))
    names = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]
    return NewJob(
        kind=POSTS_SYNC,
        key=args.key_of(platform, f"{names}:{floor}"),
        lane=Lane(platform),
        args=PostsSyncArgs(user_ids=ids, floor=floor, asked_by=asked_by, platform=platform),
    )


def begun(job: Job[PostsSyncArgs]) -> IngestBegun:
    return IngestBegun(
        platform=job.args.platform,
        kind=IngestKind.POSTS_SYNC,
        job_id=job.id,
        asked_by=job.args.asked_by,
        mode=f"since {job.args.floor}",
        subject_id=job.args.user_ids[0] if len(job.args.user_ids) == 1 else None,
        ids=job.args.user_ids,
    )


def posts_within(page: Page, span: Span, platform: Platform) -> list[Post]:
    """The page's posts within the span, by any author. Raises BrokenAnswer for an impossible page."""
    own = [page.gathered.posts[each] for each in page.own]
    within = [post for post in own if post.id in span]
    if within or _passed(page, span):
        return within
    if own:
        raise BrokenAnswer(platform, ENDPOINT, f"only posts outside of what was asked for: {own[0].id}")
    if page.gathered.unreadable:
        raise BrokenAnswer(platform, ENDPOINT, "nothing on the page can be read")
    if page.has_more:
        raise BrokenAnswer(platform, ENDPOINT, "an empty page that claims there is more")
    return []


def lowest(page: Page, posts: Sequence[Post], span: Span) -> PostId | None:
    """The lowest id of the page; None if it is empty."""
    return min([*(post.id for post in posts), *_passed(page, span)], default=None)


def _passed(page: Page, span: Span) -> list[PostId]:
    return [each.post_id for each in page.gathered.unreadable if each.post_id and each.post_id in span]


class PostsSync(msgspec.Struct, frozen=True, kw_only=True):
    """Syncs a set of users' posts. The boundaries of accounts do not move."""

    sweeper: Sweeper

    async def sync(self, job: Job[PostsSyncArgs]) -> Outcome:
        """Fetch unknown users and old profiles, then search. If a user is missing, fail and write nothing."""
        at = job.args
        wanted = at.group if at.ready else at.user_ids
        known = await self.sweeper.look.profiles(at.platform, wanted)
        if at.ready:
            handles = {user_id: profile.handle for user_id, profile in known.items() if profile.handle}
            return await self._ask(job, handles) if handles else self._next_question(job, [])
        missing = [each for each in wanted if each not in known]
        # Handles change, and a search for an old one finds nothing.
        oldest = self.sweeper.clock.now() - PROFILE_DAYS
        stale = [
            each for each in wanted if each in known and ((was := known[each].profiled_at) is None or was < oldest)
        ]
        answers = await self._users(job, [*missing, *stale])
        lacking = [each for each in missing if not any(each in answer.users for answer in answers)]
        unread = next((each.problem for answer in answers for each in answer.unreadable), None)
        if lacking and unread is not None:
            # The missing user may be the one that is illegible: this is no proof that they are gone.
            raise BrokenAnswer(at.platform, "users", unread)
        if lacking:
            problem = str(NotReturned(at.platform, "users", lacking, asked=len(wanted)))
            ended = IngestEnded(job_id=job.id, status=IngestStatus.ERROR, calls=len(answers), problem=problem)
            return Fail(problem, [begun(job), ended])
        writes = [write for answer in answers for write in answer.writes]
        ready = msgspec.structs.replace(at, ready=True)
        return Continue([begun(job), *writes, IngestAdvanced(job_id=job.id, calls=len(answers))], args=ready)

    async def _ask(self, job: Job[PostsSyncArgs], handles: Mapping[UserId, str]) -> Outcome:
        at = job.args
        span = Span(floor=at.floor, ceiling=at.ceiling)
        page = await self.sweeper.sources[at.platform].search_posts(handles.values(), span, purpose=CallPurpose(job.id))
        requested = {handle.lower() for handle in handles.values()}
        others = {page.gathered.posts[each].author_id for each in page.own} - handles.keys()
        if not at.renamed and any((page.gathered.users[each].handle or "").lower() in requested for each in others):
            # A handle belongs to another user now: fetch the current handles and start this search again.
            answers = await self._users(job, at.group)
            writes = [*page.gathered.writes, *(write for answer in answers for write in answer.writes)]
            again = msgspec.structs.replace(at, renamed=True, ceiling=None, suspected=False)
            return Continue([begun(job), *writes, IngestAdvanced(job_id=job.id, calls=1 + len(answers))], args=again)
        posts = posts_within(page, span, at.platform)
        reached = lowest(page, posts, span)
        advanced = IngestAdvanced(job_id=job.id, calls=1)
        if holes(page, span)[1] and not at.reread:
            again = msgspec.structs.replace(at, reread=True)
            return Continue([begun(job), *page.gathered.writes, advanced], args=again, reason=READ_AGAIN)
        if reached is not None:
            return await self._step(job, page, posts, reached)
        if not (at.suspected and job.is_first_try):
            again = msgspec.structs.replace(at, suspected=True)
            later = self.sweeper.clock.now() + self.sweeper.rules.second_look
            return Continue([begun(job), advanced], args=again, run_at=later, reason=SECOND_LOOK)
        return self._next_question(job, [advanced])

    async def _users(self, job: Job[PostsSyncArgs], ids: Sequence[UserId]) -> list[Gathered]:
        size, source = self.sweeper.rules.users_per_call, self.sweeper.sources[job.args.platform]
        return [
            await source.users(ids[start : start + size], purpose=CallPurpose(job.id))
            for start in range(0, len(ids), size)
        ]

    async def _step(self, job: Job[PostsSyncArgs], page: Page, posts: Sequence[Post], reached: PostId) -> Outcome:
        others = [post for post in posts if post.author_id not in job.args.user_ids]
        if others:
            # Posts of other authors are stored too.
            logger.warning(
                "posts sync, job {job}: {count} of authors not asked for, such as post {post} of user {user}",
                job=job.id,
                count=counted(len(others), "post"),
                post=others[0].id,
                user=others[0].author_id,
            )
        by_id, between = holes(page, Span(floor=job.args.floor, ceiling=job.args.ceiling))
        down = msgspec.structs.replace(
            job.args,
            ceiling=PostId(reached - 1),
            suspected=False,
            reread=False,
            outsiders=job.args.outsiders + len(others),
            unread=job.args.unread + len(between),
        )
        look, platform = self.sweeper.look, job.args.platform
        settled = await look.known_posts(platform, by_id) | await look.unreadable_posts(platform, by_id)
        leads: list[NewJob] = []
        for user_id in dict.fromkeys(post.author_id for post in posts):
            account = await look.account(platform, user_id)
            # Posts of tracked accounts lead to the same jobs as in a sweep.
            if account and account.state is not AccountState.UNTRACKED:
                own = [post for post in posts if post.author_id == user_id]
                leads += await self.sweeper.leads(page, own, account)
        leads += [args.hydrate_post(each, platform=platform) for each in by_id if each not in settled]
        advanced = IngestAdvanced(job_id=job.id, calls=1, items=len(posts))
        return Continue([begun(job), *page.gathered.writes, *leads, advanced], args=down)

    def _next_question(self, job: Job[PostsSyncArgs], writes: Sequence[Write]) -> Outcome:
        at = msgspec.structs.replace(
            job.args, question=job.args.question + 1, ceiling=None, suspected=False, renamed=False, reread=False
        )
        if at.group:
            return Continue([begun(job), *writes], args=at)
        notes: list[str] = []
        if at.outsiders:
            notes.append(f"{counted(at.outsiders, 'post')} {are(at.outsiders)} of authors who were not asked for")
        if at.unread:
            notes.append(f"in {at.unread} places something could not be read and is in quarantine")
        ended = IngestEnded(job_id=job.id, status=IngestStatus.SUCCESS, problem="; ".join(notes) or None)
        return Done([begun(job), *writes, ended])
