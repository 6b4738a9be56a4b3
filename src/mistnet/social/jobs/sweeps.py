"""Sweep one account's posts backwards, one page per step: backfill, catch-up, native retweets, news."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from mistnet.governor.errors import BrokenAnswer
from mistnet.governor.model import CallPurpose
from mistnet.kit.clock import Clock
from mistnet.queue.events import EventKind, NewEvent, summaries
from mistnet.queue.model import Continue, Done, Fail, Job, NewJob, Outcome, Write
from mistnet.social.accounts import (
    Account,
    AccountState,
    AccountStateChange,
    Fetched,
    HistoryJudged,
    Swept,
    after,
    next_limit,
)
from mistnet.social.coverage import enough_stored
from mistnet.social.jobs import args
from mistnet.social.jobs.args import BackfillArgs, CollectRules, RangeArgs
from mistnet.social.jobs.hydration import CurrentProfile, check_profile, state_change, walks_up, ways_up
from mistnet.social.model import Page, Platform, Post, PostId, SocialSources, Span, UserId, X

if TYPE_CHECKING:
    from mistnet.social.store.accounts import StoreLook

ENDPOINT = "search_posts"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The account's posts within the span, and the lowest and highest id of the page."""

    posts: Sequence[Post]
    lowest: PostId
    highest: PostId


class OtherAuthors(msgspec.Struct, frozen=True):
    """Only posts of other users: the handle no longer belongs to this account."""


class Emptiness(msgspec.Struct, frozen=True):
    """No posts, and no promise of more."""


Verdict: TypeAlias = Progress | OtherAuthors | Emptiness


def verdict(page: Page, user_id: UserId, span: Span, platform: Platform = X) -> Verdict:
    """Judge a page. Raises BrokenAnswer for an impossible page, which is fetched again and never an end."""
    shown = [page.gathered.posts[post_id] for post_id in page.own]
    own = [post for post in shown if post.author_id == user_id]
    within = [post for post in own if post.id in span]
    passed = [each.post_id for each in page.gathered.unreadable if each.post_id and each.post_id in span]
    if within or passed:
        reached = [*(post.id for post in within), *passed]
        return Progress(posts=within, lowest=min(reached), highest=max(reached))
    if own:
        raise BrokenAnswer(platform, ENDPOINT, f"only posts above the ceiling {span.ceiling}")
    if shown:
        return OtherAuthors()
    if page.gathered.unreadable:
        raise BrokenAnswer(platform, ENDPOINT, "nothing on the page can be read")
    if page.has_more:
        # Search returns empty pages between full ones: only one that promises no more may be an end.
        raise BrokenAnswer(platform, ENDPOINT, "an empty page that claims there is more")
    return Emptiness()


def holes(page: Page, span: Span) -> tuple[list[PostId], list[Span]]:
    """Posts that could not be read: their ids if those are legible, else the spans between their neighbours.

    Below the last legible post of the page there is no hole, because the next page begins there.
    """
    by_id = [each.post_id for each in page.gathered.unreadable if each.post_id]
    between = [
        Span(floor=each.below or span.floor, ceiling=PostId(each.above - 1) if each.above else span.ceiling)
        for each in page.gathered.unreadable
        if not each.post_id and each.below
    ]
    return by_id, list(dict.fromkeys(between))


def collected(account: Account, at: RangeArgs) -> list[NewEvent]:
    """The event of a catch-up that found new posts."""
    if at.found == at.known:
        return []
    payload = {
        "user_id": str(account.user_id),
        "handle": account.handle,
        "new": at.found - at.known,
        "since_post_id": _shown(at.floor or None),
        "newest_post_id": _shown(at.top),
    }
    return [NewEvent(kind=EventKind.POSTS_COLLECTED, subject=str(account.user_id), payload=payload)]


def backfilled(account: Account) -> list[NewEvent]:
    """The event of a history that is complete for the first time."""
    if account.backfilled_at is not None:
        return []
    payload = {
        "user_id": str(account.user_id),
        "handle": account.handle,
        "oldest_post_id": _shown(account.oldest_post_id),
        "newest_post_id": _shown(account.newest_post_id),
    }
    return [NewEvent(kind=EventKind.ACCOUNT_BACKFILLED, subject=str(account.user_id), payload=payload)]


def _shown(post_id: int | None) -> str | None:
    return None if post_id is None else str(post_id)


PROFILE_FRESH: Final = timedelta(minutes=5)
PROFILE_DAYS: Final = timedelta(days=1)
SECOND_LOOK: Final = "checks a second time before it accepts the end"


class Sweeper(msgspec.Struct, frozen=True, kw_only=True):
    """The sweeps of every platform. One page per step; everything a page leads to lands with it or not at all."""

    look: StoreLook
    sources: SocialSources
    clock: Clock
    rules: CollectRules

    async def backfill(self, job: Job[BackfillArgs]) -> Outcome:
        """Fetch one page below the oldest stored post."""
        account = await self.look.account(job.args.platform, job.args.user_id)
        if account is None:
            return Fail(f"there is no account {args.key_of(job.args.platform, job.args.user_id)}")
        if account.state is not AccountState.ACTIVE:
            return Done()
        span = Span(ceiling=PostId(account.oldest_post_id - 1) if account.oldest_post_id else None)
        page = await self._page(job, account, span)
        match verdict(page, account.user_id, span, account.platform):
            case Progress(posts=posts, lowest=lowest, highest=highest):
                reached = Swept(
                    platform=account.platform, user_id=account.user_id, oldest=lowest, newest=highest, found=len(posts)
                )
                writes = [*await self._collected(page, posts, account), *await self.mending(page, account, span)]
                on = msgspec.structs.replace(job.args, suspected=not page.has_more)
                return self._down(account, page, [*writes, reached], on)
            case Emptiness() | OtherAuthors() if not (job.args.suspected and job.is_first_try):
                again = msgspec.structs.replace(job.args, suspected=True)
                return Continue(tuple(page.gathered.writes), args=again, run_at=self._later(), reason=SECOND_LOOK)
            case Emptiness() | OtherAuthors():
                return await self._end_of_backfill(job, account, page)

    async def _end_of_backfill(self, job: Job[BackfillArgs], account: Account, page: Page) -> Outcome:
        """Two requests agree. The end is accepted if the handle still belongs to this account."""
        writes: list[Write] = list(page.gathered.writes)
        counted = account.posts_count
        fresh = account.profiled_at is not None and self.clock.now() - account.profiled_at <= PROFILE_FRESH
        # An empty search proves an end only for a handle that is this account's and has returned its posts.
        if page.own or not fresh or (account.oldest_post_id is None and account.posts_count != 0):
            profile = await check_profile(self.sources[account.platform], account, CallPurpose(job.id, account.user_id))
            writes += profile.writes
            counted = profile.posts_count
            if profile.state is not AccountState.ACTIVE:
                change = self._state_change(account, profile)
                return Done([*writes, change, args.sweep_is_over(account.platform, account.user_id)])
            if profile.renames(account):
                return Continue(writes, args=msgspec.structs.replace(job.args, suspected=False))
        # Walks that wait for this sweep go on now: their posts are stored, or will never be.
        finished = Swept(platform=account.platform, user_id=account.user_id, backfilled=True)
        writes += [finished, *backfilled(account)]
        writes += await self._judge(account, counted, reposts_ended=False)
        return Done([*writes, *self._reposts(account), args.sweep_is_over(account.platform, account.user_id)])

    async def catch_up(self, job: Job[RangeArgs]) -> Outcome:
        """Fetch one page of posts above the newest stored one. The boundary moves when all of them are stored."""
        return await self._range(job, reposts=False)

    async def reposts(self, job: Job[RangeArgs]) -> Outcome:
        return await self._range(job, reposts=True)

    async def _range(self, job: Job[RangeArgs], *, reposts: bool) -> Outcome:
        account = await self.look.account(job.args.platform, job.args.user_id)
        if account is None:
            return Fail(f"there is no account {args.key_of(job.args.platform, job.args.user_id)}")
        if account.state is not AccountState.ACTIVE:
            return Done()
        at = job.args
        span = Span(floor=at.floor, ceiling=at.ceiling)
        page = await self._page(job, account, span, reposts=reposts)
        found = verdict(page, account.user_id, span, account.platform)
        sure = at.suspected and job.is_first_try
        if at.mending and (sure or isinstance(found, Progress)):
            return Done(await self._mended(page, found, at, account, reposts=reposts))
        match found:
            case Progress():
                writes = await self._collected(page, found.posts, account)
                writes += await self.mending(page, account, span, reposts=reposts)
                ids = [post.id for post in found.posts]
                known = set() if reposts else await self.look.known_posts(at.platform, ids)
                down = msgspec.structs.replace(
                    at,
                    ceiling=PostId(found.lowest - 1),
                    top=max(at.top or found.highest, found.highest),
                    found=at.found + len(ids),
                    known=at.known + len(known),
                    suspected=not page.has_more,
                )
                return self._down(account, page, writes, down)
            case Emptiness() | OtherAuthors() if not sure and (at.mending or at.top or (reposts and not at.floor)):
                again = msgspec.structs.replace(at, suspected=True)
                return Continue(tuple(page.gathered.writes), args=again, run_at=self._later(), reason=SECOND_LOOK)
            case Emptiness() | OtherAuthors():
                return await self._end_of_range(job, account, page, reposts=reposts)

    def _down(self, account: Account, page: Page, writes: Sequence[Write], on: BackfillArgs | RangeArgs) -> Continue:
        """Continue with the next page. If the page promises no more, a second request confirms the end."""
        if not page.has_more:
            return Continue(writes, args=on, run_at=self._later(), reason=SECOND_LOOK)
        if isinstance(on, BackfillArgs) or on.limit is None or on.fetched < on.limit:
            return Continue(writes, args=on)
        # The round is full: the rest follows after a pause, with a limit estimated from this round.
        now = self.clock.now()
        learned = after(account.fetch, fetched=on.fetched, new=on.fetched_new, limit=on.limit, at=now)
        limit, go_on_at = next_limit(learned, self.rules.fetching), now + self.rules.round_pause
        return Continue(
            [*writes, self._fetched(on)],
            args=msgspec.structs.replace(on, limit=limit, found_before=on.found, known_before=on.known),
            run_at=go_on_at,
            reason=f"has more new posts than its limit of {on.limit}; goes on at {go_on_at:%H:%M}",
        )

    def _fetched(self, at: RangeArgs) -> Fetched:
        return Fetched(platform=at.platform, user_id=at.user_id, fetched=at.fetched, new=at.fetched_new, limit=at.limit)

    async def _mended(
        self, page: Page, found: Verdict, at: RangeArgs, account: Account, *, reposts: bool
    ) -> list[Write]:
        """The writes of a second search. It may have found the newest post of the account."""
        if not isinstance(found, Progress):
            return list(page.gathered.writes)
        writes = await self._collected(page, found.posts, account)
        newest = account.newest_repost_id if reposts else account.newest_post_id
        if at.ceiling is None and not page.has_more and (newest is None or newest >= at.floor):
            top = Swept(platform=account.platform, user_id=account.user_id)
            field = "newest_repost" if reposts else "newest"
            writes.append(msgspec.structs.replace(top, **{field: found.highest}))
        return writes

    async def _end_of_range(self, job: Job[RangeArgs], account: Account, page: Page, *, reposts: bool) -> Outcome:
        at, counted = job.args, account.posts_count
        stale = account.profiled_at is None or self.clock.now() - account.profiled_at > PROFILE_DAYS
        writes: list[Write] = list(page.gathered.writes)
        if stale or page.own:
            profile = await check_profile(self.sources[account.platform], account, CallPurpose(job.id, account.user_id))
            writes += profile.writes
            counted = profile.posts_count
            if profile.state is not AccountState.ACTIVE:
                return Done([*writes, self._state_change(account, profile)])
            if profile.renames(account):
                return Continue(writes, args=msgspec.structs.replace(at, suspected=False))
        if reposts:
            done = Swept(
                platform=account.platform,
                user_id=account.user_id,
                newest_repost=at.top,
                reposts_backfilled=at.floor == 0,
            )
            first = at.floor == 0 and account.reposts_backfilled_at is None
            judged = await self._judge(account, counted, reposts_ended=True) if first or account.suspect_since else []
            return Done([*writes, done, *judged])
        # The first posts ever found: all there is below the newest has been swept down to the lowest of them.
        oldest = PostId(at.ceiling + 1) if not at.floor and at.ceiling is not None else None
        writes.append(
            Swept(platform=account.platform, user_id=account.user_id, oldest=oldest, newest=at.top, found=at.found)
        )
        if account.suspect_since:
            writes += await self._judge(account, counted, reposts_ended=False)
        # A sweep of the whole history says nothing about how fast new posts come.
        swept_again = not at.floor and account.newest_post_id is not None
        if not swept_again and (at.fetched or not at.found_before):
            writes.append(self._fetched(at))
        if self.rules.summarize and at.found != at.known:
            known = {"user_id": str(account.user_id), "handle": account.handle}
            since = job.created_at
            new = await self.look.new_posts(account.platform, account.user_id, above=at.floor, stored_since=since)
            writes += summaries(str(account.user_id), known, new)
        return Done([*writes, *collected(account, at), *self._reposts(account)])

    async def _judge(self, account: Account, counted: int | None, *, reposts_ended: bool) -> list[Write]:
        """Compare the number of stored posts with the profile's count.

        If native reposts are swept apart, that sweep decides.
        """
        last_word = reposts_ended or not self._sweeps_reposts(account.platform)
        enough = enough_stored(counted, with_reposts=reposts_ended)
        # Counted no further than needed: an account may have a million posts.
        stored = await self.look.stored_posts(account.platform, account.user_id, most=enough) if enough else 0
        if stored >= enough and not (last_word and account.suspect_since):
            return []
        return [HistoryJudged(platform=account.platform, user_id=account.user_id, suspect=stored < enough)]

    async def _page(
        self, job: Job[BackfillArgs] | Job[RangeArgs], account: Account, span: Span, *, reposts: bool = False
    ) -> Page:
        source = self.sources[account.platform]
        return await source.search_posts(
            [account.handle], span, reposts=reposts, purpose=CallPurpose(job.id, account.user_id)
        )

    async def _collected(self, page: Page, posts: Sequence[Post], account: Account) -> list[Write]:
        """The page's users and posts, and the jobs that follow from them."""
        return [*page.gathered.writes, *await self.leads(page, posts, account)]

    async def leads(self, page: Page, posts: Sequence[Post], account: Account) -> list[NewJob]:
        """The jobs that follow from an account's posts: walks up from replies, and users they reply to."""
        now, fill = self.clock.now(), self.rules.batch_fill
        together = args.end_of_span(now, fill)
        starts = ways_up(posts, page.gathered.posts)
        unknown = {post.in_reply_to_user_id for post in posts if post.in_reply_to_user_id} - page.gathered.users.keys()
        above = {start.post_id for start in starts.values()}
        stored, known = await self.look.leads(account.platform, above, unknown)
        unknown -= known
        walks = walks_up(posts, starts, stored, account.user_id, run_at=together)
        strangers = [args.hydrate_user(each, now=now, fill=fill, platform=account.platform) for each in sorted(unknown)]
        return [*walks, *strangers]

    async def mending(self, page: Page, account: Account, span: Span, *, reposts: bool = False) -> list[NewJob]:
        """Jobs for posts that could not be read. A post that is stored or a known gap needs none."""
        # The whole page again would cost up to 300 credits, and an entry that is always bad would end the sweep.
        by_id, between = holes(page, span)
        platform = account.platform
        settled = await self.look.known_posts(platform, by_id) | await self.look.unreadable_posts(platform, by_id)
        again = [
            args.mend(account.user_id, each.floor, each.ceiling, reposts=reposts, platform=platform) for each in between
        ]
        lost = [each for each in by_id if each not in settled]
        return [*(args.hydrate_post(each, account.user_id, platform) for each in lost), *again]

    def _reposts(self, account: Account) -> list[NewJob]:
        """Where search leaves native reposts out, they take a pass of their own."""
        if not self._sweeps_reposts(account.platform):
            return []
        if account.reposts_backfilled_at is None:
            return [args.reposts(account.user_id, PostId(0), account.platform)]
        # Where none was ever found, one look over everything is enough: the next one follows at the next catch-up.
        return [args.reposts(account.user_id, account.newest_repost_id or PostId(1), account.platform)]

    def _sweeps_reposts(self, platform: Platform) -> bool:
        return self.rules.reposts and self.sources[platform].separate_reposts

    def _state_change(self, account: Account, profile: CurrentProfile) -> AccountStateChange:
        return state_change(account.platform, account.user_id, profile, self.clock.now() + self.rules.relook)

    def _later(self) -> datetime:
        return self.clock.now() + self.rules.second_look
