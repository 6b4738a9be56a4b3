"""The HTTP cache: compressed responses, shared by all workers."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Select, case, delete, func, select, update

from mistnet.governor.model import SourceName
from mistnet.kit.database import Store
from mistnet.kit.statements import insert_of
from mistnet.shops.model import CachedAnswer
from mistnet.shops.tables import cached_answers

_PRUNED: Final = 1_000
_headers = msgspec.json.Decoder(dict[str, str]).decode


class KeptAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The cache of one source: how many responses, and how many of them are fresh."""

    answers: int
    fresh: int


class StoreAnswers(Store):
    """The HTTP cache on a database."""

    async def get(self, key: str) -> CachedAnswer | None:
        query = select(cached_answers).where(cached_answers.c.key == key)
        async with self._database.read_quickly() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            return None
        return CachedAnswer(**{**row, "headers": _headers(row["headers"]), "body": zlib.decompress(row["body"])})

    async def put(self, answer: CachedAnswer) -> None:
        row = {
            **msgspec.structs.asdict(answer),
            "headers": msgspec.json.encode(answer.headers),
            "body": zlib.compress(answer.body, 6),
        }
        adding = insert_of(self._database.dialect)(cached_answers).values(row)
        values = {name: adding.excluded[name] for name in row if name != "key"}
        async with self._database.autocommit() as connection:
            await connection.execute(adding.on_conflict_do_update(index_elements=["key"], set_=values))

    async def refresh(self, key: str, *, fresh_until: datetime) -> None:
        async with self._database.autocommit() as connection:
            await connection.execute(
                update(cached_answers).where(cached_answers.c.key == key).values(fresh_until=fresh_until)
            )

    async def drop(self, keys: Sequence[str]) -> None:
        async with self._database.autocommit() as connection:
            await connection.execute(delete(cached_answers).where(cached_answers.c.key.in_(keys)))

    async def prune(self, *, before: datetime, sources: Collection[str] | None = None) -> int:
        """Delete responses stored before then, of all sources or of these. Returns how many."""
        old = select(cached_answers.c.key).where(cached_answers.c.stored_at < before).limit(_PRUNED)
        if sources is not None:
            old = old.where(cached_answers.c.source.in_(sorted(sources)))
        return await self._delete(old)

    async def _delete(self, some: Select[tuple[str]]) -> int:
        # In batches, each in its own transaction: one large DELETE would block other writers for as long as it runs.
        forgotten = 0
        while True:
            async with self._database.transaction() as connection:
                gone = await connection.execute(delete(cached_answers).where(cached_answers.c.key.in_(some)))
            forgotten += gone.rowcount
            if gone.rowcount < _PRUNED:
                return forgotten

    async def kept(self, *, now: datetime) -> Mapping[SourceName, KeptAnswers]:
        """Counts by source, from an index alone."""
        own = cached_answers.c
        counted = select(
            own.source,
            func.count().label("answers"),
            func.count(case((own.fresh_until > now, 1))).label("fresh"),
        ).group_by(own.source)
        rows = await self._database.fetch_rows(counted)
        return {SourceName(row["source"]): KeptAnswers(answers=row["answers"], fresh=row["fresh"]) for row in rows}

    async def forget(self, source: SourceName) -> int:
        """Delete all responses of a source. Returns how many."""
        own = select(cached_answers.c.key).where(cached_answers.c.source == source).limit(_PRUNED)
        return await self._delete(own)
