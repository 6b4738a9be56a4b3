"""Where a poll of a feed stands. All of it is in the job's args, so that an interrupted poll leaves no hole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from mistnet.domain.errors import BrokenAnswer
from mistnet.domain.feeds import FEED_POLL, FeedId, FeedPage
from mistnet.domain.jobs import Args, NewJob
from mistnet.domain.social import PostId
from mistnet.domain.sources import THREADS_SOURCE

CURSORS_KEPT: Final = 8
SLACK: Final = timedelta(minutes=10)
"""What is new may be shown late: so far below a boundary is read again."""


class FeedRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set about feeds."""

    second_look: timedelta = timedelta(seconds=30)
    reply_window: timedelta = timedelta(days=3)
    profile_holds: timedelta = timedelta(days=1)


class Phase(StrEnum):
    BEGIN = "begin"
    POSTS = "posts"
    REPLIES = "replies"


class Place(msgspec.Struct, frozen=True):
    """Where in a list we are: the cursor of the next page, and those before it."""

    after: str | None = None
    earlier: tuple[str, ...] = ()

    def turned(self, page: FeedPage) -> Place:
        passed = (*self.earlier, self.after) if self.after else self.earlier
        return Place(page.cursor, tuple(each for each in passed if each)[-CURSORS_KEPT:])

    def require_progress(self, page: FeedPage, endpoint: str) -> None:
        """Raises BrokenAnswer for a page one cannot go on from: it is asked for again, and is never an end."""
        if page.cursor is not None and page.cursor in (self.after, *self.earlier):
            raise BrokenAnswer(THREADS_SOURCE, endpoint, "a cursor that leads back to an earlier page")


class Visit(msgspec.Struct, frozen=True):
    """Something a page leads to: a post of which only the id was shown, or what was said below one.

    `whole`: nothing below it has been read before. `if_own`: it is kept if it is the author's, as nobody could tell.
    `suspected` and `unreadable`: the last look showed an empty end, or something that could not be read.
    """

    id: PostId
    replies: bool = False
    if_own: bool = False
    whole: bool = False
    place: Place = Place()
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
    phase: Phase = Phase.BEGIN
    own: bool = False
    floor: datetime | None = None
    reply_floor: datetime | None = None
    top: datetime | None = None
    anchor: datetime | None = None
    place: Place = Place()
    restarts: int = 0
    ended: bool = False
    suspected: bool = False
    unreadable: bool = False
    visits: Sequence[Visit] = ()
    unread: str | None = None


Looking = TypeVar("Looking", Visit, FeedPollArgs)


def look_again(at: Looking, *, empty_end: bool, unreadable: bool) -> Looking | None:
    """A second look at the same page, if its doubt is new. An empty end says nothing of what could not be read before,
    nor the other way round: each is believed only when it is seen twice."""
    if empty_end and not at.suspected:
        return msgspec.structs.replace(at, suspected=True)
    if unreadable and not at.unreadable:
        return msgspec.structs.replace(at, unreadable=True)
    return None


def afresh(at: Looking) -> Looking:
    return msgspec.structs.replace(at, suspected=False, unreadable=False)


def feed_poll(feed_id: FeedId) -> NewJob:
    return NewJob(kind=FEED_POLL, key=str(feed_id), args=FeedPollArgs(feed_id=feed_id))
