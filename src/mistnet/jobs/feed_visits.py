"""What the posts of a feed lead to: posts of which only the id is shown, and the author's words below his own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mistnet.domain.accounts import Missing
from mistnet.domain.errors import NotPermitted, NotShown
from mistnet.domain.feeds import Feed, FeedGrown, FeedLook, FeedPage, ThreadsSource, user_id_of
from mistnet.domain.jobs import Write
from mistnet.domain.social import Platform, Post, PostId
from mistnet.domain.sources import Errand
from mistnet.jobs.feed_args import SLACK, FeedPollArgs, Visit, afresh, look_again

GONE: Final = "Threads does not show it"


class Visited(msgspec.Struct, frozen=True, kw_only=True):
    """What a visit brought, and the visits that come of it: before all others, or after them."""

    writes: Sequence[Write] = ()
    ahead: Sequence[Visit] = ()
    behind: Sequence[Visit] = ()
    unread: str | None = None


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    look: FeedLook
    threads: ThreadsSource

    async def visit(self, visit: Visit, feed: Feed, at: FeedPollArgs, *, errand: Errand) -> Visited:
        return await (self._listen(visit, feed, at, errand) if visit.replies else self._fetch(visit, feed, errand))

    async def unseen(self, shown: Mapping[PostId, Post], posts: Sequence[Post]) -> Sequence[PostId]:
        """Whom these quote or repeat by an id alone, unless it is stored, or known to be gone."""
        named = [each.id for post in posts for each in (post.quoted, post.reposted) if each and each.id not in shown]
        known = await self.look.known_posts(Platform.THREADS, named)
        known |= await self.look.missing_posts(Platform.THREADS, named)
        return [each for each in dict.fromkeys(named) if each not in known]

    async def _fetch(self, visit: Visit, feed: Feed, errand: Errand) -> Visited:
        """One post by its id. One that cannot be read even alone stays in quarantine."""
        gathered = await self.threads.post(visit.id, errand=errand)
        post = gathered.posts.get(visit.id) if gathered else None
        own = post is not None and post.author_id == user_id_of(feed.handle)
        if visit.if_own and not own:
            return Visited()
        if gathered is None:
            return Visited(writes=[Missing(platform=Platform.THREADS, what="post", id=visit.id, reason=GONE)])
        named = await self.unseen(gathered.posts, [post]) if post and own else ()
        return Visited(writes=gathered.writes, ahead=[Visit(each) for each in named])

    async def _listen(self, visit: Visit, feed: Feed, at: FeedPollArgs, errand: Errand) -> Visited:
        """A page of what was said below a post; what the author himself said is kept."""
        try:
            page = await self.threads.conversation(visit.id, after=visit.place.after, errand=errand)
        except NotShown:
            return Visited()  # the post is gone, and all below it
        except NotPermitted as error:
            return Visited(unread=str(error))
        visit.place.require_progress(page, "conversation")
        if again := look_again(visit, empty_end=page.is_empty_end, unreadable=bool(page.gathered.unreadable)):
            return Visited(writes=page.gathered.unreadable, behind=[again])
        own = [post for post in _shown(page) if post.author_id == user_id_of(feed.handle)]
        known = await self.look.known_posts(Platform.THREADS, [post.id for post in own])
        new = [post for post in own if post.id not in known]
        quoted = await self.unseen(page.gathered.posts, own)
        illegible = [Visit(each.post_id, if_own=True) for each in page.gathered.unreadable if each.post_id]
        grown = FeedGrown(feed_id=feed.id, posts=len(new))
        return Visited(
            writes=[*_told(page, own), grown],
            ahead=[*(Visit(each) for each in quoted), *illegible, *_further(visit, page, at)],
        )


def _further(visit: Visit, page: FeedPage, at: FeedPollArgs) -> list[Visit]:
    """The next page, unless what follows was read before."""
    if page.cursor is None:
        return []
    moments = [post.created_at for post in _shown(page)]
    read = not visit.whole and at.reply_floor is not None and moments and moments[-1] < at.reply_floor - SLACK
    return [] if read else [msgspec.structs.replace(afresh(visit), place=visit.place.turned(page))]


def _shown(page: FeedPage) -> Sequence[Post]:
    return [page.gathered.posts[each] for each in page.own]


def _told(page: FeedPage, own: Sequence[Post]) -> list[Write]:
    """These posts and their author, whole posts shown inside them, and what could not be read."""
    inside = {each.id for post in own for each in (post.quoted, post.reposted) if each}
    posts = [*own, *(page.gathered.posts[each] for each in sorted(inside) if each in page.gathered.posts)]
    authors = {post.author_id for post in posts}
    users = [user for user in page.gathered.users.values() if user.id in authors]
    return [*users, *{post.id: post for post in posts}.values(), *page.gathered.unreadable]
