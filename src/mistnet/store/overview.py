"""What was collected in all, and what came last."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Select, func, select

from mistnet.domain.social import PostId
from mistnet.store.database import Database
from mistnet.store.post_order import NEWEST_FIRST
from mistnet.store.tables import accounts, missing, posts, products, users


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """How much is stored. Gone is what upstream was asked for and does not have."""

    posts: int
    native_retweets: int
    users: int
    gone_posts: int
    gone_users: int
    products: int


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A post that came in, and whose it is."""

    id: PostId
    handle: str | None
    tracked: bool
    text: str
    created_at: datetime


class Overview:
    """Reads all rows of a table for a number: for databases that fit on a screen."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(self) -> Totals:
        gone = select(func.count()).select_from(missing)
        counts: dict[str, Select[Any]] = {
            "posts": select(func.count()).select_from(posts),
            "native_retweets": select(func.count()).select_from(posts).where(posts.c.reposted_id.is_not(None)),
            "users": select(func.count()).select_from(users),
            "gone_posts": gone.where(missing.c.what == "post"),
            "gone_users": gone.where(missing.c.what == "user"),
            "products": select(func.count()).select_from(products),
        }
        asked = select(*(count.scalar_subquery().label(name) for name, count in counts.items()))
        async with self._database.read() as connection:
            return Totals(**(await connection.execute(asked)).mappings().one())

    async def arrivals(self, limit: int) -> Sequence[Arrival]:
        """The posts that came last, the newest first."""
        asked = (
            select(
                posts.c.id,
                users.c.handle,
                accounts.c.user_id.is_not(None).label("tracked"),
                posts.c.text,
                posts.c.created_at,
            )
            .join(users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id))
            .outerjoin(accounts, (accounts.c.platform == users.c.platform) & (accounts.c.user_id == users.c.id))
            .order_by(posts.c.first_seen_at.desc(), *NEWEST_FIRST)
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [Arrival(**row) for row in (await connection.execute(asked)).mappings()]
