"""What TwitterAPI.io asks for each answer, in credits; 100,000 credits are one US dollar. All of it stands here."""

from __future__ import annotations

from math import ceil
from typing import Final

from mistnet.domain.sources import Costs

CREDITS_PER_DOLLAR: Final = 100_000
MINIMUM: Final = 15
POST: Final = 15
PROFILE: Final = 18
RELATION: Final = 100
FULL_BATCH: Final = 100
"""From so many ids in one call a profile costs one credit instead of eighteen."""

POSTS_PER_PAGE: Final = 20


def posts(returned: int) -> int:
    return max(MINIMUM, POST * returned)


def profile() -> int:
    return PROFILE


def profiles(asked: int, returned: int) -> int:
    return max(MINIMUM, returned if asked >= FULL_BATCH else PROFILE * returned)


def follow_page(returned: int) -> int:
    rate = 1 if returned >= 200 else 2 if returned >= 100 else 3
    return max(MINIMUM, rate * returned)


def follow_page_at_most(size: int) -> int:
    """A page that is not quite full costs more than a full one."""
    return max(follow_page(returned) for returned in {size, min(size, 199), min(size, 99)})


def relation() -> int:
    return RELATION


def follow_ids(returned: int) -> int:
    rate = 0.45 if returned >= 4000 else 1 if returned >= 200 else 2
    return max(MINIMUM, ceil(rate * returned))


def failure(status: int | None, most: int) -> int:
    """What a call may have cost that ended without an answer we could read; `most` is what a good one costs.

    Upstream bills the page it sent, also when we cannot read it or when it does not reach us. Refused calls are free.
    """
    if status in (401, 402, 403, 429):
        return 0
    return most if status in (None, 200) else min(MINIMUM, most)


def filling_up_pays(users: int) -> bool:
    """Whether a batch of so many is cheaper with others added until it is full."""
    return users < FULL_BATCH and users * PROFILE > FULL_BATCH


def backfill(posts_count: int, *, looks: int = 1) -> int:
    """About what all posts of one account cost: each post, and the looks that prove the end."""
    return POST * posts_count + looks * MINIMUM


COSTS: Final = Costs(least=MINIMUM, post=POST, page=posts(POSTS_PER_PAGE))


def shown_dollars(credits_spent: int) -> str:
    """What credits cost, for people: `$0.80`. A little is not nothing: `<$0.01`."""
    if credits_spent < 0:
        return f"-{shown_dollars(-credits_spent)}"
    if 0 < credits_spent < CREDITS_PER_DOLLAR // 100:
        return "<$0.01"
    return f"${credits_spent / CREDITS_PER_DOLLAR:,.2f}"
