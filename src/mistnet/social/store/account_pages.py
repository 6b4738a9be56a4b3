"""Reads users and tracked accounts: lists, one account with its history, users by id or handle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, func, or_, select

from mistnet.kit.database import Database
from mistnet.kit.statements import run
from mistnet.kit.text import read_number
from mistnet.kit.view import ListPage, View, columns_of, record_of, records_of
from mistnet.queue.tables import jobs
from mistnet.social.accounts import AccountState, FetchRules, FetchStats
from mistnet.social.coverage import AccountProgress
from mistnet.social.model import Platform, PostId, Profile, UserId, X
from mistnet.social.store.accounts import STATISTICS, live_sweeps, stats_of, stored_posts_of
from mistnet.social.store.coverage import PROGRESS
from mistnet.social.store.post_listing import ListedPost, PostCursor, PostListing, PostSpan
from mistnet.social.store.tracking import SUGGESTIONS, Suggestion
from mistnet.social.tables import IS_USER_OF_ACCOUNT, accounts, posts, suggestions, user_versions, users

_HEAT_POSTS: Final = 20_000
_TALK_POSTS: Final = 200
_TALK_COUNTED: Final = 1_000


class AccountLine(msgspec.Struct, frozen=True, kw_only=True):
    """One account in a list, with what its fetches have returned so far."""

    user_id: UserId
    handle: str | None
    name: str | None
    state: AccountState
    state_reason: str | None
    state_since: datetime
    tracked_at: datetime
    backfilled_at: datetime | None
    oldest_post_id: PostId | None
    newest_post_id: PostId | None
    next_look_at: datetime | None
    suspect_since: datetime | None
    posts_found: int
    profile_posts: int | None
    followers: int | None
    fetch: FetchStats


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One account in the dashboard's list."""

    progress: AccountProgress
    name: str | None

    @property
    def place(self) -> str:
        """Where the next page begins."""
        return f"{self.progress.user_id}-{(self.progress.handle or '').lower()}"


class AccountProfile(msgspec.Struct, frozen=True, kw_only=True):
    """An account's profile, and what its fetches have returned so far."""

    user_id: UserId
    handle: str | None
    name: str | None
    bio: str | None
    location: str | None
    website: str | None
    verified: bool | None
    followers_count: int | None
    following_count: int | None
    posts_count: int | None
    created_at: datetime | None
    profiled_at: datetime | None
    state_since: datetime
    next_look_at: datetime | None
    fetches: int
    empty_fetches: int
    posts_found: int
    last_fetched_count: int | None
    last_new_count: int | None
    new_rate: float
    fetch_limit: int | None

    @property
    def expected(self) -> float:
        """How many new posts a fetch returns on average."""
        return FetchStats(avg_new_rate=self.new_rate).expected(FetchRules())


class KnownUser(Profile, frozen=True, kw_only=True):
    """A user according to the latest payloads."""

    detail: str
    first_seen_at: datetime
    last_updated_at: datetime
    profiled_at: datetime | None


class UserVersion(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier profile, shown until then."""

    until: datetime
    handle: str | None
    name: str | None
    bio: str | None
    avatar_url: str | None


class MonthOfPosts(msgspec.Struct, frozen=True, kw_only=True):
    """The posts of one month, and the likes of those of them whose likes are known, reposts left out."""

    since: datetime
    posts: int
    liked: int
    likes: int


class OwnConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that an account takes part in. Its first post may not be stored."""

    id: PostId
    posts: int
    latest_at: datetime
    handle: str | None
    text: str | None


class UserName(msgspec.Struct, frozen=True, kw_only=True):
    id: UserId
    handle: str | None
    tracked: bool


_USERS: Final = select(*columns_of(KnownUser, users))
_NAMES: Final = select(users.c.id, users.c.handle, accounts.c.user_id.is_not(None).label("tracked")).select_from(
    users.outerjoin(accounts, IS_USER_OF_ACCOUNT)
)
_VERSIONS: Final = View(UserVersion, select(*columns_of(UserVersion, user_versions)), user_versions.c.until)


class People:
    """Reads users of one platform, tracked or not."""

    def __init__(self, database: Database, platform: Platform = X) -> None:
        self._database = database
        self._platform = platform
        self._own = users.c.platform == platform

    async def by_id(self, user_id: UserId) -> KnownUser | None:
        row = await self._database.fetch_row(_USERS.where(self._own, users.c.id == user_id))
        return record_of(KnownUser, row) if row else None

    async def called(self, handle: str) -> KnownUser | None:
        """The user with this handle; of several, the one whose profile was updated last."""
        own = _USERS.where(self._own, users.c.handle_key == handle.lower())
        row = await self._database.fetch_row(own.order_by(users.c.last_updated_at.desc(), users.c.id).limit(1))
        return record_of(KnownUser, row) if row else None

    async def names(self, user_ids: Collection[UserId]) -> Mapping[UserId, UserName]:
        """Those of them that are stored."""
        if not user_ids:
            return {}
        rows = await self._database.fetch_rows(_NAMES.where(self._own, users.c.id.in_(user_ids)))
        return {UserId(row["id"]): record_of(UserName, row) for row in rows}

    async def versions(
        self, user_id: UserId, *, before: datetime | None = None, limit: int = 50
    ) -> ListPage[UserVersion]:
        """Earlier profiles, the latest first."""
        own = user_versions.c.platform == self._platform, user_versions.c.user_id == user_id
        return await _VERSIONS.page(self._database, *own, after=before, limit=limit)


class AccountPages:
    """Reads the accounts of one platform, a page at a time."""

    def __init__(self, database: Database, platform: Platform = X) -> None:
        self._database = database
        self._platform = platform

    async def page(
        self,
        *,
        words: str = "",
        state: AccountState | None = None,
        unfinished: bool | None = None,
        after: str | None = None,
        limit: int,
    ) -> ListPage[Listed]:
        """By handle. A page stays the same while accounts are added and removed."""
        written, _, handle = (after or "").partition("-")
        user_id = read_number(written)
        place = None if user_id is None else (handle, user_id)
        conditions = [*account_conditions(self._platform, words, state)]
        if unfinished is not None:
            going = accounts.c.backfilled_at.is_(None) & (accounts.c.state == AccountState.ACTIVE)
            conditions.append(going if unfinished else ~going)
        return await _LISTED.page(self._database, *conditions, after=place, limit=limit)

    async def progress(self, user_id: UserId) -> Listed | None:
        return await _LISTED.first(self._database, *account_conditions(self._platform), accounts.c.user_id == user_id)

    async def profile(self, user_id: UserId) -> AccountProfile | None:
        return await _PROFILES.first(self._database, *account_conditions(self._platform), accounts.c.user_id == user_id)

    async def versions(self, user_id: UserId) -> Sequence[UserVersion]:
        return (await People(self._database, self._platform).versions(user_id)).items

    async def hours(self, user_id: UserId) -> Mapping[int, int]:
        """How many of the latest posts were written in each hour of the week (UTC). Monday's first hour is 0."""
        binds = {"platform": self._platform, "user_id": user_id, "limit": _HEAT_POSTS}
        async with self._database.read() as connection:
            return {int(row.hour): row.posts for row in await run(connection, "hours", binds)}

    async def months(self, user_id: UserId) -> Sequence[MonthOfPosts]:
        """The months in which it posted, in order. Counts all its posts."""
        binds = {"platform": self._platform, "user_id": user_id}
        async with self._database.read() as connection:
            return [
                MonthOfPosts(
                    since=datetime.strptime(row.month, "%Y-%m").replace(tzinfo=UTC),
                    posts=row.posts,
                    liked=row.liked,
                    likes=row.likes or 0,
                )
                for row in await run(connection, "months", binds)
            ]

    async def conversations(self, user_id: UserId, *, limit: int) -> Sequence[OwnConversation]:
        """Those of its latest posts' conversations of which more than one post is stored, the latest first."""
        own = (
            select(posts.c.conversation_id, posts.c.created_at)
            .where(posts.c.platform == self._platform, posts.c.author_id == user_id)
            .order_by(posts.c.created_at.desc(), posts.c.id.desc())
            .limit(_TALK_POSTS)
            .subquery()
        )
        talks = (
            select(own.c.conversation_id.label("id"), func.max(own.c.created_at).label("latest_at"))
            .where(own.c.conversation_id.is_not(None))
            .group_by(own.c.conversation_id)
            .subquery()
        )
        inside = posts.alias()
        some = (
            select(inside.c.id)
            .where(inside.c.platform == self._platform, inside.c.conversation_id == talks.c.id)
            .limit(_TALK_COUNTED)
            .correlate(talks)
            .subquery()
        )
        counted = select(talks, select(func.count()).select_from(some).scalar_subquery().label("posts")).subquery()
        root = posts.alias("root")
        query = (
            select(counted, root.c.text, users.c.handle)
            .select_from(counted)
            .outerjoin(root, (root.c.platform == self._platform) & (root.c.id == counted.c.id))
            .outerjoin(users, (users.c.platform == self._platform) & (users.c.id == root.c.author_id))
            .where(counted.c.posts > 1)
            .order_by(counted.c.latest_at.desc(), counted.c.id)
            .limit(limit)
        )
        return records_of(OwnConversation, await self._database.fetch_rows(query))

    async def posts(self, user_id: UserId, *, before: PostCursor | None, limit: int) -> ListPage[ListedPost]:
        """Newest first."""
        span = PostSpan(authors=[(self._platform, user_id)])
        return await PostListing(self._database).page(span, before=before, limit=limit)

    async def list(
        self, *, words: str = "", state: AccountState | None = None, after: int = 0, limit: int
    ) -> ListPage[AccountLine]:
        """By user id, the oldest user first."""
        conditions = account_conditions(self._platform, words, state)
        return await _ACCOUNTS.page(self._database, *conditions, after=after, limit=limit)

    async def account(self, user_id: UserId) -> AccountLine | None:
        return await _ACCOUNTS.first(self._database, *account_conditions(self._platform), accounts.c.user_id == user_id)

    async def account_called(self, handle: str) -> AccountLine | None:
        """The account with this handle; of several, one that is tracked, updated last."""
        untracked = accounts.c.state == AccountState.UNTRACKED
        view = View(
            AccountLine,
            _ACCOUNT_LINES.order_by(untracked, users.c.last_updated_at.desc()),
            accounts.c.user_id,
            descending=False,
            make=_account_line,
        )
        return await view.first(
            self._database, users.c.handle_key == handle.lower(), *account_conditions(self._platform)
        )

    async def stored_posts(self, user_id: UserId) -> int:
        """How many posts of an account are stored."""
        return (await stored_posts_of(self._database, self._platform, [user_id])).get(user_id, 0)

    async def live_jobs(self, user_id: UserId) -> Mapping[str, int]:
        """How many sweeps of each kind are alive for one account."""
        async with self._database.read() as connection:
            ids = await live_sweeps(connection, self._platform, user_id)
            kinds = (await connection.execute(select(jobs.c.kind).where(jobs.c.id.in_(ids)))).scalars()
            return Counter(kinds)

    async def suggestions(self, *, live_only: bool, before: int | None = None, limit: int) -> ListPage[Suggestion]:
        """The latest first."""
        conditions = [suggestions.c.platform == self._platform]
        conditions += [suggestions.c.deleted_at.is_(None)] if live_only else []
        return await SUGGESTIONS.page(self._database, *conditions, after=before, limit=limit)


def account_conditions(
    platform: Platform, words: str = "", state: AccountState | None = None
) -> Sequence[ColumnElement[bool]]:
    """Whether an account, joined with its user, passes a filter."""
    conditions: list[ColumnElement[bool]] = [accounts.c.platform == platform]
    if state is not None:
        conditions.append(accounts.c.state == state)
    if word := words.strip().removeprefix("@").lower():
        named = func.lower(users.c.name).contains(word, autoescape=True)
        conditions.append(or_(users.c.handle_key.contains(word, autoescape=True), named))
    return conditions


def _account_line(row: Mapping[Any, Any]) -> AccountLine:
    return record_of(AccountLine, {**row, "fetch": stats_of(row)})


_LISTED: Final = View(
    Listed,
    PROGRESS.add_columns(users.c.name, func.coalesce(users.c.handle_key, "").label("handle_key")),
    func.coalesce(users.c.handle_key, "").label("handle_key"),
    accounts.c.user_id,
    descending=False,
    make=lambda row: Listed(progress=record_of(AccountProgress, row), name=row["name"]),
)
_PROFILES: Final = View(
    AccountProfile,
    select(*columns_of(AccountProfile, users), *columns_of(AccountProfile, accounts)).join(
        accounts, IS_USER_OF_ACCOUNT
    ),
    accounts.c.user_id,
)
_ACCOUNT_LINES: Final[Select[Any]] = select(
    *columns_of(AccountLine, accounts),
    *STATISTICS,
    users.c.handle,
    users.c.name,
    users.c.posts_count.label("profile_posts"),
    users.c.followers_count.label("followers"),
).join(users, IS_USER_OF_ACCOUNT)
_ACCOUNTS: Final = View(AccountLine, _ACCOUNT_LINES, accounts.c.user_id, descending=False, make=_account_line)
