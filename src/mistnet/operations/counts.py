"""Merges what PostgreSQL's triggers counted into the sums that pages read."""

from __future__ import annotations

from typing import Final

from sqlalchemy import exists, or_, select, text

from mistnet.governor.tables import call_deltas
from mistnet.kit.database import Database, Store
from mistnet.kit.statements import run
from mistnet.social.tables import post_deltas

_MERGE_LOCK: Final = 7_620_513
_SLICE: Final = 2_000
_NEW_ACCOUNTS: Final = 100
_ACCOUNTS_EVERY: Final = 20
"""Once in so many merges, accounts are looked for that have no number yet."""


class CountMerging(Store):
    """Any process may merge at any time. Readers add what is not merged, so the numbers are exact before and after."""

    def __init__(self, database: Database, *, slice_rows: int = _SLICE) -> None:
        super().__init__(database)
        self._slice = slice_rows
        self._until_accounts = 0

    async def merge(self) -> None:
        """Merge the changes there are. On other databases the triggers change the sums themselves."""
        if self._database.dialect != "postgresql":
            return
        # New accounts can wait: their posts are counted at each request until then, and there are few.
        with_accounts, self._until_accounts = not self._until_accounts, (self._until_accounts or _ACCOUNTS_EVERY) - 1
        waiting = select(or_(exists(select(call_deltas.c.id)), exists(select(post_deltas.c.id))))
        is_more = with_accounts or await self._database.fetch_value(waiting)
        while is_more:
            async with self._database.transaction() as connection:
                # One process at a time: the others would lock the same sums, in another order.
                lock = await connection.execute(text(f"SELECT pg_try_advisory_xact_lock({_MERGE_LOCK})"))
                if not lock.scalar_one():
                    return
                merged = [
                    (await run(connection, name, {"limit": self._slice})).scalar_one()
                    for name in ("merge_calls", "merge_posts")
                ]
                is_more = max(merged) >= self._slice
                if with_accounts:
                    counted = await run(connection, "count_new_accounts", {"limit": _NEW_ACCOUNTS})
                    is_more |= counted.rowcount >= _NEW_ACCOUNTS
