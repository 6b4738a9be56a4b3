"""The one order of posts: by the time they were written, then platform and id."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mistnet.domain.social import Platform, PostId

POST_CURSOR: Final = r"^(0|[1-9][0-9]{0,16})\.(x|threads)\.[1-9][0-9]{0,18}$"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_ID: Final = 2**63 - 1


class PostCursor(msgspec.Struct, frozen=True, order=True):
    """A place in the order of posts. Ids alone give none: those of two platforms do not compare."""

    created_at: datetime
    platform: Platform
    id: PostId

    def __str__(self) -> str:
        return f"{(self.created_at - _EPOCH) // timedelta(microseconds=1)}.{self.platform}.{self.id}"


def read_cursor(written: str) -> PostCursor:
    """A cursor from its text. Raises ValueError for any other text."""
    if not re.fullmatch(POST_CURSOR, written):
        raise ValueError("it must be the cursor that the page before gave, such as 1772366400000000.x.2028123456789")
    microseconds, platform, post_id = written.split(".")
    at = _EPOCH + timedelta(microseconds=int(microseconds))
    return PostCursor(at, Platform(platform), PostId(min(int(post_id), _LARGEST_ID)))
