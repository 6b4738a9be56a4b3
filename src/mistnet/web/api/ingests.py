"""Ingest events: explicit requests to a source, and their results. The quarantine. Webhooks that sources call."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.security import APIKeyHeader
from msgspec.structs import asdict

from mistnet.governor.errors import NoKey
from mistnet.kit.text import read_id
from mistnet.kit.transport import Exchange
from mistnet.social.ingests import Ingest, IngestKind, IngestStatus
from mistnet.social.model import UserId
from mistnet.social.store.quarantine import Quarantine, QuarantineLine, Reparsed
from mistnet.sources.collecting import reparse_all, take_in
from mistnet.sources.x.follows import PushedFollow, take_in_follower
from mistnet.web.auth import OPERATES, READS, Authenticator, same
from mistnet.web.dependencies import Listing, Mistnet, OnPlatform, Pages
from mistnet.web.errors import BadInput, FieldProblem, RequestRefused, TooOften, refusals, require
from mistnet.web.fields import LARGEST_ID, Document, Flag, Id, NumberPath, document_of
from mistnet.web.tokens import is_guessable

router = APIRouter(prefix="/api/ingests", tags=["ingests"], dependencies=READS)

_IDS_SHOWN: Final = 5_000


class IngestDocument(Document, record=Ingest, without=("exchange",)):
    """`subject_id` and the requested ids need not name stored users or posts: a failure can be about missing ones."""


class IngestInFull(IngestDocument):
    """An ingest with the first 5,000 ids it requested, and the exchange that ended it."""

    ids: list[Id]
    exchange: Exchange | None


@router.get("", response_model=Listing[IngestDocument])
async def list_ingests(
    mistnet: Mistnet,
    pages: Pages,
    kind: Annotated[IngestKind | None, Query(description="Only of this kind.")] = None,
    status: Annotated[IngestStatus | None, Query(description="Only with this status.")] = None,
    platform: OnPlatform = None,
    subject: Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="Only about this user id.")] = None,
) -> dict[str, Any]:
    """Ingest events, the latest first."""
    page = await mistnet.ingests.list(
        kind=kind,
        status=status,
        platform=platform,
        subject_id=int(subject) if subject else None,
        before=pages.place or LARGEST_ID,
        limit=pages.limit,
    )
    return pages.listing(page)


@router.get("/{ingest_id:id}", response_model=IngestInFull)
async def show_ingest(ingest_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One ingest event with the ids it requested and, if it failed, the response."""
    ingest = require(await mistnet.ingests.get(ingest_id), f"ingest {ingest_id}")
    return {**asdict(ingest), "ids": await mistnet.ingests.ids(ingest_id, limit=_IDS_SHOWN)}


quarantine_router = APIRouter(prefix="/api/quarantine", tags=["quarantine"])


class QuarantinedInFull(Document, record=QuarantineLine):
    """With the payload as text."""

    payload: str


@quarantine_router.get("", response_model=Listing[QuarantineLine], dependencies=READS)
async def list_quarantine(
    mistnet: Mistnet,
    pages: Pages,
    unresolved: Annotated[Flag, Query(description="Only payloads that still cannot be read.")] = "true",
) -> dict[str, Any]:
    """Payloads that could not be decoded, the latest first."""
    page = await Quarantine(mistnet.database).list(
        unresolved_only=unresolved == "true", before=pages.place or LARGEST_ID, limit=pages.limit
    )
    return pages.listing(page)


@quarantine_router.post("/reparse", response_model=document_of(Reparsed), dependencies=OPERATES)
async def reparse(mistnet: Mistnet) -> object:
    """Try to decode all of them again, for example after an upgrade."""
    return await reparse_all(mistnet)


@quarantine_router.get("/{kept_id:id}", response_model=QuarantinedInFull, dependencies=READS)
async def show_kept(kept_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One quarantined payload."""
    line, payload = require(await Quarantine(mistnet.database).get(kept_id), f"payload {kept_id} in quarantine")
    return {**asdict(line), "payload": payload.decode("utf-8", "replace")}


webhooks_router = APIRouter(prefix="/webhooks", tags=["webhooks"])

P = TypeVar("P")
_TWEETS: Final = "tweet"


def _body_of(required: str, properties: dict[str, Any]) -> dict[str, Any]:
    """For the description of a route that reads its body itself."""
    schema = {"type": "object", "required": [required], "properties": properties}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_POSTS_SHAPE: Final = _body_of(
    "event_type",
    {
        "event_type": {"type": "string", "description": "`tweet`; everything else is ignored."},
        "rule_id": {},
        "rule_tag": {},
        "timestamp": {},
        "tweets": {"type": "array", "items": {}, "description": "Each as search shows it."},
    },
)


class PushedDocument(Document):
    """`ignored` is true if it contains nothing that is collected. Unreadable posts are kept in quarantine."""

    ignored: bool
    posts: int = 0
    new: int = 0
    unreadable: int = 0


class _PostPush(msgspec.Struct, frozen=True):
    event_type: str
    tweets: list[msgspec.Raw] = []


async def check_key(
    mistnet: Mistnet, given: Annotated[str | None, Depends(APIKeyHeader(name="X-API-Key", auto_error=False))]
) -> None:
    """Pushes carry the API key that we use. It is compared with all keys, each in constant time."""
    keys = [key.get_secret_value() for key in mistnet.settings.x_api_key]
    if not any([same(given or "", key) for key in keys]):  # noqa: C419 (no early stop: its time would tell which key matches)
        raise RequestRefused(
            401, "send the configured TwitterAPI.io key as X-API-Key", headers={"WWW-Authenticate": "ApiKey"}
        )


@webhooks_router.post(
    "/twitterapi-io", response_model=PushedDocument, dependencies=[Depends(check_key)], openapi_extra=_POSTS_SHAPE
)
async def twitterapi_io(request: Request, mistnet: Mistnet) -> dict[str, Any]:
    """Filter-rule pushes of TwitterAPI.io: their posts are stored at once. The same push twice changes nothing."""
    push = _decode(await request.body(), _PostPush)
    if push.event_type != _TWEETS:
        return {"ignored": True}
    taken = await take_in(mistnet, push.tweets)
    return {"ignored": False, "posts": taken.posts, "new": taken.new, "unreadable": taken.unreadable}


ifttt_router = APIRouter(prefix="/webhooks/ifttt", tags=["webhooks"])

HEADER: Final = "X-Webhook-Secret"
_BY_ID: Final = "send the follower's user id; a handle alone is not enough, because handles change hands"
_FOLLOWER_SHAPE: Final = _body_of(
    "follower_id",
    {
        "follower_id": {
            "anyOf": [{"type": "string", "pattern": "^[0-9]{1,19}$"}, {"type": "integer"}],
            "description": "The follower's user id. Handles are ignored.",
        },
        "secret": {"type": "string", "description": f"Instead of the header {HEADER}."},
    },
)


class _FollowerPush(msgspec.Struct, frozen=True):
    """The part of a push that is read. Other fields are ignored."""

    follower_id: str | int | None = None
    secret: str | None = None


@ifttt_router.post(
    "/new-x-follower",
    response_model=document_of(PushedFollow),
    openapi_extra=_FOLLOWER_SHAPE,
    responses=refusals(422, 429, 502, 503),
)
async def new_x_follower(
    request: Request,
    mistnet: Mistnet,
    given: Annotated[str | None, Depends(APIKeyHeader(name=HEADER, auto_error=False, scheme_name="webhook secret"))],
) -> object:
    """Store a new follower of the configured account. Both are hydrated by id; the same push twice changes nothing."""
    body = await request.body()
    secret = mistnet.settings.ifttt_secret
    with suppress(BadInput):
        # Before the body is validated: without the secret, the caller learns nothing about the body.
        given = given or _decode(body, _FollowerPush).secret
    _require_secret(request, given, secret.get_secret_value() if secret else None)
    target = mistnet.settings.ifttt_target_id
    if target is None:
        raise RequestRefused(503, "the account is not configured: set ifttt_target_id to its user id")
    written = str(_decode(body, _FollowerPush).follower_id or "").strip()
    follower = read_id(written)
    if follower is None or follower == target:
        problem = "a user cannot follow itself" if follower else f"not a user id; {_BY_ID}" if written else _BY_ID
        raise BadInput([FieldProblem(field="follower_id", problem=problem)])
    try:
        return await take_in_follower(mistnet, UserId(target), UserId(follower))
    except NoKey as error:
        raise RequestRefused(503, str(error)) from None


def _require_secret(request: Request, given: str | None, secret: str | None) -> None:
    """Compare the secret in constant time, and throttle callers that fail. Without a configured secret, all fail.

    A correct secret is accepted in spite of the failures of others, unless it is short enough to be guessed.
    """
    authenticator: Authenticator = request.app.state.authenticator
    address = authenticator.address_of(request)
    right = secret is not None and same(given or "", secret)
    wait = authenticator.push_throttle.wait(address)
    if wait and (not right or is_guessable(secret or "")):
        raise TooOften(wait)
    if not right:
        authenticator.push_throttle.count_failure(address)
        problem = f"send the secret that is set as ifttt_secret, in the header {HEADER} or the field secret"
        raise RequestRefused(401, problem, headers={"WWW-Authenticate": "ApiKey"})


def _decode(body: bytes, push: type[P]) -> P:
    try:
        return msgspec.json.decode(body, type=push)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadInput([FieldProblem(field="body", problem=problem)]) from None
