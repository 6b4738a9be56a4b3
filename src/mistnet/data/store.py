"""Reads the tables for analysis: filtered, in order, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from operator import itemgetter
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    cast,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.sql.elements import KeyedColumnElement

from mistnet.data.model import BadSelection, Selection, TableName
from mistnet.data.tables import SOURCES, Condition, TableSource
from mistnet.graph.segments.model import SegmentNotFound
from mistnet.graph.tables import segment_members, segments
from mistnet.kit.columns import Field, fields_of
from mistnet.kit.database import Database
from mistnet.kit.text import read_id
from mistnet.kit.types import RawJson
from mistnet.kit.view import merge_pages
from mistnet.social.coverage import own_posts, reposts, was_collected
from mistnet.social.errors import UserNotFound
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import handle_key, holders, matches_words, stored_platforms
from mistnet.social.tables import posts, suggestions

_PAGE_ROWS: Final = 1_000

UserKey: TypeAlias = tuple[str, int]
"""A user: platform and id."""

Row: TypeAlias = Sequence[Any]


class TableReader:
    """Reads by an index, so that nothing grows with the table and no snapshot is held."""

    def __init__(self, database: Database, *, page_rows: int = _PAGE_ROWS) -> None:
        self._database = database
        self._page_rows = page_rows

    async def check(self, selection: Selection) -> None:
        """Raise what is wrong with a selection before anything is written."""
        if selection.what is TableName.COVERAGE:
            _require_computable(selection)
        else:
            await self._parts(selection)

    async def count(self, selection: Selection) -> int:
        if selection.what is TableName.COVERAGE:
            return sum([len(page) async for page in self.pages(selection)])
        total = 0
        for query, _ in await self._parts(selection):
            rows = query.with_only_columns(literal(1).label("one"), maintain_column_froms=True)
            total += await self._database.fetch_value(select(func.count()).select_from(rows.subquery()))
        return total

    async def pages(self, selection: Selection, *conditions: Condition) -> AsyncGenerator[Sequence[Row], None]:
        """All rows in order, with the columns of `selected_fields`. They also meet the conditions."""
        if selection.what is TableName.COVERAGE:
            yield await self._coverage(selection)
            return
        parts = [(query.where(*conditions), keys) for query, keys in await self._parts(selection)]
        shown = len(selected_fields(selection))
        keys = SOURCES[selection.what].keys
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(aclosing(self._read(*part))) for part in parts]
            async for page in merge_pages(streams, itemgetter(*range(shown, shown + len(keys)))):
                yield [row[:shown] for row in page]

    async def _read(
        self, query: Select[Any], keys: Sequence[KeyedColumnElement[Any]]
    ) -> AsyncGenerator[Sequence[Any], None]:
        """The pages of one query. Its last columns are the keys of the whole order."""
        first_page = query.order_by(*keys).limit(self._page_rows)
        query = first_page
        names = [_key_label(key) for key in keys]
        while True:
            # No connection is held between pages: who reads them may be slow.
            async with self._database.read() as connection:
                page = (await connection.execute(query)).all()
            if page:
                yield page
            if len(page) < self._page_rows:
                return
            last = [literal(getattr(page[-1], name), key.type) for name, key in zip(names, keys, strict=True)]
            query = first_page.where(tuple_(*keys) > tuple_(*last) if len(keys) > 1 else keys[0] > last[0])

    async def _parts(self, selection: Selection) -> Sequence[tuple[Select[Any], Sequence[KeyedColumnElement[Any]]]]:
        """A query for each column that a user is looked up by, with what is left of the order: an index serves each."""
        source = SOURCES[selection.what]
        if selection.raw and not has_payloads(selection.what):
            raise BadSelection(selection.what, "it keeps no payloads")
        query = await self._filtered(selection, source)
        if not selection.accounts or not source.users:
            return [(query, source.keys)]
        if selection.what is TableName.SUGGESTIONS:
            named = [handle_key(str(each)) for each in selection.accounts]
            return [(query.where(suggestions.c.handle_key.in_(named)), source.keys)]
        chosen = await find_users(self._database, selection)
        parts = []
        for place, column in enumerate(source.owners):
            # A row of two of these users is already in the part of the column before.
            other = [_one_of(source.platform, each, chosen) for each in source.owners[:place]]
            keys = [key for key in source.keys if key is not column and key is not source.platform] or source.keys
            if source.platform is None:
                parts += [(query.where(column == each), keys) for each in {user_id for _, user_id in chosen}]
                continue
            for platform, user_id in chosen:
                own = (column == user_id, source.platform == platform, *(~each for each in other))
                parts.append((query.where(*own), keys))
        return parts

    async def _filtered(self, selection: Selection, source: TableSource) -> Select[Any]:
        columns = {**source.own.c, **source.columns}
        shown = [(each.name, columns[each.name]) for each in selected_fields(selection)]
        # JSON as text: a driver would parse it, and its exact form would be lost.
        values = [(cast(it, Text) if isinstance(it.type, RawJson) else it).label(name) for name, it in shown]
        keys = [key.label(_key_label(key)) for key in source.keys]
        query = select(*values, *keys).select_from(source.table)
        if source.only is not None:
            query = query.where(source.only)
        if source.grouped:
            query = query.group_by(*source.keys)
        spans = (
            ("since", source.column(source.when), selection.since, selection.until),
            ("stored_since", source.column(source.stored), selection.stored_since, selection.stored_until),
            ("changed_since", source.column(source.changed), selection.changed_since, selection.changed_until),
        )
        for name, column, since, until in spans:
            if since is not None:
                query = query.where(_required(column, selection.what, name) >= since)
            if until is not None:
                query = query.where(_required(column, selection.what, name.replace("since", "until")) < until)
        if selection.platform is not None:
            query = query.where(_required(source.platform, selection.what, "platform") == selection.platform)
        if selection.query is not None:
            query = query.where(_about_posts(selection, source, matches_words(self._database.dialect, selection.query)))
        if selection.accounts and not source.users:
            chosen = await find_users(self._database, selection)
            query = query.where(_about_posts(selection, source, _one_of(posts.c.platform, posts.c.author_id, chosen)))
        if selection.segment is not None:
            query = query.where(await self._in_segment(selection, source))
        return query

    async def _in_segment(self, selection: Selection, source: TableSource) -> Condition:
        known = select(segments.c.id, segments.c.what, segments.c.name)
        found = {row["name"]: row for row in await self._database.fetch_rows(known)}
        segment = found.get(str(selection.segment))
        if segment is None:
            raise SegmentNotFound(str(selection.segment), found)
        if selection.what is TableName.SEGMENT_MEMBERS:
            own_segment: Condition = segment_members.c.segment_id == segment["id"]
            return own_segment
        of_users, own = segment["what"] == "users", segment_members.alias("chosen").c
        member = own.user_id if of_users else own.post_id

        def is_member(platform: ColumnElement[str], column: ColumnElement[int]) -> Condition:
            return exists().where(own.segment_id == segment["id"], own.platform == platform, member == column)

        if of_users and source.users and source.platform is not None:
            return or_(*(is_member(source.platform, column) for column in source.owners))
        if not of_users and source.post is not None and source.platform is not None:
            return is_member(source.platform, source.own.c[source.post])
        about = is_member(posts.c.platform, posts.c.author_id if of_users else posts.c.id)
        return _about_posts(selection, source, about)

    async def _coverage(self, selection: Selection) -> Sequence[Row]:
        """Computed from the progress of each account: there is one row for each stretch of its history."""
        _require_computable(selection)
        chosen = set(await find_users(self._database, selection)) if selection.accounts else None
        async with self._database.read() as connection:
            platforms = await stored_platforms(connection)
        now, rows = self._database.clock.now(), []
        for platform in platforms:
            if selection.platform not in (None, platform):
                continue
            for each in await Coverage(self._database, platform).accounts():
                if (chosen is None or (platform, each.user_id) in chosen) and was_collected(each):
                    about = (platform, each.user_id, each.handle)
                    rows += [
                        (*about, "posts", part.since, part.until, str(part.standing)) for part in own_posts(each, now)
                    ]
                    rows += [
                        (*about, "reposts", part.since, part.until, str(part.standing)) for part in reposts(each, now)
                    ]
        if selection.ids_only:
            return [(row[0], row[1], row[3], row[4]) for row in rows]
        return rows


def _require_computable(selection: Selection) -> None:
    for name in ("since", "until", "stored_since", "stored_until", "query", "segment"):
        if getattr(selection, name) is not None:
            raise BadSelection(selection.what, f"it cannot be filtered by {name}")
    if selection.raw:
        raise BadSelection(selection.what, "it keeps no payloads")


async def find_users(database: Database, selection: Selection) -> Sequence[UserKey]:
    """The users of a selection, on all its platforms. Raises UserNotFound for a handle that no stored user has."""
    found: dict[UserKey, None] = {}
    async with database.read() as connection:
        platforms = await stored_platforms(connection)
        for who in selection.accounts:
            given = str(who).strip()
            user_id = read_id(given)
            some: Iterable[UserKey] = (
                await holders(connection, given) if user_id is None else [(each, user_id) for each in platforms]
            )
            own = [each for each in some if selection.platform in (None, each[0])]
            if not own:
                raise UserNotFound(given, remedy="mistnet track" if user_id is None else "mistnet track --by-id")
            found |= dict.fromkeys(own)
    return list(found)


def has_payloads(what: TableName) -> bool:
    return "raw" in SOURCES[what].record.__struct_fields__


def selected_fields(selection: Selection) -> Sequence[Field]:
    """The columns of a selection in their order: all but the payload, or those that identify a row."""
    source = SOURCES[selection.what]
    if selection.ids_only:
        return [each for each in fields_of(source.record) if each.name in source.identity]
    return [each for each in fields_of(source.record) if each.name != "raw" or selection.raw]


def _key_label(key: KeyedColumnElement[Any]) -> str:
    return f"key_{key.key}"


def _required(column: ColumnElement[Any] | None, what: TableName, name: str) -> ColumnElement[Any]:
    if column is None:
        raise BadSelection(what, f"it cannot be filtered by {name}")
    return column


def _about_posts(selection: Selection, source: TableSource, condition: Condition) -> Condition:
    if source.of_posts is None:
        given = {"query": selection.query, "account": selection.accounts, "segment": selection.segment}
        name = next(name for name, value in given.items() if value)
        raise BadSelection(selection.what, f"it cannot be filtered by {name}")
    return source.of_posts(condition)


def _one_of(platform: Any, user_id: Any, chosen: Sequence[UserKey]) -> Condition:
    """Whether it is one of these users. One condition for each platform: an index serves no pairs of values."""
    ids: dict[str, list[int]] = {}
    for on, each in chosen:
        ids.setdefault(on, []).append(each)
    return or_(false(), *(and_(platform == on, user_id.in_(own)) for on, own in ids.items()))
