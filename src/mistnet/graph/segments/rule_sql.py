"""Segment rules as queries. Each returns the platform and id of every member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
)

from mistnet.graph.segments.model import (
    Difference,
    Followed,
    Followers,
    Intersection,
    Mutuals,
    PostsWhere,
    Segment,
    SegmentName,
    SpecifiedUsers,
    Union,
    UnreciprocatedFollowed,
    What,
)
from mistnet.graph.segments.rules import hosts_of
from mistnet.graph.tables import follows, segment_inputs, segment_members
from mistnet.social.model import UserId, X
from mistnet.social.search_query import fts5, parse, tsquery
from mistnet.social.store.post_listing import INDEX, IS_ROW_OF_POST, SEARCH_ROWS
from mistnet.social.tables import WORDS, posts

Members: TypeAlias = Select[Any]
"""Rows of `platform` and `id`, without duplicates."""

_BACK: Final = follows.alias("back")


class RuleContext(msgspec.Struct, frozen=True, kw_only=True):
    """What rules are evaluated with: all segments, the database's dialect, the time."""

    segments: Mapping[SegmentName, Segment]
    dialect: str
    now: datetime


def members_of(segment: Segment, known: RuleContext) -> Members:
    """Everything that matches the segment's rule now."""
    rule = segment.rule
    match rule:
        case SpecifiedUsers():
            return select(segment_inputs.c.platform, segment_inputs.c.user_id.label("id")).where(
                segment_inputs.c.segment_id == segment.id
            )
        case Followers() | Mutuals():
            followers = _edges(follows.c.follower_id, follows.c.followed_id == rule.subject_id)
            back = _edge_back(rule.subject_id, follows.c.follower_id)
            return followers if isinstance(rule, Followers) else followers.join_from(follows, _BACK, back)
        case Followed() | UnreciprocatedFollowed():
            followed = _edges(follows.c.followed_id, follows.c.follower_id == rule.subject_id)
            if isinstance(rule, Followed):
                return followed
            back = _edge_back(follows.c.followed_id, rule.subject_id)
            return followed.join_from(follows, _BACK, back, isouter=True).where(_BACK.c.follower_id.is_(None))
        case PostsWhere():
            return _posts(rule, known)
        case Union() | Intersection() | Difference():
            return _combined(rule, segment.what, known)
        case _:
            assert_never(rule)


def _edges(member: ColumnElement[int], of_subject: ColumnElement[bool]) -> Members:
    return select(follows.c.platform, member.label("id")).where(
        follows.c.platform == X, of_subject, follows.c.ended_at.is_(None)
    )


def _edge_back(follower: ColumnElement[Any] | UserId, followed: ColumnElement[Any] | UserId) -> ColumnElement[bool]:
    """The edge in the other direction, by primary key. A join: not every planner turns EXISTS into one."""
    back = _BACK.c
    return and_(back.platform == X, back.follower_id == follower, back.followed_id == followed, back.ended_at.is_(None))


def _combined(rule: Union | Intersection | Difference, what: What, known: RuleContext) -> Members:
    """Candidates are read from the segments that can contribute any, and looked up in the others by key."""
    own = segment_members.alias("candidate")
    name = "user_id" if what is What.USERS else "post_id"
    member = own.c[name]
    first, *others = [known.segments[SegmentName(each)].id for each in rule.of]
    query = select(own.c.platform, member.label("id")).where(member.is_not(None))
    if isinstance(rule, Union):
        return query.where(own.c.segment_id.in_([first, *others])).distinct()
    query = query.where(own.c.segment_id == first)
    for segment_id in others:
        its = segment_members.alias().c
        is_in = exists().where(its.segment_id == segment_id, its.platform == own.c.platform, its[name] == member)
        query = query.where(is_in if isinstance(rule, Intersection) else ~is_in)
    return query


def _posts(rule: PostsWhere, known: RuleContext) -> Members:
    query = select(posts.c.platform, posts.c.id.label("id"))
    if rule.authors_in is not None:
        authors = segment_members.alias("author")
        own = (authors.c.platform == posts.c.platform) & (authors.c.user_id == posts.c.author_id)
        query = query.join_from(posts, authors, own).where(
            authors.c.segment_id == known.segments[SegmentName(rule.authors_in)].id
        )
    if rule.query is not None:
        words = parse(rule.query)
        if known.dialect == "postgresql":
            wanted = func.to_tsquery(literal_column("'simple'::regconfig"), bindparam("words", tsquery(words)))
            query = query.where(literal_column(WORDS).op("@@")(wanted))
        else:
            row = select(SEARCH_ROWS.c.row_number).where(IS_ROW_OF_POST).scalar_subquery()
            matches = literal_column("posts_search").op("MATCH")(bindparam("words", fts5(words)))
            query = query.where(row.in_(select(INDEX.c.rowid).where(matches)))
    if rule.link is not None:
        query = query.where(_has_link(hosts_of(rule.link), known.dialect))
    if rule.since is not None:
        query = query.where(posts.c.created_at >= rule.since)
    if rule.until is not None:
        query = query.where(posts.c.created_at < rule.until)
    if rule.within_seconds is not None:
        query = query.where(posts.c.created_at >= known.now - timedelta(seconds=rule.within_seconds))
    return query


def _has_link(hosts: Sequence[str], dialect: str) -> ColumnElement[bool]:
    """A link whose host is one of these or a subdomain. The LIKE on the whole text skips most posts without parsing."""
    if dialect == "postgresql":
        url = literal_column("coalesce(link.value ->> 'expanded_url', link.value ->> 'url')", Text)
        pattern = r"^[a-z][a-z0-9+.-]*://(?:[^/?#]*@)?([^/?#:]+)"
        host: ColumnElement[str] = func.substring(func.lower(url), pattern, type_=Text)
        links = func.json_array_elements(posts.c.links)
    else:
        host, links = _host_on_sqlite(), func.json_each(posts.c.links)
    fits = or_(*(or_(host == each, host.like(f"%.{each}")) for each in hosts))
    each = links.table_valued("value", name="link")
    return and_(
        posts.c.links.is_not(None),
        or_(*(func.lower(cast(posts.c.links, Text)).like(f"%{each}%") for each in hosts)),
        exists(select(1).select_from(each).where(fits)) if hosts else false(),
    )


def _host_on_sqlite() -> ColumnElement[str]:
    """The part after `://` and `@`, up to `/`, `?`, `#` or `:`."""
    url = literal_column(
        "lower(coalesce(json_extract(link.value, '$.expanded_url'), json_extract(link.value, '$.url')))", Text
    )
    rest = func.substr(url, func.instr(url, "://") + 3)
    slashed = func.replace(func.replace(rest, "?", "/"), "#", "/").op("||")("/")
    authority = func.substr(slashed, 1, func.instr(slashed, "/") - 1)
    named = func.substr(authority, func.instr(authority, "@") + 1).op("||")(":")
    return func.substr(named, 1, func.instr(named, ":") - 1, type_=Text)
