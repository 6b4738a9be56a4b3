"""Simulated sources for tests: a world in this process, and the oracle that compares a database with its truth."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import text

from mistnet.kit.database import Database
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered, Unreached
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.faults import PRESETS, Faults, SimFault
from mistnet.sim.people import SimAccountState, WorldSize
from mistnet.sim.service import Key, NeverAnswers, NeverConnects, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World

KEY = "sim-key"
NOBODY = "nobody_at_all"
SMALLEST = WorldSize(users=24, stars=9, posts=170)


class WorldTransport:
    """Calls the world in-process; what would be a silent or cut connection is unanswered."""

    def __init__(self, service: XService, before: Callable[[], Awaitable[None]] | None = None) -> None:
        self._service = service
        self._before = before

    async def send(self, request: HttpRequest) -> HttpAnswer:
        if self._before:
            await self._before()
        try:
            answer = await self._service.handle("GET", request.path, urlencode(request.query), request.headers)
        except NeverConnects:
            raise Unreached("the connection was refused") from None
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        if self._before:
            await self._before()
        if answer.cut:
            raise Unanswered("the answer was cut short")
        return HttpAnswer(status=answer.status, headers=answer.headers, body=answer.body)


def service_of(
    world: World,
    *,
    faults: str = "none",
    rates: Mapping[SimFault, float] | None = None,
    now: Callable[[], datetime] = lambda: WORLD_START_AT,
    **about: Any,
) -> XService:
    key = Key(name=KEY, tier=Tier.UNLIMITED, recharge_credits=10**12)
    return XService(
        world, now, keys=[key], faults=Faults(world.seed, PRESETS[faults] if rates is None else rates), **about
    )


@dataclass
class Oracle:
    """What must be in the database when everything the world shows of these accounts has been collected."""

    world: World
    at: datetime = WORLD_START_AT
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.truth = Truth(self.world)

    @property
    def handles(self) -> Sequence[str]:
        return self.truth.accounts(self.at)

    @property
    def suggested(self) -> Sequence[str]:
        """Those that can be swept, those that cannot for any reason, and one of no user."""
        now_ms = int(self.at.timestamp() * 1000)
        return [*dict.fromkeys(star.handle_at(now_ms) for star in self.world.stars), NOBODY]

    async def compare(self, database: Database) -> list[str]:
        """Everything that is not as it should be, in words."""
        async with database.read() as connection:

            async def rows(sql: str) -> Sequence[Any]:
                return (await connection.execute(text(sql))).all()

            posts = {row.id: row for row in await rows(_POSTS)}
            users = {row.id: row for row in await rows(_USERS)}
            accounts = {row.user_id: row for row in await rows(_ACCOUNTS)}
            jobs = await rows("SELECT id, kind, key, state, last_error, wait_reason FROM jobs")
            suggestions = await rows("SELECT handle, deleted_at, outcome FROM suggestions")
            missing = await rows("SELECT id FROM missing WHERE what = 'user'")
            versions = await rows("SELECT user_id, handle FROM user_versions")
        self.faults = []
        self._check_accounts(accounts)
        swept = self._check_posts(posts)
        self._check_threads(posts, swept)
        self._check_users(posts, users, swept)
        self._check_missing([row.id for row in missing])
        self._check_jobs(jobs)
        self._say(any(row.deleted_at is None for row in suggestions), "a suggestion is still open")
        self._say(bool(versions), f"users turned although nothing changed: {versions[:3]}")
        return self.faults

    def _say(self, wrong: bool, problem: str) -> None:
        if wrong:
            self.faults.append(problem)

    def _check_accounts(self, accounts: dict[int, Any]) -> None:
        for handle in self.suggested:
            truth = self.truth.account(handle, self.at)
            shown = truth is not None and truth.state in (SimAccountState.ACTIVE, SimAccountState.PROTECTED)
            if truth is None or not shown:
                self._say(truth is not None and truth.user_id in accounts, f"@{handle} became an account")
                continue
            account = accounts.get(truth.user_id)
            if account is None:
                self._say(True, f"@{handle} is not tracked")
                continue
            expected = "active" if truth.state is SimAccountState.ACTIVE else "protected"
            self._say(account.state != expected, f"@{handle} is {account.state}, not {expected}")
            if expected == "protected":
                continue
            found = (account.oldest_post_id, account.newest_post_id, account.newest_repost_id)
            wanted = (
                min(truth.search, default=None),
                max(truth.search, default=None),
                max(truth.retweets, default=None),
            )
            self._say(found != wanted, f"@{handle}: boundaries {found}, in truth {wanted}")
            self._say(not account.backfilled_at, f"@{handle} is not backfilled")
            self._say(not account.reposts_backfilled_at, f"the retweets of @{handle} are not backfilled")

    def _check_posts(self, posts: dict[int, Any]) -> set[int]:
        swept: set[int] = set()
        for handle in self.handles:
            truth = self.truth.account(handle, self.at)
            assert truth is not None
            wanted = {*truth.search, *truth.retweets}
            missing = wanted - posts.keys()
            self._say(
                bool(missing), f"@{handle}: {len(missing)} of {len(wanted)} posts are missing: {sorted(missing)[:3]}"
            )
            swept |= set(truth.search)
        for post in posts.values():
            shown = json.loads(post.raw)
            self._say(int(shown["id"]) != post.id or shown["text"] != post.text, f"post {post.id} is not its payload")
            self._say(str(self.truth.fate(post.id, self.at)) != "shown", f"post {post.id} should not be there")
        return swept

    def _check_threads(self, posts: dict[int, Any], swept: Collection[int]) -> None:
        for post_id in swept:
            chain = self.truth.chain(post_id, self.at)
            lost = [each for each in chain.ancestors if each not in posts]
            self._say(bool(lost), f"{len(lost)} ancestors of {post_id} are missing, first {lost[:1]}")

    def _check_users(self, posts: dict[int, Any], users: dict[int, Any], swept: Collection[int]) -> None:
        for user in users.values():
            self._say(not user.handle or not user.last_updated_at or len(user.raw) < 20, f"user {user.id} is a stub")
        answered = {posts[each].in_reply_to_user_id for each in swept if each in posts} - {None}
        lost = self.truth.hydratable(answered, self.at) - users.keys()
        self._say(bool(lost), f"{len(lost)} users who were answered are missing: {sorted(lost)[:3]}")
        self._say(bool({post.author_id for post in posts.values()} - users.keys()), "a post without its author")

    def _check_missing(self, user_ids: Sequence[int]) -> None:
        there = self.truth.hydratable(user_ids, self.at) | self.truth.unavailable(user_ids, self.at)
        self._say(bool(there), f"users are called gone whom upstream shows: {sorted(there)[:3]}")

    def _check_jobs(self, jobs: Sequence[Any]) -> None:
        for job in jobs:
            self._say(True, f"{job.kind} {job.key} is left {job.state}: {job.last_error or job.wait_reason}")


_POSTS = "SELECT id, author_id, text, in_reply_to_id, in_reply_to_user_id, CAST(raw AS text) AS raw FROM posts"
_USERS = "SELECT id, handle, CAST(raw AS text) AS raw, last_updated_at FROM users"
_ACCOUNTS = """
    SELECT user_id, state, oldest_post_id, newest_post_id, newest_repost_id, backfilled_at, reposts_backfilled_at
    FROM accounts
"""
