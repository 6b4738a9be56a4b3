"""What IFTTT pushes to us: somebody new follows an account."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.security import APIKeyHeader

from mistnet.api.auth import Doorman, same
from mistnet.api.errors import BadInput, FieldProblem, Refusal, TooOften, refusals
from mistnet.api.fields import Document, Id
from mistnet.api.parts import Mistnet
from mistnet.desk.followers import take_in_follower
from mistnet.domain.errors import NoKey
from mistnet.domain.numbers import read_id
from mistnet.domain.social import UserId
from mistnet.domain.visitors import is_guessable

router = APIRouter(prefix="/webhooks/ifttt", tags=["webhooks"])

HEADER: Final = "X-Webhook-Secret"
_BY_ID: Final = "send the follower's user id; a handle alone is not enough, because handles change hands"
_SHAPE: Final[dict[str, Any]] = {
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
    """The edge is stored. `fetched` are those of the two who were not known before."""

    ingest_id: Id
    target_id: Id
    follower_id: Id
    fetched: list[Id]


class _Push(msgspec.Struct, frozen=True):
    """All that is read of a push: what else is in it is ignored."""

    follower_id: str | int | None = None
    secret: str | None = None


@router.post(
    "/new-x-follower",
    response_model=FollowedDocument,
    openapi_extra=_SHAPE,
    responses=refusals(422, 429, 502, 503),
)
async def new_x_follower(
    request: Request,
    mistnet: Mistnet,
    given: Annotated[str | None, Depends(APIKeyHeader(name=HEADER, auto_error=False, scheme_name="webhook secret"))],
) -> object:
    """A new follower of the configured account. Both are hydrated by id; the same push twice changes nothing."""
    body = await request.body()
    secret = mistnet.settings.ifttt_secret
    _require_secret(request, given or _told_secret(body), secret.get_secret_value() if secret else None)
    target = mistnet.settings.ifttt_target_id
    if target is None:
        raise Refusal(503, "nobody said whose followers these are: set ifttt_target_id to the account's user id")
    follower = _follower(body, target)
    try:
        return await take_in_follower(mistnet, UserId(target), follower)
    except NoKey as error:
        raise Refusal(503, str(error)) from None


def _require_secret(request: Request, given: str | None, secret: str | None) -> None:
    """Compared in constant time; one who fails too often has to wait. Where none is set, none is right.

    A right secret is not refused for the failures of others, unless it is one that others can guess.
    """
    doorman: Doorman = request.app.state.doorman
    address = doorman.address_of(request)
    right = secret is not None and same(given or "", secret)
    wait = doorman.push_throttle.wait(address)
    if wait and (not right or is_guessable(secret or "")):
        raise TooOften(wait)
    if not right:
        doorman.push_throttle.failed(address)
        told = f"send the secret that is set as ifttt_secret, in the header {HEADER} or the field secret"
        raise Refusal(401, told, headers={"WWW-Authenticate": "ApiKey"})


def _told_secret(body: bytes) -> str | None:
    """Whoever has not shown it is told nothing about his body."""
    try:
        return _read(body).secret
    except BadInput:
        return None


def _read(body: bytes) -> _Push:
    try:
        return msgspec.json.decode(body, type=_Push)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadInput([FieldProblem(field="body", problem=problem)]) from None


def _follower(body: bytes, target: int) -> UserId:
    given = str(_read(body).follower_id or "").strip()
    if not given:
        raise BadInput([FieldProblem(field="follower_id", problem=_BY_ID)])
    follower = read_id(given)
    if follower is None:
        raise BadInput([FieldProblem(field="follower_id", problem=f"not a user id; {_BY_ID}")])
    if follower == target:
        raise BadInput([FieldProblem(field="follower_id", problem="nobody follows himself")])
    return UserId(follower)
