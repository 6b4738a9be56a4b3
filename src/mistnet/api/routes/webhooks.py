"""What sources push to us."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.security import APIKeyHeader

from mistnet.api.auth import same
from mistnet.api.errors import BadInput, FieldProblem, Refusal
from mistnet.api.fields import Document
from mistnet.api.parts import Mistnet
from mistnet.desk.pushed import take_in

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

_TWEETS: Final = "tweet"
_SHAPE: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["event_type"],
                    "properties": {
                        "event_type": {"type": "string", "description": "`tweet`; all else is ignored."},
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
    """`ignored`: it told of nothing that is collected. Posts that cannot be read are kept in quarantine."""

    ignored: bool
    posts: int = 0
    new: int = 0
    unreadable: int = 0


class _Push(msgspec.Struct, frozen=True):
    event_type: str
    tweets: list[msgspec.Raw] = []


async def known_key(
    mistnet: Mistnet, given: Annotated[str | None, Depends(APIKeyHeader(name="X-API-Key", auto_error=False))]
) -> None:
    """Pushes carry the key that we ask with. All keys are compared, each in constant time."""
    keys = [key.get_secret_value() for key in mistnet.settings.x_api_key]
    if not any([same(given or "", key) for key in keys]):  # noqa: C419 (no key is left out)
        raise Refusal(401, "send the configured TwitterAPI.io key as X-API-Key", headers={"WWW-Authenticate": "ApiKey"})


@router.post("/twitterapi-io", response_model=PushedDocument, dependencies=[Depends(known_key)], openapi_extra=_SHAPE)
async def twitterapi_io(request: Request, mistnet: Mistnet) -> dict[str, Any]:
    """Filter-rule pushes of TwitterAPI.io: their posts are stored at once. The same push twice changes nothing."""
    push = _read(await request.body())
    if push.event_type != _TWEETS:
        return {"ignored": True}
    taken = await take_in(mistnet, push.tweets)
    return {"ignored": False, "posts": taken.posts, "new": taken.new, "unreadable": taken.unreadable}


def _read(body: bytes) -> _Push:
    try:
        return msgspec.json.decode(body, type=_Push)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadInput([FieldProblem(field="body", problem=problem)]) from None
