"""Where the rows of each table for analysis come from: its query, its order, and the columns that filters go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    case,
    cast,
    exists,
    func,
    select,
)
from sqlalchemy.sql.elements import KeyedColumnElement

from mistnet.data import records
from mistnet.data.model import TableName
from mistnet.data.records import Record
from mistnet.governor.tables import calls
from mistnet.graph.tables import follow_events, follows, segment_members, segments
from mistnet.prices.tables import items, price_points, valuation_history, valuations
from mistnet.shops.tables import links, offers, post_links, products
from mistnet.social.tables import IS_USER_OF_ACCOUNT, accounts, missing, posts, suggestions, user_versions, users

Condition: TypeAlias = ColumnElement[bool]
Time: TypeAlias = ColumnElement[Any] | str


class TableSource(msgspec.Struct, frozen=True):
    """Where a table's rows come from.

    The rows are those of `own`, in `joined` with what their other `columns` need. Columns of `own` are given by name,
    several in one text. `order` is unique and served by an index; `names` are the columns that tell rows apart, where
    they are others. `users` are the columns that say whose a row is; a table without them may say by `of_posts` to
    which posts its rows belong. `when`, `stored` and `changed` are times of a row: what it tells of, when it was first
    stored, when it last changed.
    """

    record: type[Record]
    own: FromClause
    order: str
    joined: FromClause | None = None
    columns: Mapping[str, ColumnElement[Any]] = {}
    names: str = ""
    users: str = ""
    of_posts: Callable[[Condition], Condition] | None = None
    post: str | None = None
    when: Time | None = None
    stored: Time | None = None
    changed: Time | None = None
    grouped: bool = False
    only: Condition | None = None
    """Which rows of `own` are rows of this table. No column of its order may be null: a page would end the reading."""

    def column(self, given: Time | None) -> ColumnElement[Any] | None:
        return self.own.c[given] if isinstance(given, str) else given

    @property
    def table(self) -> FromClause:
        return self.own if self.joined is None else self.joined

    @property
    def keys(self) -> Sequence[KeyedColumnElement[Any]]:
        """The columns of its order."""
        return [self.own.c[name] for name in self.order.split()]

    @property
    def owners(self) -> Sequence[KeyedColumnElement[Any]]:
        return [self.own.c[name] for name in self.users.split()]

    @property
    def identity(self) -> Sequence[str]:
        """The columns that tell rows apart."""
        return (self.names or self.order).split()

    @property
    def platform(self) -> ColumnElement[Any] | None:
        return self.own.c.get("platform")


def _handle(platform: Any, user_id: Any) -> ColumnElement[Any]:
    """A user's current handle, looked up for each row by the primary key."""
    own = users.alias()
    return select(own.c.handle).where(own.c.platform == platform, own.c.id == user_id).scalar_subquery()


def _handles_in(table: Any) -> Mapping[str, ColumnElement[Any]]:
    ends = ("follower", "followed")
    return {f"{each}_handle": _handle(table.c.platform, table.c[f"{each}_id"]) for each in ends}


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
        records.PostRecord,
        posts,
        "created_at platform id",
        names="platform id",
        joined=posts.outerjoin(_AUTHOR, _IS_AUTHOR),
        columns={"author_handle": _AUTHOR.c.handle, "author_name": _AUTHOR.c.name},
        users="author_id",
        post="id",
        of_posts=lambda condition: condition,
        when="created_at",
        stored="first_seen_at",
        changed="last_updated_at",
    ),
    TableName.USERS: TableSource(
        records.UserRecord,
        users,
        "platform id",
        users="id",
        when="first_seen_at",
        stored="first_seen_at",
        changed="last_updated_at",
    ),
    TableName.USER_VERSIONS: TableSource(
        records.UserVersionRecord,
        user_versions,
        "platform user_id until",
        users="user_id",
        when="until",
        changed="until",
    ),
    TableName.ACCOUNTS: TableSource(
        records.AccountRecord,
        accounts,
        "platform user_id",
        joined=accounts.outerjoin(users, IS_USER_OF_ACCOUNT),
        columns={"handle": users.c.handle, "name": users.c.name},
        users="user_id",
        when="tracked_at",
    ),
    TableName.COVERAGE: TableSource(
        records.CoverageRecord, accounts, "platform user_id", names="platform user_id kind since"
    ),
    TableName.CONVERSATIONS: TableSource(
        records.ConversationRecord,
        _TALK,
        "platform conversation_id",
        names="platform id",
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
        of_posts=_conversations_in,
        grouped=True,
        only=_TALK.c.conversation_id.is_not(None),
    ),
    TableName.FOLLOWS: TableSource(
        records.FollowRecord,
        follows,
        "platform follower_id followed_id",
        columns=_handles_in(follows),
        users="followed_id follower_id",
        when="first_seen_at",
        stored="first_seen_at",
        changed=case((follows.c.ended_at > follows.c.last_seen_at, follows.c.ended_at), else_=follows.c.last_seen_at),
    ),
    TableName.FOLLOW_EVENTS: TableSource(
        records.FollowEventRecord,
        follow_events,
        "id",
        columns=_handles_in(follow_events),
        users="followed_id follower_id",
        when="at",
        changed="at",
    ),
    TableName.SEGMENT_MEMBERS: TableSource(
        records.SegmentMemberRecord,
        segment_members,
        "id",
        joined=segment_members.join(segments, segments.c.id == segment_members.c.segment_id).outerjoin(
            posts, (posts.c.platform == segment_members.c.platform) & (posts.c.id == segment_members.c.post_id)
        ),
        columns={
            "segment": segments.c.name,
            "handle": _handle(segment_members.c.platform, func.coalesce(segment_members.c.user_id, posts.c.author_id)),
        },
        users="user_id",
        post="post_id",
        when="since",
    ),
    TableName.LINKS: TableSource(
        records.LinkRecord,
        links,
        "id",
        columns={
            "leads_to_id": links.c.leads_to,
            "posts": select(func.count(post_links.c.post_id.distinct()))
            .where(post_links.c.link_id == links.c.id)
            .correlate(links)
            .scalar_subquery(),
        },
        of_posts=lambda condition: links.c.id.in_(_links_in(condition)),
        when="first_seen_at",
        stored="first_seen_at",
        changed=func.coalesce(links.c.crawled_at, links.c.first_seen_at),
    ),
    TableName.POST_LINKS: TableSource(
        records.PostLinkRecord,
        post_links,
        "platform post_id link_id place",
        joined=post_links.join(posts, _OF_POST)
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
        post="post_id",
        of_posts=lambda condition: condition,
        when=posts.c.created_at,
        stored="seen_at",
        changed="seen_at",
    ),
    TableName.PRODUCTS: TableSource(
        records.ProductRecord,
        products,
        "id",
        joined=products.outerjoin(_LATEST, _LATEST.c.id == products.c.offer_id),
        columns={"amount": _LATEST.c.amount, "currency": _LATEST.c.currency},
        of_posts=lambda condition: products.c.id.in_(_products_in(condition)),
        when="first_seen_at",
        stored="first_seen_at",
        changed="last_seen_at",
    ),
    TableName.OFFERS: TableSource(
        records.OfferRecord,
        offers,
        "id",
        of_posts=lambda condition: offers.c.product_id.in_(_products_in(condition)),
        when="observed_at",
        stored="observed_at",
        changed="last_seen_at",
    ),
    TableName.ITEMS: TableSource(
        records.ItemRecord, items, "id", when="added_at", stored="added_at", changed="changed_at"
    ),
    TableName.PRICE_POINTS: TableSource(
        records.PricePointRecord,
        price_points,
        "id",
        when="observed_at",
        stored="first_seen_at",
        changed="last_seen_at",
    ),
    TableName.VALUATIONS: TableSource(
        records.ValuationRecord,
        valuations,
        "item_id",
        joined=valuations.join(items, items.c.id == valuations.c.item_id),
        columns={"item_ref": items.c.ref, "item_title": items.c.title},
        when="valued_at",
        changed="valued_at",
    ),
    TableName.VALUATION_HISTORY: TableSource(
        records.ValuationHistoryRecord,
        valuation_history,
        "id",
        when="valued_at",
        changed=func.coalesce(valuation_history.c.ended_at, valuation_history.c.valued_at),
    ),
    TableName.SUGGESTIONS: TableSource(
        records.SuggestionRecord, suggestions, "id", users="handle_key", when="suggested_at"
    ),
    TableName.MISSING: TableSource(
        records.MissingRecord, missing, "platform what id", when="asked_at", changed="asked_at"
    ),
    TableName.CALLS: TableSource(records.LedgerRecord, calls, "id", users="account_id", when="at", changed="at"),
}
"""Every table. Lookups of other tables are outer joins or subqueries, so that a planner begins with its own."""


def column_is(what: TableName, name: str, value: Any) -> Condition:
    """Whether a column of the table itself has this value."""
    own: Condition = SOURCES[what].own.c[name] == value
    return own
