"""Webhooks that sources call: new posts from TwitterAPI.io, new followers from IFTTT."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.security import APIKeyHeader

from mistnet.governor.errors import NoKey
from mistnet.kit.text import read_id
from mistnet.social.model import UserId
from mistnet.sources.pushed_posts import take_in
from mistnet.sources.x.follows import take_in_follower
from mistnet.web.auth import Authenticator, same
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import BadInput, FieldProblem, RequestRefused, TooOften, refusals
from mistnet.web.fields import Document, Id
from mistnet.web.tokens import is_guessable

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

P = TypeVar("P")
_TWEETS: Final = "tweet"
_POSTS_SHAPE: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["event_type"],
                    "properties": {
                        "event_type": {"type": "string", "description": "`tweet`; everything else is ignored."},
                        "rule_id": {},
                        "rule_tag": {},
                        "timestamp": {},
                        "tweets": {"type": "array", "items": {}, "description": "Each as search shows it."},
                    },
                }
            }
        },
    }
}


class PushedDocument(Document):
    """`ignored` is true if it contains nothing that is collected. Unreadable posts are kept in quarantine."""

    ignored: bool
    posts: int = 0
    new: int = 0
    unreadable: int = 0


class _PostPush(msgspec.Struct, frozen=True):
    event_type: str
    tweets: list[msgspec.Raw] = []


async def known_key(
    mistnet: Mistnet, given: Annotated[str | None, Depends(APIKeyHeader(name="X-API-Key", auto_error=False))]
) -> None:
    """Pushes carry the API key that we use. It is compared with all keys, each in constant time."""
    keys = [key.get_secret_value() for key in mistnet.settings.x_api_key]
    if not any([same(given or "", key) for key in keys]):  # noqa: C419 (no early stop: its time would tell which key matches)
        raise RequestRefused(
            401, "send the configured TwitterAPI.io key as X-API-Key", headers={"WWW-Authenticate": "ApiKey"}
        )


@router.post(
    "/twitterapi-io", response_model=PushedDocument, dependencies=[Depends(known_key)], openapi_extra=_POSTS_SHAPE
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
_FOLLOWER_SHAPE: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["follower_id"],
                    "properties": {
                        "follower_id": {
                            "anyOf": [{"type": "string", "pattern": "^[0-9]{1,19}$"}, {"type": "integer"}],
                            "description": "The follower's user id. Handles are ignored.",
                        },
                        "secret": {"type": "string", "description": f"Instead of the header {HEADER}."},
                    },
                }
            }
        },
    }
}


class FollowedDocument(Document):
    """The stored edge. `fetched` are those of the two users who were not known before."""

    ingest_id: Id
    target_id: Id
    follower_id: Id
    fetched: list[Id]


class _FollowerPush(msgspec.Struct, frozen=True):
    """The part of a push that is read. Other fields are ignored."""

    follower_id: str | int | None = None
    secret: str | None = None


@ifttt_router.post(
    "/new-x-follower",
    response_model=FollowedDocument,
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
    _require_secret(request, given or _secret_in(body), secret.get_secret_value() if secret else None)
    target = mistnet.settings.ifttt_target_id
    if target is None:
        raise RequestRefused(503, "the account is not configured: set ifttt_target_id to its user id")
    follower = _follower(body, target)
    try:
        return await take_in_follower(mistnet, UserId(target), follower)
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
        authenticator.push_throttle.failed(address)
        problem = f"send the secret that is set as ifttt_secret, in the header {HEADER} or the field secret"
        raise RequestRefused(401, problem, headers={"WWW-Authenticate": "ApiKey"})


def _secret_in(body: bytes) -> str | None:
    """Check the secret before validating the body: without it, the caller learns nothing about the body."""
    try:
        return _decode(body, _FollowerPush).secret
    except BadInput:
        return None


def _decode(body: bytes, push: type[P]) -> P:
    try:
        return msgspec.json.decode(body, type=push)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadInput([FieldProblem(field="body", problem=problem)]) from None


def _follower(body: bytes, target: int) -> UserId:
    given = str(_decode(body, _FollowerPush).follower_id or "").strip()
    if not given:
        raise BadInput([FieldProblem(field="follower_id", problem=_BY_ID)])
    follower = read_id(given)
    if follower is None:
        raise BadInput([FieldProblem(field="follower_id", problem=f"not a user id; {_BY_ID}")])
    if follower == target:
        raise BadInput([FieldProblem(field="follower_id", problem="a user cannot follow itself")])
    return UserId(follower)
