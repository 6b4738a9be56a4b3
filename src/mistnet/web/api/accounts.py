"""Accounts: whom we track, how far each is, and what is to happen next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from pydantic import Field, StringConstraints
from pydantic.json_schema import WithJsonSchema

from mistnet.social.accounts import AccountState
from mistnet.social.coverage.model import own_posts, reposts
from mistnet.social.coverage.store import Coverage
from mistnet.social.errors import BadHandle, NotTracked
from mistnet.social.fetch_sizes import next_limit
from mistnet.social.jobs import args
from mistnet.social.model import UserId, read_handle
from mistnet.social.store import listing
from mistnet.social.store.listing import AccountLine
from mistnet.social.store.tracking import NewSuggestion, Refusals, Suggestion, TrackingStore
from mistnet.social.tracking import go_on, repaired, track_handles
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import BadInput, FieldProblem, NotFound, refusals
from mistnet.web.fields import LARGEST_ID, PLAIN, Document, Flag, Id, Moment, RequestBody, Who, id_or_handle
from mistnet.web.pages.dashboard_counts import Shown
from mistnet.web.paging import Listing, Pages

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


class TrackRequest(RequestBody):
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
    rows = await listing.AccountListing(mistnet.database).accounts(
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
    accounts = listing.AccountListing(mistnet.database)
    stored = await accounts.stored_posts(found.user_id, most=MANY)
    if stored == MANY:
        stored = max(stored, (await dashboard.account_counts()).stored.get(found.user_id, 0))
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
    tracking_store = TrackingStore(mistnet.database, mistnet.job_writer)
    gone = await tracking_store.untrack(target, reason, now=mistnet.database.clock.now())
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
    notes = await go_on(mistnet, TrackingStore(mistnet.database, mistnet.job_writer), [found.user_id])
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
    named, accounts = id_or_handle(who), listing.AccountListing(mistnet.database)
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


suggestions_router = APIRouter(prefix="/api/suggestions", tags=["accounts"])

Label = Annotated[str, StringConstraints(pattern=PLAIN, max_length=500)]
LabelName = Annotated[str, StringConstraints(pattern=PLAIN, min_length=1, max_length=100)]
_LABELS: Final = {
    "type": "object",
    "propertyNames": {"pattern": PLAIN, "minLength": 1, "maxLength": 100},
    "additionalProperties": {"type": "string", "pattern": PLAIN, "maxLength": 500},
    "maxProperties": 50,
}


class SuggestRequest(RequestBody):
    """All handles are kept with the same wallet and labels."""

    handles: Annotated[list[WrittenHandle], Field(min_length=1, max_length=1_000)]
    wallet: Annotated[str, StringConstraints(pattern=PLAIN, max_length=500)] | None = None
    labels: Annotated[dict[LabelName, Label], Field(max_length=50), WithJsonSchema(_LABELS)] = Field(
        default_factory=dict
    )


class SuggestedDocument(Document):
    handle: str
    result: str
    user_id: Id | None
    merged: bool


class SuggestedDocuments(Document):
    suggestions: list[SuggestedDocument]


class SuggestionDocument(Document):
    """One that was accepted or refused says when and why."""

    id: Id
    handle: str
    wallet: str | None
    labels: dict[str, Any]
    suggested_at: Moment
    closed_at: Moment | None
    outcome: str | None
    reason: str | None
    user_id: Id | None
    withdrawn_at: Moment | None


class RefusedDocument(Document):
    """A handle that was to be tracked and could not be."""

    handle: str
    reason: str
    refused_at: Moment


class RefusedDocuments(Document):
    refused: list[RefusedDocument]


@suggestions_router.get("/refused", response_model=RefusedDocuments, dependencies=READS)
async def list_refused(mistnet: Mistnet, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> dict[str, Any]:
    """Handles that were to be tracked and could not be, with the reason, the latest first."""
    return {"refused": await Refusals(mistnet.database).standing(limit)}


@suggestions_router.get("", response_model=Listing[SuggestionDocument], dependencies=READS)
async def list_suggestions(
    mistnet: Mistnet,
    pages: Pages,
    only_open: Annotated[Flag, Query(alias="open", description="Only those nobody has decided on.")] = "false",
) -> dict[str, Any]:
    """Suggestions and what became of them, the latest first."""
    rows = await listing.AccountListing(mistnet.database).suggestions(
        live_only=only_open == "true", before=pages.place or LARGEST_ID, limit=pages.one_more
    )
    page = pages.listing(rows, lambda row: row.id)
    return {**page, "items": [_shown(each) for each in page["items"]]}


@suggestions_router.post("", response_model=SuggestedDocuments, dependencies=OPERATES)
async def suggest(asked: SuggestRequest, mistnet: Mistnet) -> dict[str, Any]:
    """Suggest accounts. A worker looks each up, and tracks it or refuses it with the reason."""
    wanted = [NewSuggestion(handle=each, wallet=asked.wallet, labels=asked.labels) for each in read_all(asked.handles)]
    tracking_store = TrackingStore(mistnet.database, mistnet.job_writer)
    return {"suggestions": await tracking_store.suggest(wanted, job=args.suggestion, now=mistnet.database.clock.now())}


def _shown(kept: Suggestion) -> dict[str, Any]:
    fields = {name: getattr(kept, name) for name in kept.__struct_fields__}
    return {**fields, "labels": msgspec.json.decode(kept.labels), "closed_at": kept.deleted_at}
