"""The SQL of the tables for analysis: the query of each one, and reading it filtered, in order, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    FromClause,
    Select,
    Text,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from mistnet.data import model
from mistnet.data.model import BadSelection, Record, Selection, TableName
from mistnet.governor.tables import calls
from mistnet.graph.segments.model import SegmentNotFound
from mistnet.graph.tables import follow_events, follows, segment_members, segments
from mistnet.kit.columns import Field, fields_of
from mistnet.kit.database import Database
from mistnet.kit.text import read_id
from mistnet.kit.types import RawJson
from mistnet.kit.view import merge_pages
from mistnet.prices.tables import items, price_points, valuation_history, valuations
from mistnet.shops.tables import links, offers, post_links, products
from mistnet.social.coverage import own_posts, reposts, was_collected
from mistnet.social.errors import UserNotFound
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import handle_key, holders, matches_words, stored_platforms
from mistnet.social.tables import accounts, missing, posts, suggestions, user_versions, users

Condition: TypeAlias = ColumnElement[bool]


class TableSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a table's rows come from.

    `order` is unique and served by an index; `names` are the columns that tell rows apart, where they are others.
    `users` are the columns that say whose a row is; a table without them may say by `of_posts` to which posts its rows
    belong. `when`, `stored` and `changed` are times of a row: what it tells of, when it was first stored, when it last
    changed.
    """

    record: type[Record]
    table: FromClause
    columns: Mapping[str, ColumnElement[Any]] = {}
    order: Sequence[Column[Any]]
    names: Sequence[str] = ()
    users: Sequence[Column[Any]] = ()
    of_posts: Callable[[Condition], Condition] | None = None
    post: Column[Any] | None = None
    when: ColumnElement[Any] | None = None
    stored: Column[Any] | None = None
    changed: ColumnElement[Any] | None = None
    grouped: bool = False

    @property
    def identity(self) -> Sequence[str]:
        """The columns that tell rows apart."""
        # SQLAlchemy's own type of string cannot be written as JSON.
        return self.names or [str(column.name) for column in self.order]

    @property
    def platform(self) -> Column[Any] | None:
        return self.order[0].table.c.get("platform")


def _handle(platform: Any, user_id: Any) -> ColumnElement[Any]:
    """A user's current handle, looked up for each row by the primary key."""
    own = users.alias()
    return select(own.c.handle).where(own.c.platform == platform, own.c.id == user_id).scalar_subquery()


_AUTHOR: Final = users.alias("author")
_IS_AUTHOR: Final = (_AUTHOR.c.platform == posts.c.platform) & (_AUTHOR.c.id == posts.c.author_id)
_ROOT: Final = posts.alias("root")
_NEXT: Final = links.alias("next")
_LAST: Final = links.alias("last")
_LATEST: Final = offers.alias("latest")
_OF_POST: Final = (posts.c.platform == post_links.c.platform) & (posts.c.id == post_links.c.post_id)
_PRODUCT: Final = func.coalesce(links.c.product_id, _NEXT.c.product_id, _LAST.c.product_id)
"""Short links lead on, rarely more than once."""

_LEADING: Final = links.outerjoin(_NEXT, _NEXT.c.id == links.c.leads_to).outerjoin(
    _LAST, _LAST.c.id == _NEXT.c.leads_to
)


def _links_in(condition: Condition) -> Select[Any]:
    return select(post_links.c.link_id).select_from(post_links.join(posts, _OF_POST)).where(condition)


def _products_in(condition: Condition) -> Select[Any]:
    return select(_PRODUCT).select_from(_LEADING).where(links.c.id.in_(_links_in(condition)))


def _conversations_in(condition: Condition) -> Condition:
    inside = select(posts.c.platform, posts.c.conversation_id).where(condition, posts.c.conversation_id.is_not(None))
    some = inside.subquery("some")
    return exists().where(some.c.platform == _TALK.c.platform, some.c.conversation_id == _TALK.c.conversation_id)


_TALK: Final = posts.alias("talk")
_ROOT_USER: Final = users.alias("root_user")
_IS_ROOT: Final = (_ROOT.c.platform == _TALK.c.platform) & (_ROOT.c.id == _TALK.c.conversation_id)
_ROOT_AUTHOR: Final = select(_ROOT.c.author_id).where(_IS_ROOT).correlate(_TALK).scalar_subquery()
_ROOT_HANDLE: Final = (
    select(_ROOT_USER.c.handle)
    .join(_ROOT, (_ROOT.c.platform == _ROOT_USER.c.platform) & (_ROOT.c.author_id == _ROOT_USER.c.id))
    .where(_IS_ROOT)
    .correlate(_TALK)
    .scalar_subquery()
)


SOURCES: Final[Mapping[TableName, TableSource]] = {
    TableName.POSTS: TableSource(
        record=model.PostRecord,
        table=posts.outerjoin(_AUTHOR, _IS_AUTHOR),
        columns={"author_handle": _AUTHOR.c.handle, "author_name": _AUTHOR.c.name},
        order=(posts.c.created_at, posts.c.platform, posts.c.id),
        names=("platform", "id"),
        users=(posts.c.author_id,),
        post=posts.c.id,
        of_posts=lambda condition: condition,
        when=posts.c.created_at,
        stored=posts.c.first_seen_at,
        changed=posts.c.last_updated_at,
    ),
    TableName.USERS: TableSource(
        record=model.UserRecord,
        table=users,
        order=(users.c.platform, users.c.id),
        users=(users.c.id,),
        when=users.c.first_seen_at,
        stored=users.c.first_seen_at,
        changed=users.c.last_updated_at,
    ),
    TableName.USER_VERSIONS: TableSource(
        record=model.UserVersionRecord,
        table=user_versions,
        order=(user_versions.c.platform, user_versions.c.user_id, user_versions.c.until),
        users=(user_versions.c.user_id,),
        when=user_versions.c.until,
        changed=user_versions.c.until,
    ),
    TableName.ACCOUNTS: TableSource(
        record=model.AccountRecord,
        table=accounts.outerjoin(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)),
        columns={"handle": users.c.handle, "name": users.c.name},
        order=(accounts.c.platform, accounts.c.user_id),
        users=(accounts.c.user_id,),
        when=accounts.c.tracked_at,
    ),
    TableName.COVERAGE: TableSource(
        record=model.CoverageRecord,
        table=accounts,
        order=(accounts.c.platform, accounts.c.user_id),
        names=("platform", "user_id", "kind", "since"),
    ),
    TableName.CONVERSATIONS: TableSource(
        record=model.ConversationRecord,
        table=_TALK,
        columns={
            "id": _TALK.c.conversation_id,
            "author_id": _ROOT_AUTHOR,
            "author_handle": _ROOT_HANDLE,
            "posts": func.count(),
            "authors": func.count(_TALK.c.author_id.distinct()),
            "first_at": func.min(_TALK.c.created_at),
            "last_at": func.max(_TALK.c.created_at),
            "likes": cast(func.sum(_TALK.c.likes), BigInteger),
        },
        order=(_TALK.c.platform, _TALK.c.conversation_id),
        names=("platform", "id"),
        of_posts=_conversations_in,
        grouped=True,
    ),
    TableName.FOLLOWS: TableSource(
        record=model.FollowRecord,
        table=follows,
        columns={
            "follower_handle": _handle(follows.c.platform, follows.c.follower_id),
            "followed_handle": _handle(follows.c.platform, follows.c.followed_id),
        },
        order=(follows.c.platform, follows.c.follower_id, follows.c.followed_id),
        users=(follows.c.followed_id, follows.c.follower_id),
        when=follows.c.first_seen_at,
        stored=follows.c.first_seen_at,
        changed=case((follows.c.ended_at > follows.c.last_seen_at, follows.c.ended_at), else_=follows.c.last_seen_at),
    ),
    TableName.FOLLOW_EVENTS: TableSource(
        record=model.FollowEventRecord,
        table=follow_events,
        columns={
            "follower_handle": _handle(follow_events.c.platform, follow_events.c.follower_id),
            "followed_handle": _handle(follow_events.c.platform, follow_events.c.followed_id),
        },
        order=(follow_events.c.id,),
        users=(follow_events.c.followed_id, follow_events.c.follower_id),
        when=follow_events.c.at,
        changed=follow_events.c.at,
    ),
    TableName.SEGMENT_MEMBERS: TableSource(
        record=model.SegmentMemberRecord,
        table=segment_members.join(segments, segments.c.id == segment_members.c.segment_id).outerjoin(
            posts, (posts.c.platform == segment_members.c.platform) & (posts.c.id == segment_members.c.post_id)
        ),
        columns={
            "segment": segments.c.name,
            "handle": _handle(segment_members.c.platform, func.coalesce(segment_members.c.user_id, posts.c.author_id)),
        },
        order=(segment_members.c.id,),
        users=(segment_members.c.user_id,),
        post=segment_members.c.post_id,
        when=segment_members.c.since,
    ),
    TableName.LINKS: TableSource(
        record=model.LinkRecord,
        table=links,
        columns={
            "leads_to_id": links.c.leads_to,
            "posts": select(func.count(post_links.c.post_id.distinct()))
            .where(post_links.c.link_id == links.c.id)
            .correlate(links)
            .scalar_subquery(),
        },
        order=(links.c.id,),
        of_posts=lambda condition: links.c.id.in_(_links_in(condition)),
        when=links.c.first_seen_at,
        stored=links.c.first_seen_at,
        changed=case((links.c.crawled_at.is_(None), links.c.first_seen_at), else_=links.c.crawled_at),
    ),
    TableName.POST_LINKS: TableSource(
        record=model.PostLinkRecord,
        table=post_links.join(posts, _OF_POST)
        .join(links, links.c.id == post_links.c.link_id)
        .outerjoin(_NEXT, _NEXT.c.id == links.c.leads_to)
        .outerjoin(_LAST, _LAST.c.id == _NEXT.c.leads_to),
        columns={
            "author_id": posts.c.author_id,
            "author_handle": _handle(posts.c.platform, posts.c.author_id),
            "created_at": posts.c.created_at,
            "host": links.c.host,
            "shop": links.c.platform,
            "product_id": _PRODUCT,
        },
        order=(post_links.c.platform, post_links.c.post_id, post_links.c.link_id, post_links.c.place),
        post=post_links.c.post_id,
        of_posts=lambda condition: condition,
        when=posts.c.created_at,
        stored=post_links.c.seen_at,
        changed=post_links.c.seen_at,
    ),
    TableName.PRODUCTS: TableSource(
        record=model.ProductRecord,
        table=products.outerjoin(_LATEST, _LATEST.c.id == products.c.offer_id),
        columns={"amount": _LATEST.c.amount, "currency": _LATEST.c.currency},
        order=(products.c.id,),
        of_posts=lambda condition: products.c.id.in_(_products_in(condition)),
        when=products.c.first_seen_at,
        stored=products.c.first_seen_at,
        changed=products.c.last_seen_at,
    ),
    TableName.OFFERS: TableSource(
        record=model.OfferRecord,
        table=offers,
        order=(offers.c.id,),
        of_posts=lambda condition: offers.c.product_id.in_(_products_in(condition)),
        when=offers.c.observed_at,
        stored=offers.c.observed_at,
        changed=offers.c.last_seen_at,
    ),
    TableName.ITEMS: TableSource(
        record=model.ItemRecord,
        table=items,
        order=(items.c.id,),
        when=items.c.added_at,
        stored=items.c.added_at,
        changed=items.c.changed_at,
    ),
    TableName.PRICE_POINTS: TableSource(
        record=model.PricePointRecord,
        table=price_points,
        order=(price_points.c.id,),
        when=price_points.c.observed_at,
        stored=price_points.c.first_seen_at,
        changed=price_points.c.last_seen_at,
    ),
    TableName.VALUATIONS: TableSource(
        record=model.ValuationRecord,
        table=valuations.join(items, items.c.id == valuations.c.item_id),
        columns={"item_ref": items.c.ref, "item_title": items.c.title},
        order=(valuations.c.item_id,),
        when=valuations.c.valued_at,
        changed=valuations.c.valued_at,
    ),
    TableName.VALUATION_HISTORY: TableSource(
        record=model.ValuationHistoryRecord,
        table=valuation_history,
        order=(valuation_history.c.id,),
        when=valuation_history.c.valued_at,
        changed=case(
            (valuation_history.c.ended_at.is_(None), valuation_history.c.valued_at), else_=valuation_history.c.ended_at
        ),
    ),
    TableName.SUGGESTIONS: TableSource(
        record=model.SuggestionRecord,
        table=suggestions,
        order=(suggestions.c.id,),
        users=(suggestions.c.handle_key,),
        when=suggestions.c.suggested_at,
    ),
    TableName.MISSING: TableSource(
        record=model.MissingRecord,
        table=missing,
        order=(missing.c.platform, missing.c.what, missing.c.id),
        when=missing.c.asked_at,
        changed=missing.c.asked_at,
    ),
    TableName.CALLS: TableSource(
        record=model.LedgerRecord,
        table=calls,
        order=(calls.c.id,),
        users=(calls.c.account_id,),
        when=calls.c.at,
        changed=calls.c.at,
    ),
}
"""Every table. Lookups of other tables are outer joins or subqueries, so that a planner begins with its own."""


def column_is(what: TableName, name: str, value: Any) -> Condition:
    """Whether a column of the table itself has this value."""
    own: Condition = SOURCES[what].order[0].table.c[name] == value
    return own


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
        keys = SOURCES[selection.what].order
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(aclosing(self._read(*part))) for part in parts]
            async for page in merge_pages(streams, itemgetter(*range(shown, shown + len(keys)))):
                yield [row[:shown] for row in page]

    async def _read(self, query: Select[Any], keys: Sequence[Column[Any]]) -> AsyncGenerator[Sequence[Any], None]:
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

    async def _parts(self, selection: Selection) -> Sequence[tuple[Select[Any], Sequence[Column[Any]]]]:
        """A query for each column that a user is looked up by, with what is left of the order: an index serves each."""
        source = SOURCES[selection.what]
        if selection.raw and not has_payloads(selection.what):
            raise BadSelection(selection.what, "it keeps no payloads")
        query = await self._filtered(selection, source)
        if not selection.accounts or not source.users:
            return [(query, source.order)]
        if selection.what is TableName.SUGGESTIONS:
            named = [handle_key(str(each)) for each in selection.accounts]
            return [(query.where(suggestions.c.handle_key.in_(named)), source.order)]
        chosen = await find_users(self._database, selection)
        parts = []
        for place, column in enumerate(source.users):
            # A row of two of these users is already in the part of the column before.
            other = [_one_of(source.platform, each, chosen) for each in source.users[:place]]
            keys = [key for key in source.order if key is not column and key is not source.platform] or source.order
            if source.platform is None:
                parts += [(query.where(column == each), keys) for each in {user_id for _, user_id in chosen}]
                continue
            for platform, user_id in chosen:
                own = (column == user_id, source.platform == platform, *(~each for each in other))
                parts.append((query.where(*own), keys))
        return parts

    async def _filtered(self, selection: Selection, source: TableSource) -> Select[Any]:
        columns = {**source.order[0].table.c, **source.columns}
        shown = [(each.name, columns[each.name]) for each in selected_fields(selection)]
        # JSON as text: a driver would parse it, and its exact form would be lost.
        values = [(cast(it, Text) if isinstance(it.type, RawJson) else it).label(name) for name, it in shown]
        keys = [key.label(_key_label(key)) for key in source.order]
        query = select(*values, *keys).select_from(source.table)
        if source.grouped:
            query = query.group_by(*source.order)
        spans = (
            ("since", source.when, selection.since, selection.until),
            ("stored_since", source.stored, selection.stored_since, selection.stored_until),
            ("changed_since", source.changed, selection.changed_since, selection.changed_until),
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
            return or_(*(is_member(source.platform, column) for column in source.users))
        if not of_users and source.post is not None and source.platform is not None:
            return is_member(source.platform, source.post)
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
                raise UserNotFound(given)
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


def _key_label(key: Column[Any]) -> str:
    return f"key_{key.name}"


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
