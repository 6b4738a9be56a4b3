"""Errors of accounts, feeds, posts and search."""

from __future__ import annotations

from collections.abc import Sequence

from mistnet.kit.errors import Nonexistent, UsageError, list_problems
from mistnet.queue.errors import Permanent


class NoThreadsToken(UsageError):
    """A call to Threads needs an access token, and none is configured."""

    def __init__(self) -> None:
        super().__init__(
            "no token for Threads is configured: set MISTNET_THREADS_TOKEN to a long-lived access token, "
            "and MISTNET_THREADS_TOKEN_FILE to where its refreshed form is kept"
        )


class BadFeed(UsageError):
    """The given text is not a feed's handle or URL."""

    def __init__(self, given: str, problem: str) -> None:
        super().__init__(f"{given[:80]!r}: {problem}; write @name, name or https://www.threads.com/@name")
        self.given, self.problem = given, problem


class FeedNotFound(Nonexistent, UsageError):
    """There is no feed of this account, or it was removed."""

    def __init__(self, handle: str) -> None:
        super().__init__(f"there is no feed of @{handle[:80]}; `mistnet feeds add {handle[:80]}` adds one")
        self.handle = handle


class BadHandle(UsageError):
    """The given text is not a handle or profile URL."""

    def __init__(self, given: str, problem: str) -> None:
        super().__init__(f"{given[:80]!r}: {problem}; write @name, name or https://x.com/name")
        self.given, self.problem = given, problem


class BadHandles(UsageError):
    """Some of several given handles are invalid."""

    def __init__(self, problems: Sequence[BadHandle]) -> None:
        super().__init__(list_problems(problems))
        self.problems = tuple(problems)


class NotTracked(Nonexistent, UsageError):
    """The account is neither tracked nor suggested."""

    def __init__(self, given: str) -> None:
        super().__init__(f"{given} is neither tracked nor suggested; run `mistnet track` to track it")
        self.given = given


class UserNotFound(Nonexistent, UsageError):
    """The user is not stored."""

    def __init__(self, given: str, *, remedy: str = "mistnet follows sync") -> None:
        super().__init__(f"no collected data mentions {given[:80]}; run `{remedy} {given[:80]}` to fetch it")
        self.given = given


class BadSearch(UsageError):
    """A search query without anything to search for."""

    def __init__(self, query: str, problem: str) -> None:
        super().__init__(f"cannot search for {query[:80]!r}: {problem}")
        self.query, self.problem = query, problem


class AmbiguousPost(UsageError):
    """Posts of several platforms have this id."""

    def __init__(self, post_id: int, platforms: Sequence[str]) -> None:
        where = " and ".join(f"on {each}" for each in platforms)
        choice = " or ".join(f"platform={each}" for each in platforms)
        super().__init__(f"Post {post_id} is stored {where}. Add {choice}.")
        self.post_id, self.platforms = post_id, platforms


class NoSource(Permanent):
    """A job is about a platform that no source here reads."""

    def __init__(self, platform: str) -> None:
        super().__init__(f"no source for the platform {platform!r} is installed")
        self.platform = platform


class NotShown(Permanent):
    """A source has nothing with that name or id, or does not return it to us; it does not say which."""

    def __init__(self, source: str, what: str, problem: str, *, status: int) -> None:
        super().__init__(f"{source} does not show {what}: {problem}")
        self.source, self.what, self.problem, self.status = source, what, problem, status
