"""Accounts: whom we track, how far each is, and what is to happen next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import Field

from mistnet.api.auth import OPERATES, READS
from mistnet.api.errors import BadInput, FieldProblem, NotFound, refusals
from mistnet.api.fields import PLAIN, Document, Given, Id, Moment, Who, id_or_handle
from mistnet.api.pages.dashboard import Shown
from mistnet.api.paging import Listing, Pages
from mistnet.api.parts import Mistnet
from mistnet.desk.repair import repaired
from mistnet.desk.tracking import go_on, track_handles
from mistnet.domain.accounts import AccountState
from mistnet.domain.coverage import own_posts, reposts
from mistnet.domain.errors import BadHandle, NotTracked
from mistnet.domain.fetching import next_limit
from mistnet.domain.handles import read_handle
from mistnet.domain.social import UserId
from mistnet.store import listing
from mistnet.store.coverage import Coverage
from mistnet.store.listing import AccountLine
from mistnet.store.refusals import Refusals
from mistnet.store.roster import NewSuggestion, Roster

router = APIRouter(prefix="/api/accounts", tags=["accounts"])

MANY: Final = 10_000
HANDLE: Final = r"^@?[A-Za-z0-9_]{1,15}$"
WrittenHandle = Annotated[
    str, Field(max_length=200, description="@name, name or https://x.com/name.", json_schema_extra={"pattern": HANDLE})
]


class FetchDocument(Document):
    """What looking for new posts has brought so far."""

    last_fetch_at: Moment | None
    last_fetched_count: int
    last_new_count: int
    total_fetches: int
    avg_new_rate: float
    consecutive_empty_fetches: int
    last_limit: int | None


class AccountDocument(Document):
    user_id: Id
    handle: str | None
    name: str | None
    state: AccountState
    state_reason: str | None
    state_since: Moment
    tracked_at: Moment
    backfilled_at: Moment | None
    oldest_post_id: Id | None
    newest_post_id: Id | None
    next_look_at: Moment | None
    suspect_since: Moment | None
    posts_found: int
    profile_posts: int | None
    followers: int | None
    fetch: FetchDocument


class AccountInFull(AccountDocument):
    """With what takes a look at its posts and jobs."""

    stored_posts: int
    live_jobs: dict[str, int]
    next_limit: int


class TrackRequest(Given):
    handles: Annotated[list[WrittenHandle], Field(min_length=1, max_length=1_000)]


class ToldDocument(Document):
    """What became of one account somebody named."""

    handle: str | None
    user_id: Id | None
    result: str
    note: str


class Tracked(Document):
    accounts: list[ToldDocument]


class LetGoDocument(Document):
    """What ended."""

    user_id: Id | None
    was: AccountState | None
    withdrawn: bool
    cancelled: list[Id]


class NextStep(Document):
    note: str


class Repaired(Document):
    done: list[str]


class StretchDocument(Document):
    since: Moment
    until: Moment
    standing: str


class SweepDocument(Document):
    job_id: Id
    kind: str
    state: str
    mending: bool
    last_error: str | None
    wait_reason: str | None


class CoverageDocument(Document):
    """What is verified, what is being swept, and what is missing."""

    user_id: Id
    handle: str | None
    state: AccountState
    stored: int
    profile_posts: int | None
    backfilled_at: Moment | None
    reposts_backfilled_at: Moment | None
    suspect_since: Moment | None
    next_look_at: Moment | None
    own_posts: list[StretchDocument]
    native_retweets: list[StretchDocument] | None
    live_sweeps: list[SweepDocument]
    gaps: list[SweepDocument]


@router.get("", response_model=Listing[AccountDocument], dependencies=READS)
async def list_accounts(
    mistnet: Mistnet,
    pages: Pages,
    search: Annotated[str, Query(max_length=100, pattern=PLAIN, description="Part of a handle or of a name.")] = "",
    state: AccountState | None = None,
) -> dict[str, Any]:
    """Accounts ever tracked, by user id."""
    rows = await listing.Listing(mistnet.database).accounts(
        words=search, state=state, after=pages.place or 0, limit=pages.one_more
    )
    return pages.listing(rows, lambda row: row.user_id)


@router.post("", response_model=Tracked, dependencies=OPERATES)
async def track(asked: TrackRequest, mistnet: Mistnet) -> dict[str, Any]:
    """Track accounts: collect all their posts, the conversations around them, and the people in those."""
    handles = read_all(asked.handles)
    return {"accounts": await track_handles(mistnet, [NewSuggestion(handle=each) for each in handles])}


@router.get("/{who}", response_model=AccountInFull, dependencies=READS, responses=refusals(404))
async def show_account(who: Who, mistnet: Mistnet, dashboard: Shown) -> Mapping[str, Any]:
    """One account, by its user id or handle. Of very many posts the number may be some seconds old."""
    found = await account_of(mistnet, who)
    accounts = listing.Listing(mistnet.database)
    stored = await accounts.stored_posts(found.user_id, most=MANY)
    if stored == MANY:
        stored = max(stored, (await dashboard.holdings()).stored.get(found.user_id, 0))
    shown = {name: getattr(found, name) for name in found.__struct_fields__}
    return {
        **shown,
        "stored_posts": stored,
        "live_jobs": await accounts.live_jobs(found.user_id),
        "next_limit": next_limit(found.fetch),
    }


@router.delete("/{who}", response_model=LetGoDocument, dependencies=OPERATES, responses=refusals(404))
async def untrack(
    who: Who,
    mistnet: Mistnet,
    reason: Annotated[str, Query(max_length=500, pattern=PLAIN)] = "untracked by API",
) -> object:
    """Stop collecting an account. What was collected stays."""
    named = id_or_handle(who)
    target = UserId(named) if isinstance(named, int) else named
    roster = Roster(mistnet.database, mistnet.job_writer)
    gone = await roster.untrack(target, reason, now=mistnet.database.clock.now())
    if not gone.known:
        raise NotTracked(who)
    return gone


@router.post(
    "/{who}/catch-up", status_code=202, response_model=NextStep, dependencies=OPERATES, responses=refusals(404)
)
async def catch_up(who: Who, mistnet: Mistnet) -> dict[str, str]:
    """Go on with an account now: with what is new, or with the rest of its past."""
    found = await account_of(mistnet, who)
    if found.state is AccountState.UNTRACKED:
        raise NotTracked(who)
    notes = await go_on(mistnet, Roster(mistnet.database, mistnet.job_writer), [found.user_id])
    return {"note": notes[found.user_id]}


@router.post("/{who}/repair", response_model=Repaired, dependencies=OPERATES, responses=refusals(404))
async def repair(who: Who, mistnet: Mistnet) -> dict[str, list[str]]:
    """Try sweeps anew that ended without their result, and begin lacking ones."""
    found = await account_of(mistnet, who)
    progress = await Coverage(mistnet.database).account_by_id(found.user_id)
    return {"done": await repaired(mistnet, progress) if progress else []}


@router.get("/{who}/coverage", response_model=CoverageDocument, dependencies=READS, responses=refusals(404))
async def coverage(who: Who, mistnet: Mistnet) -> Mapping[str, Any]:
    """What is there of an account, and what is not."""
    found = await account_of(mistnet, who)
    progress = await Coverage(mistnet.database).account_by_id(found.user_id)
    if progress is None:
        raise NotFound(f"account {who}")
    now = mistnet.database.clock.now()
    shown = {name: getattr(progress, name) for name in progress.__struct_fields__}
    return {
        **shown,
        "profile_posts": progress.posts_count,
        "own_posts": own_posts(progress, now),
        "native_retweets": reposts(progress, now) if mistnet.settings.x_reposts else None,
        "live_sweeps": [each for each in progress.sweeps if each.alive],
        "gaps": progress.gaps,
    }


async def account_of(mistnet: Mistnet, who: str) -> AccountLine:
    """The account a path names."""
    named, accounts = id_or_handle(who), listing.Listing(mistnet.database)
    if isinstance(named, int):
        found = await accounts.account(UserId(named))
    else:
        found = await accounts.account_called(named)
    if found is None:
        refused = None if isinstance(named, int) else await Refusals(mistnet.database).of_handle(named)
        if refused is not None:
            when = f"{refused.refused_at:%Y-%m-%d %H:%M} UTC"
            raise NotFound(f"account {who}: it was refused at {when}, {refused.reason}")
        raise NotFound(f"account {who}; POST /api/accounts begins to track one")
    return found


def read_all(written: list[str]) -> list[str]:
    """Handles as people write them; each bad one is told by its place."""
    handles: list[str] = []
    problems: list[FieldProblem] = []
    for place, each in enumerate(written):
        try:
            handles.append(read_handle(each))
        except BadHandle as error:
            problems.append(FieldProblem(field=f"handles.{place}", problem=str(error)))
    if problems:
        raise BadInput(problems)
    return handles
