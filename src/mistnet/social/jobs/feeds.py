"""Poll one feed: its new posts, newest first, then its author's replies below them. One call per step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from mistnet.governor.errors import BadRequest, BrokenAnswer, NotPermitted
from mistnet.governor.model import CallPurpose
from mistnet.kit.clock import Clock
from mistnet.queue.kinds import Kind, single
from mistnet.queue.model import Args, Continue, Done, Job, JobClass, Lane, NewJob, Outcome, Write
from mistnet.social.accounts import Missing
from mistnet.social.errors import NotShown
from mistnet.social.feeds import (
    FEED_POLL,
    Feed,
    FeedFound,
    FeedGrown,
    FeedId,
    FeedLook,
    FeedPage,
    FeedPolled,
    FeedRefused,
    FeedSource,
    FeedState,
)
from mistnet.social.model import THREADS, Platform, Post, PostId

CURSORS_KEPT: Final = 8
SLACK: Final = timedelta(minutes=10)
"""New posts may appear late, so a poll reads this far below the boundary again."""


class FeedRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of feeds."""

    second_look: timedelta = timedelta(seconds=30)
    reply_window: timedelta = timedelta(days=3)
    profile_holds: timedelta = timedelta(days=1)


class FeedPhase(StrEnum):
    BEGIN = "begin"
    POSTS = "posts"
    REPLIES = "replies"


class FeedPosition(msgspec.Struct, frozen=True):
    """The position in a list: the cursor of the next page, and earlier ones."""

    after: str | None = None
    earlier: tuple[str, ...] = ()

    def next(self, page: FeedPage) -> FeedPosition:
        passed = (*self.earlier, self.after) if self.after else self.earlier
        return FeedPosition(page.cursor, tuple(each for each in passed if each)[-CURSORS_KEPT:])

    def require_progress(self, page: FeedPage, platform: Platform, endpoint: str) -> None:
        """Raises BrokenAnswer if the cursor repeats: the page is fetched again and is never an end."""
        if page.cursor is not None and page.cursor in (self.after, *self.earlier):
            raise BrokenAnswer(platform, endpoint, "a cursor that leads back to an earlier page")


class Visit(msgspec.Struct, frozen=True):
    """What to fetch after a page: a post by its id, or the replies below one.

    `whole`: no replies below it were read before. `if_own`: it is stored only if the feed's author wrote it.
    `suspected` and `unreadable`: the last page was an empty end, or had something that could not be read.
    """

    id: PostId
    replies: bool = False
    if_own: bool = False
    whole: bool = False
    place: FeedPosition = FeedPosition()
    suspected: bool = False
    unreadable: bool = False

    @property
    def is_second_look(self) -> bool:
        return self.suspected or self.unreadable


class FeedPollArgs(Args, frozen=True):
    """Posts above `floor` and replies above `reply_floor` are read; both are fixed when the poll begins.

    `top` is the newest post so far. `anchor` is when the poll began, by upstream's clock: what was said until then is
    read when it is over. `ended`: the list's end or its floor is reached. `unread` is why replies cannot be read.
    `suspected` and `unreadable` are those of a visit.
    """

    feed_id: FeedId
    phase: FeedPhase = FeedPhase.BEGIN
    own: bool = False
    floor: datetime | None = None
    reply_floor: datetime | None = None
    top: datetime | None = None
    anchor: datetime | None = None
    place: FeedPosition = FeedPosition()
    restarts: int = 0
    ended: bool = False
    suspected: bool = False
    unreadable: bool = False
    visits: Sequence[Visit] = ()
    unread: str | None = None


Looking = TypeVar("Looking", Visit, FeedPollArgs)


def look_again(at: Looking, *, empty_end: bool, unreadable: bool) -> Looking | None:
    """Fetch the same page again if it is doubtful in a new way. An empty end and an unreadable item are each
    accepted only when they are seen twice."""
    if empty_end and not at.suspected:
        return msgspec.structs.replace(at, suspected=True)
    if unreadable and not at.unreadable:
        return msgspec.structs.replace(at, unreadable=True)
    return None


def without_doubts(at: Looking) -> Looking:
    return msgspec.structs.replace(at, suspected=False, unreadable=False)


def feed_poll(feed_id: FeedId, platform: Platform = THREADS) -> NewJob:
    """Feeds of all platforms are numbered together, so the key needs no platform."""
    return NewJob(kind=FEED_POLL, key=str(feed_id), lane=Lane(platform), args=FeedPollArgs(feed_id=feed_id))


def feed_kinds(sources: Sequence[FeedSource], *, look: FeedLook, clock: Clock, rules: FeedRules) -> Sequence[Kind]:
    """One kind, with a lane for each platform."""
    by_platform = {each.platform: each for each in sources}
    poller = FeedPoller(look=look, sources=by_platform, clock=clock, rules=rules)
    return [single(FEED_POLL, poller.poll, FeedPollArgs, job_class=JobClass.SWEEP, lanes=tuple(by_platform))]


class FeedVisitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The writes of a visit, and further visits: before all others, or after them."""

    writes: Sequence[Write] = ()
    ahead: Sequence[Visit] = ()
    behind: Sequence[Visit] = ()
    unread: str | None = None


def _posts_of(page: FeedPage) -> Sequence[Post]:
    return [page.gathered.posts[each] for each in page.own]


SECOND_LOOK: Final = "checks a second time before it accepts the page"
_MOST_RESTARTS: Final = 3


class FeedPoller(msgspec.Struct, frozen=True, kw_only=True):
    """Polls feeds. What a page brings and the poll's own advance land together or not at all."""

    look: FeedLook
    sources: Mapping[Platform, FeedSource]
    clock: Clock
    rules: FeedRules

    async def poll(self, job: Job[FeedPollArgs]) -> Outcome:
        feed = await self.look.feed(job.args.feed_id)
        if feed is None or feed.state is FeedState.REMOVED:
            return Done()
        at = job.args
        if at.phase is FeedPhase.BEGIN:
            return await self._begin(job, feed)
        if at.visits:
            return await self._visit(job, feed)
        if not at.ended:
            return await self._page(job, feed)
        if at.own and at.phase is FeedPhase.POSTS:
            replies = msgspec.structs.replace(at, phase=FeedPhase.REPLIES, place=FeedPosition(), ended=False)
            return Continue(args=replies)
        # A post dated in the future would hide all posts until then from the next polls.
        newest = min(at.top, at.anchor) if at.top and at.anchor else at.top
        replied = None if at.unread else at.anchor
        return Done([FeedPolled(feed_id=at.feed_id, newest_post_at=newest, newest_reply_at=replied, reason=at.unread)])

    async def _begin(self, job: Job[FeedPollArgs], feed: Feed) -> Outcome:
        """Check that the account exists and is readable. The profile is fetched once a day."""
        purpose, source = CallPurpose(job.id), self.sources[feed.platform]
        seen_at = None
        if feed.state is FeedState.ACTIVE and feed.user_id is not None:
            seen_at = await self.look.profiled_at(feed.platform, feed.user_id)
        try:
            if seen_at is not None and self.clock.now() - seen_at < self.rules.profile_holds:
                return self._start(feed, own=await source.is_own(feed.handle, purpose=purpose))
            found = await source.profile(feed.handle, purpose=purpose)
        except NotPermitted as error:
            return Done([FeedRefused(feed_id=feed.id, reason=str(error))])
        if found is None:
            return Done([FeedRefused(feed_id=feed.id, reason=f"{feed.platform} has no account @{feed.handle}")])
        known = FeedFound(feed_id=feed.id, user_id=found.user.id)
        return self._start(feed, own=found.own, writes=[found.user, known])

    def _start(self, feed: Feed, *, own: bool, writes: Sequence[Write] = ()) -> Continue:
        floor, reply_floor = feed.newest_post_at, feed.newest_reply_at
        args = FeedPollArgs(feed_id=feed.id, phase=FeedPhase.POSTS, own=own, floor=floor, reply_floor=reply_floor)
        return Continue(writes, args=args)

    async def _page(self, job: Job[FeedPollArgs], feed: Feed) -> Outcome:
        at, purpose, after = job.args, CallPurpose(job.id), job.args.place.after
        source = self.sources[feed.platform]
        try:
            if at.phase is FeedPhase.POSTS:
                page = await source.posts(feed.handle, own=at.own, after=after, purpose=purpose)
            else:
                page = await source.own_replies(after=after, purpose=purpose)
        except (NotPermitted, NotShown) as error:
            # Without posts the feed is refused; without replies it goes on and records why.
            if at.phase is FeedPhase.POSTS:
                return Done([FeedRefused(feed_id=at.feed_id, reason=str(error))])
            return Continue(args=msgspec.structs.replace(at, ended=True, unread=str(error)))
        except BadRequest:
            if after is None or at.restarts >= _MOST_RESTARTS:
                raise
            # The cursor is not valid any more: begin at the top again, down to the same floor.
            return Continue(args=msgspec.structs.replace(at, place=FeedPosition(), restarts=at.restarts + 1))
        at.place.require_progress(page, feed.platform, str(at.phase))
        sure = at if job.is_first_try else without_doubts(at)
        if again := look_again(sure, empty_end=page.is_empty_end, unreadable=page.has_nameless):
            return Continue(page.gathered.unreadable, args=again, run_at=self._later(), reason=SECOND_LOOK)
        return await self._next_page(at, page, feed)

    async def _next_page(self, at: FeedPollArgs, page: FeedPage, feed: Feed) -> Outcome:
        """The writes of a page, the visits it leads to, and the next cursor, unless everything new is read."""
        of_posts = at.phase is FeedPhase.POSTS
        posts = _posts_of(page)
        known = await self.look.known_posts(feed.platform, page.own)
        moments = [post.created_at for post in posts]
        # By upstream's clock alone: this machine's may differ from it.
        anchor = at.anchor or page.at or max(moments, default=None)
        since = at.reply_floor or anchor
        # Younger posts may have new replies by their author.
        young = since - self.rules.reply_window if since else None
        floor = at.floor if of_posts else at.reply_floor
        lowest = floor - SLACK if floor else None
        if lowest and young and of_posts and not at.own:
            # Read young posts again even if they are stored, to see whether they were answered meanwhile.
            lowest = min(lowest, young)
        down = msgspec.structs.replace(
            without_doubts(at),
            top=max(filter(None, [*moments, at.top]), default=None) if of_posts else at.top,
            anchor=anchor,
            place=at.place.next(page),
            ended=page.cursor is None or bool(lowest and moments and moments[-1] < lowest),
            visits=await self._visits(at, page, posts, known, young),
        )
        grown = FeedGrown(feed_id=at.feed_id, posts=len(page.own) - len(known))
        return Continue([*page.gathered.writes, grown], args=down)

    async def _visits(
        self,
        at: FeedPollArgs,
        page: FeedPage,
        posts: Sequence[Post],
        known: Collection[PostId],
        young: datetime | None,
    ) -> Sequence[Visit]:
        illegible = [each.post_id for each in page.gathered.unreadable if each.post_id]
        references = await self._unseen(page.gathered.posts, posts)
        visits = [Visit(each) for each in dict.fromkeys([*illegible, *references])]
        # A feed of one's own has its replies in a list of their own: nothing needs to be read below its posts.
        if at.own or at.unread or at.phase is not FeedPhase.POSTS:
            return visits
        visits += [Visit(each, replies=True, whole=True) for each in illegible]
        for post in posts:
            if post.id not in page.answered or post.reposted is not None:
                continue
            # A stored post may have come with another post, without its replies.
            fresh = at.floor is None or post.created_at >= at.floor - SLACK
            whole = at.reply_floor is None or fresh or post.id not in known
            if whole or young is None or post.created_at >= young:
                visits.append(Visit(post.id, replies=True, whole=whole))
        return visits

    async def _unseen(self, shown: Mapping[PostId, Post], posts: Sequence[Post]) -> Sequence[PostId]:
        """Posts that these quote or repost by id alone, unless stored or known to be missing."""
        if not posts:
            return ()
        platform = posts[0].platform
        named = [each.id for post in posts for each in (post.quoted, post.reposted) if each and each.id not in shown]
        known = await self.look.known_posts(platform, named) | await self.look.missing_posts(platform, named)
        return [each for each in dict.fromkeys(named) if each not in known]

    async def _visit(self, job: Job[FeedPollArgs], feed: Feed) -> Outcome:
        at = job.args
        first, *rest = at.visits
        sure, purpose = first if job.is_first_try else without_doubts(first), CallPurpose(job.id)
        if sure.replies:
            found = await self._listen(sure, feed, at, purpose)
        elif (gathered := await self.sources[feed.platform].post(sure.id, purpose=purpose)) is not None:
            # A post that cannot be decoded stays in quarantine.
            post = gathered.posts.get(sure.id)
            own = [post] if post and post.author_id == feed.user_id else []
            ahead = [Visit(each) for each in await self._unseen(gathered.posts, own)]
            found = FeedVisitResult(writes=() if sure.if_own and not own else gathered.writes, ahead=ahead)
        else:
            lost = Missing(platform=feed.platform, what="post", id=sure.id, reason=f"{feed.platform} does not show it")
            found = FeedVisitResult(writes=() if sure.if_own else [lost])
        visits = [*found.ahead, *rest, *found.behind]
        unread = found.unread or at.unread
        if first.replies and not unread and at.floor and not at.reply_floor:
            # Replies can be read for the first time: start over, as in a first poll.
            restarted = msgspec.structs.replace(at, floor=None, place=FeedPosition(), visits=(), ended=False)
            return Continue(found.writes, args=restarted)
        if unread:
            visits = [each for each in visits if not each.replies]
        down = msgspec.structs.replace(at, visits=visits, unread=unread)
        # One wait for all visits that are repeated, instead of one after the other.
        if found.behind and all(each.is_second_look for each in visits):
            return Continue(found.writes, args=down, run_at=self._later(), reason=SECOND_LOOK)
        return Continue(found.writes, args=down)

    async def _listen(self, visit: Visit, feed: Feed, at: FeedPollArgs, purpose: CallPurpose) -> FeedVisitResult:
        """Fetch a page of replies below a post, and keep those of the feed's author."""
        try:
            page = await self.sources[feed.platform].conversation(visit.id, after=visit.place.after, purpose=purpose)
        except NotShown:
            # The post is deleted, and the replies with it: nothing is missing.
            return FeedVisitResult()
        except NotPermitted as error:
            return FeedVisitResult(unread=str(error))
        visit.place.require_progress(page, feed.platform, "conversation")
        if again := look_again(visit, empty_end=page.is_empty_end, unreadable=bool(page.gathered.unreadable)):
            return FeedVisitResult(writes=page.gathered.unreadable, behind=[again])
        posts = _posts_of(page)
        own = [post for post in posts if post.author_id == feed.user_id]
        known = await self.look.known_posts(feed.platform, [post.id for post in own])
        ahead = [Visit(each) for each in await self._unseen(page.gathered.posts, own)]
        ahead += [Visit(each.post_id, if_own=True) for each in page.gathered.unreadable if each.post_id]
        lowest = None if visit.whole or at.reply_floor is None else at.reply_floor - SLACK
        # The next page, unless it was read before.
        if page.cursor is not None and not (lowest and posts and posts[-1].created_at < lowest):
            ahead.append(msgspec.structs.replace(without_doubts(visit), place=visit.place.next(page)))
        # Of the other authors' posts only those inside these are stored.
        inside = {each.id for post in own for each in (post.quoted, post.reposted) if each}
        stored = {post.id: post for post in own}
        stored |= {each: page.gathered.posts[each] for each in sorted(inside & page.gathered.posts.keys())}
        authors = {post.author_id for post in stored.values()}
        users = [user for user in page.gathered.users.values() if user.id in authors]
        grown = FeedGrown(feed_id=feed.id, posts=len(own) - len(known))
        return FeedVisitResult(writes=[*users, *stored.values(), *page.gathered.unreadable, grown], ahead=ahead)

    def _later(self) -> datetime:
        return self.clock.now() + self.rules.second_look
