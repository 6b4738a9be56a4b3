"""Sources: their status, pauses, breakers and limits, and what calls have cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field

from mistnet.operations.overview import By, CallLedger, Spent
from mistnet.sources import controls
from mistnet.sources.controls import BreakerStatus, Caps, SourceStatus, known_source, source_statuses, status_of_source
from mistnet.web.auth import READS, Admin, Operator
from mistnet.web.dependencies import Mistnet
from mistnet.web.fields import Document, Integral, Reason, RequestBody, WrittenMoment, document_of, list_of

router = APIRouter(prefix="/api", tags=["sources"])

_SPAN: Final = timedelta(days=30)
Name = Annotated[str, Path(max_length=50, description="The source, such as x.")]
_MOST_CREDITS: Final = 10**15
Credits = Annotated[int, Field(ge=0, le=_MOST_CREDITS), Integral]


class PauseSource(RequestBody):
    reason: Reason = "paused by API"


class SourcePause(Document):
    """`changed`: whether it was different before. `woken`: how many jobs that waited for it are due now."""

    source: str
    paused: bool
    changed: bool
    woken: int = 0


class OpenBreaker(RequestBody):
    minutes: Annotated[float, Field(ge=0.01, le=525_600, description="How long the breaker stays open.")] = 5.0
    reason: Reason = "opened by API"


class BreakerChange(Document):
    """`changed`: whether it was different before. `woken`: how many jobs that waited for it are due now."""

    source: str
    breaker: BreakerStatus
    changed: bool
    woken: int = 0


class Forgotten(Document):
    """How many cached answers were deleted."""

    source: str
    forgotten: int


class SourceLimits(RequestBody):
    """Fields that are left out do not change. A cap of null is removed, so that the settings apply again."""

    rate: Annotated[float, Field(ge=0.01, le=100_000_000, description="Calls a minute, for each key.")] | None = None
    day_credits: Credits | None = None
    month_credits: Credits | None = None


class Spend(Document):
    by: By
    since: datetime
    until: datetime | None
    items: list[Spent]


@router.get("/sources", response_model=list_of(SourceStatus), dependencies=READS)
async def list_sources(mistnet: Mistnet) -> dict[str, Any]:
    """All sources: whether they serve, what they cost, and their keys."""
    return {"items": await source_statuses(mistnet)}


@router.post("/sources/{name}/pause", response_model=SourcePause)
async def pause(name: Name, mistnet: Mistnet, caller: Operator, body: PauseSource | None = None) -> dict[str, Any]:
    """Stop all calls to a source, on every machine, within about a second. Nothing is lost."""
    source = await known_source(mistnet, name)
    done = await controls.pause(mistnet, source, (body or PauseSource()).reason, by=caller.name)
    return {"source": source, "paused": True, "changed": done.changed}


@router.post("/sources/{name}/resume", response_model=SourcePause)
async def resume(name: Name, mistnet: Mistnet, caller: Operator) -> dict[str, Any]:
    """Let calls go on, and make the jobs due that waited for it."""
    source = await known_source(mistnet, name)
    done = await controls.resume(mistnet, source, by=caller.name)
    return {"source": source, "paused": False, "changed": done.changed, "woken": done.woken}


@router.post("/sources/{name}/breaker/open", response_model=BreakerChange)
async def open_breaker(
    name: Name, mistnet: Mistnet, caller: Operator, body: OpenBreaker | None = None
) -> dict[str, Any]:
    """No calls for a while, on every machine; then one call tests the source."""
    source, body = await known_source(mistnet, name), body or OpenBreaker()
    span = timedelta(minutes=body.minutes)
    done = await controls.open_breaker(mistnet, source, span, body.reason, by=caller.name)
    return {"source": source, "breaker": (await status_of_source(mistnet, source)).breaker, "changed": done.changed}


@router.post("/sources/{name}/breaker/close", response_model=BreakerChange)
async def close_breaker(name: Name, mistnet: Mistnet, caller: Operator) -> dict[str, Any]:
    """Let calls continue and reset the count of failures. A pause stays."""
    source = await known_source(mistnet, name)
    done = await controls.close_breaker(mistnet, source, by=caller.name)
    breaker = (await status_of_source(mistnet, source)).breaker
    return {"source": source, "breaker": breaker, "changed": done.changed, "woken": done.woken}


@router.delete("/sources/{name}/cache", response_model=Forgotten)
async def forget(name: Name, mistnet: Mistnet, caller: Operator) -> dict[str, Any]:
    """Delete the cached answers of a source."""
    source = await known_source(mistnet, name)
    return {"source": source, "forgotten": await controls.forget_answers(mistnet, source, by=caller.name)}


@router.patch("/sources/{name}", response_model=document_of(SourceStatus))
async def set_limits(name: Name, body: SourceLimits, mistnet: Mistnet, caller: Admin) -> object:
    """Set the rate and the budget of a source for all machines; they override each machine's settings."""
    source, named = await known_source(mistnet, name), body.model_fields_set
    given = {"day": body.day_credits, "month": body.month_credits}
    # A cap of null is removed, and one that is left out stays: only the names of what was sent tell them apart.
    lifted = [word for word, cap in given.items() if cap is None and f"{word}_credits" in named]
    caps = Caps(day=body.day_credits, month=body.month_credits, lifted=lifted)
    await controls.set_limits(mistnet, source, rate=body.rate, caps=caps, by=caller.name)
    return await status_of_source(mistnet, source)


@router.get("/spend", response_model=Spend, dependencies=READS)
async def spend(
    mistnet: Mistnet,
    by: By = By.DAY,
    since: Annotated[WrittenMoment | None, Query(description="From then on. Default: the last 30 days.")] = None,
    until: Annotated[WrittenMoment | None, Query(description="Before then.")] = None,
) -> dict[str, Any]:
    """What calls have cost: days in order, anything else with the most expensive first."""
    begin = since or mistnet.database.clock.now() - _SPAN
    rows = await CallLedger(mistnet.database).spent(by, since=begin, until=until)
    return {"by": by, "since": begin, "until": until, "items": rows}
