"""What sweeps tell the world: new posts of an account, and a history that is whole."""

from __future__ import annotations

from mistnet.domain.accounts import Account
from mistnet.domain.events import EventKind, NewEvent
from mistnet.jobs.args import RangeArgs


def collected(account: Account, at: RangeArgs) -> list[NewEvent]:
    """A catch-up that found something new, from where it began up to the newest post."""
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
    """The first time the beginning of a history is reached."""
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
