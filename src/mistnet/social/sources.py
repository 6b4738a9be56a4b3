"""The port of the social feature: what a source of users and posts must answer, on whichever platform."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from mistnet.governor.model import CallPurpose
from mistnet.social.errors import NoSource
from mistnet.social.model import Gathered, Page, Platform, PostId, Span, User, UserId


class SocialSource(Protocol):
    """One platform, through whichever service reads it for us.

    The platform, its lane of jobs and its source in the ledger share one name. Ids are positive 64-bit numbers, and a
    later post has a higher id: sweeps go by ids. Every answer with posts holds the profiles of their authors.
    """

    @property
    def platform(self) -> Platform: ...

    @property
    def separate_reposts(self) -> bool:
        """Whether `search_posts` leaves native reposts out unless they are requested."""
        ...

    @property
    def full_batch_from(self) -> int | None:
        """From how many users on a full batch costs less than these users alone; None: never."""
        ...

    async def user(self, handle: str, *, purpose: CallPurpose) -> User | None:
        """The profile with this handle; None if there is none."""
        ...

    async def users(self, ids: Sequence[UserId], *, purpose: CallPurpose) -> Gathered:
        """Profiles by id. A user who is missing from the answer does not exist, or no longer does."""
        ...

    async def posts(self, ids: Sequence[PostId], *, purpose: CallPurpose) -> Gathered:
        """Posts by id. A post that is missing from the answer is deleted or protected."""
        ...

    async def search_posts(
        self, handles: Collection[str], span: Span, *, reposts: bool = False, purpose: CallPurpose
    ) -> Page:
        """One page of posts by these authors with ids in the span, newest first; with `reposts`, native reposts alone.

        The next page is the same search with a lower ceiling.
        """
        ...


class SocialSources(dict[Platform, SocialSource]):
    """The sources of this process by platform."""

    def __init__(self, sources: Iterable[SocialSource]) -> None:
        super().__init__({each.platform: each for each in sources})

    def __missing__(self, platform: Platform) -> SocialSource:
        raise NoSource(platform)
