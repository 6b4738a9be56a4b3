"""Look at one feed: its new posts newest first, then what its author said below them. One call per step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

from mistnet.domain.errors import BadRequest, NotPermitted, NotShown
from mistnet.domain.feeds import (
    Feed,
    FeedFound,
    FeedGrown,
    FeedLook,
    FeedPage,
    FeedPolled,
    FeedRefused,
    FeedState,
    ThreadsSource,
)
from mistnet.domain.jobs import Continue, Done, Job, Outcome, Write
from mistnet.domain.ports import Clock
from mistnet.domain.social import Platform, Post, PostId
from mistnet.domain.sources import Errand
from mistnet.jobs.feed_args import (
    SLACK,
    FeedPollArgs,
    FeedRules,
    Phase,
    Place,
    Visit,
    afresh,
    feed_poll,
    look_again,
)
from mistnet.jobs.feed_visits import Visitor

SECOND_LOOK: Final = "looks a second time before it believes what it saw"
_MOST_RESTARTS: Final = 3


class FeedPoller(msgspec.Struct, frozen=True, kw_only=True):
    """The polls of Threads. What a page brings and the poll's own advance land together or not at all."""

    look: FeedLook
    threads: ThreadsSource
    clock: Clock
    rules: FeedRules

    async def poll(self, job: Job[FeedPollArgs]) -> Outcome:
        feed = await self.look.feed(job.args.feed_id)
        if feed is None or feed.state is FeedState.REMOVED:
            return Done()
        if job.args.phase is Phase.BEGIN:
            return await self._begin(job, feed)
        if job.args.visits:
            return await self._visit(job, feed)
        if job.args.ended:
            return self._next_phase(job.args)
        return await self._page(job, feed)

    async def _begin(self, job: Job[FeedPollArgs], feed: Feed) -> Outcome:
        """Somebody has to be there, and not closed to us. The profile itself is looked at once a day."""
        errand = Errand(job.id)
        try:
            if await self._knows_profile(feed):
                return self._begun(feed, own=await self.threads.is_own(feed.handle, errand=errand))
            found = await self.threads.profile(feed.handle, errand=errand)
        except NotPermitted as error:
            return Done([FeedRefused(feed_id=feed.id, reason=str(error))])
        if found is None:
            return Done([FeedRefused(feed_id=feed.id, reason=f"Threads shows nobody called @{feed.handle}")])
        known = FeedFound(feed_id=feed.id, user_id=found.user.id)
        return self._begun(feed, own=found.own, writes=[found.user, known])

    async def _knows_profile(self, feed: Feed) -> bool:
        if feed.state is not FeedState.ACTIVE or feed.user_id is None:
            return False
        seen_at = await self.look.profiled_at(feed.user_id)
        return seen_at is not None and self.clock.now() - seen_at < self.rules.profile_holds

    def _begun(self, feed: Feed, *, own: bool, writes: Sequence[Write] = ()) -> Continue:
        begun = FeedPollArgs(
            feed_id=feed.id,
            phase=Phase.POSTS,
            own=own,
            floor=feed.newest_post_at,
            reply_floor=feed.newest_reply_at,
        )
        return Continue(writes, args=begun)

    async def _page(self, job: Job[FeedPollArgs], feed: Feed) -> Outcome:
        at, errand, after = job.args, Errand(job.id), job.args.place.after
        try:
            if at.phase is Phase.POSTS:
                page = await self.threads.posts(feed.handle, own=at.own, after=after, errand=errand)
            else:
                page = await self.threads.own_replies(after=after, errand=errand)
        except (NotPermitted, NotShown) as error:
            return self._closed(at, error)
        except BadRequest:
            if after is None or at.restarts >= _MOST_RESTARTS:
                raise
            # a cursor that is not valid any more: from the top again, down to the same floor
            return Continue(args=msgspec.structs.replace(at, place=Place(), restarts=at.restarts + 1))
        at.place.require_progress(page, str(at.phase))
        sure = at if job.is_first_try else afresh(at)
        if again := look_again(sure, empty_end=page.is_empty_end, unreadable=page.has_nameless):
            return Continue(page.gathered.unreadable, args=again, run_at=self._later(), reason=SECOND_LOOK)
        return await self._turned(at, page)

    def _closed(self, at: FeedPollArgs, error: NotPermitted | NotShown) -> Outcome:
        """Without the posts there is no feed; without the replies there is half of one, and it says so."""
        if at.phase is Phase.POSTS:
            return Done([FeedRefused(feed_id=at.feed_id, reason=str(error))])
        return Continue(args=msgspec.structs.replace(at, ended=True, unread=str(error)))

    async def _turned(self, at: FeedPollArgs, page: FeedPage) -> Outcome:
        """What the page holds, what it leads to, and where the next one begins."""
        posts = [page.gathered.posts[each] for each in page.own]
        known = await self.look.known_posts(Platform.THREADS, page.own)
        moments = [post.created_at for post in posts]
        anchor = at.anchor or page.at or max(moments, default=None)
        visits = await self._visits(at, page, posts, known, anchor)
        down = msgspec.structs.replace(
            afresh(at),
            top=max([*moments, *([at.top] if at.top else [])], default=None) if at.phase is Phase.POSTS else at.top,
            anchor=anchor,
            place=at.place.turned(page),
            ended=page.cursor is None or self._reached(at, moments, anchor),
            visits=visits,
        )
        grown = FeedGrown(feed_id=at.feed_id, posts=len(page.own) - len(known))
        return Continue([*page.gathered.writes, grown], args=down)

    def _reached(self, at: FeedPollArgs, moments: Sequence[datetime], anchor: datetime | None) -> bool:
        """Whether all that is wanted lies above the page's last post.

        Posts young enough to be answered by their author are looked at again, known or not.
        """
        floor = at.floor if at.phase is Phase.POSTS else at.reply_floor
        if floor is None or not moments:
            return False
        lowest = floor - SLACK
        young = self._young(at, anchor)
        if at.phase is Phase.POSTS and not at.own and young:
            lowest = min(lowest, young)
        return moments[-1] < lowest

    def _young(self, at: FeedPollArgs, anchor: datetime | None) -> datetime | None:
        """Posts since then may have been answered by their author after the last look."""
        since = at.reply_floor or anchor
        return since - self.rules.reply_window if since else None

    async def _visits(
        self,
        at: FeedPollArgs,
        page: FeedPage,
        posts: Sequence[Post],
        known: Collection[PostId],
        anchor: datetime | None,
    ) -> Sequence[Visit]:
        illegible = [each.post_id for each in page.gathered.unreadable if each.post_id]
        shown = await self._visitor.unseen(page.gathered.posts, posts)
        wanted = [Visit(each) for each in dict.fromkeys([*illegible, *shown])]
        if at.own or at.unread or at.phase is not Phase.POSTS:
            return wanted
        wanted += [Visit(each, replies=True, whole=True) for each in illegible]
        young = self._young(at, anchor)
        talked = [post for post in posts if post.id in page.answered and post.reposted is None]
        for post in talked:  # one that is known may have come with somebody else's post, and nothing below it
            fresh = at.floor is None or post.created_at >= at.floor - SLACK
            whole = at.reply_floor is None or fresh or post.id not in known
            if whole or young is None or post.created_at >= young:
                wanted.append(Visit(post.id, replies=True, whole=whole))
        return wanted

    async def _visit(self, job: Job[FeedPollArgs], feed: Feed) -> Outcome:
        at = job.args
        first, *rest = at.visits
        sure = first if job.is_first_try else afresh(first)
        found = await self._visitor.visit(sure, feed, at, errand=Errand(job.id))
        visits = [*found.ahead, *rest, *found.behind]
        unread = found.unread or at.unread
        if first.replies and not unread and at.floor and not at.reply_floor:
            # replies may be read now, and never were before: as at the first poll, of all posts there are
            anew = msgspec.structs.replace(at, floor=None, place=Place(), visits=(), ended=False)
            return Continue(found.writes, args=anew)
        if unread:
            visits = [each for each in visits if not each.replies]
        down = msgspec.structs.replace(at, visits=visits, unread=unread)
        waits = bool(found.behind) and all(each.is_second_look for each in visits)
        if waits:  # once for all that are to be looked at again
            return Continue(found.writes, args=down, run_at=self._later(), reason=SECOND_LOOK)
        return Continue(found.writes, args=down)

    def _next_phase(self, at: FeedPollArgs) -> Outcome:
        if at.own and at.phase is Phase.POSTS:
            return Continue(args=msgspec.structs.replace(at, phase=Phase.REPLIES, place=Place(), ended=False))
        newest = min(at.top, at.anchor) if at.top and at.anchor else at.top  # no post is of tomorrow
        return Done(
            [
                FeedPolled(
                    feed_id=at.feed_id,
                    newest_post_at=newest,
                    newest_reply_at=None if at.unread else at.anchor,
                    reason=at.unread,
                )
            ]
        )

    @property
    def _visitor(self) -> Visitor:
        return Visitor(look=self.look, threads=self.threads)

    def _later(self) -> datetime:
        return self.clock.now() + self.rules.second_look


__all__ = ["FeedPollArgs", "FeedPoller", "FeedRules", "feed_poll"]
