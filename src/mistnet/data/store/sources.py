"""The query of each table for analysis: its columns, its order and what it can be filtered by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    FromClause,
    Select,
    case,
    cast,
    exists,
    func,
    select,
)

from mistnet.data import model
from mistnet.data.model import Record, TableName
from mistnet.governor.tables import calls
from mistnet.graph.tables import follow_events, follows, segment_members, segments
from mistnet.prices.tables import items, price_points, valuation_history, valuations
from mistnet.shops.tables import links, offers, post_links, products
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
        return self.names or [column.name for column in self.order]

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
            (valuation_history.c.ended_at.is_(None), valuation_history.c.valued_at),
            else_=valuation_history.c.ended_at,
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
