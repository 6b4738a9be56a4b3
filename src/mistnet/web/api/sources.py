"""Sources and what they cost: how each stands, its kill switch, its limits, and the ledger of calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator, Field

from mistnet.operations.spend import By, CallLedger
from mistnet.sources import controls as switches
from mistnet.sources.controls import Caps
from mistnet.sources.status import known_source, source_statuses, status_of_source
from mistnet.web.auth import READS, Admin, Operator
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import refusals
from mistnet.web.fields import Document, Id, Integral, Moment, Reason, RequestBody, WrittenMoment

router = APIRouter(prefix="/api", tags=["sources"])

_SPAN: Final = timedelta(days=30)
Name = Annotated[str, Path(max_length=50, description="The source, such as x.")]
_MOST_CREDITS: Final = 10**15
Credits = Annotated[int, Field(ge=0, le=_MOST_CREDITS), Integral]


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]


class KeyDocument(Document):
    """One key, by a label that does not give it away.

    `bucket` is how many calls may start at once now, `burst` how many after a rest, `free_at` when the next may.
    """

    label: str
    configured_here: bool
    rate_per_minute: float
    rate_is: str
    slowdown: float
    bucket: int
    burst: int
    free_at: Moment | None
    paused_at: Moment | None
    pause_reason: str | None
    balance: int | None
    balance_at: Moment | None


class BreakerDocument(Document):
    """So many failures in a row (`opens_after`) open it for so many seconds (`stays_open`); then one call tries."""

    state: Literal["closed", "open", "half-open"]
    failure_streak: int
    opens_after: int
    stays_open: Seconds
    opened_until: Moment | None
    probe_until: Moment | None


class CacheDocument(Document):
    """Answers that are kept, and how many of them are still good."""

    answers: int
    fresh: int


class SourceDocument(Document):
    """`cache` is null where answers are not kept."""

    name: str
    state: str
    why: str | None
    until: Moment | None
    failure_streak: int
    breaker: BreakerDocument
    last_success_at: Moment | None
    last_failure_at: Moment | None
    last_failure: str | None
    day_credits: int
    day_cap: int | None
    month_credits: int
    month_cap: int | None
    cache: CacheDocument | None
    keys: list[KeyDocument]


class Sources(Document):
    items: list[SourceDocument]


class PauseSource(RequestBody):
    reason: Reason = "paused by API"


class SourcePause(Document):
    """`changed`: whether it was otherwise before. `woken`: how many jobs that waited for it are due now."""

    source: str
    paused: bool
    changed: bool
    woken: int = 0


class OpenBreaker(RequestBody):
    minutes: Annotated[float, Field(ge=0.01, le=525_600, description="For how long nobody calls.")] = 5.0
    reason: Reason = "opened by API"


class BreakerChange(Document):
    """`changed`: whether it was otherwise before. `woken`: how many jobs that waited for it are due now."""

    source: str
    breaker: BreakerDocument
    changed: bool
    woken: int = 0


class Forgotten(Document):
    """How many answers were kept."""

    source: str
    forgotten: int


class SourceLimits(RequestBody):
    """What is left out stays as it is. A cap of null is taken off: the settings' own counts again."""

    rate: Annotated[float, Field(ge=0.01, le=100_000_000, description="Calls a minute, for each key.")] | None = None
    day_credits: Credits | None = None
    month_credits: Credits | None = None


class SpentDocument(Document):
    """The calls of one group. An account without a name served several, or was not told who it is."""

    name: str | None
    account_id: Id | None
    calls: int
    items: int
    credits: int
    failures: int


class Spend(Document):
    by: By
    since: Moment
    until: Moment | None
    items: list[SpentDocument]


@router.get("/sources", response_model=Sources, dependencies=READS)
async def list_sources(mistnet: Mistnet) -> dict[str, Any]:
    """Each source: whether it is open, what it cost, and its keys."""
    return {"items": await source_statuses(mistnet)}


@router.post("/sources/{name}/pause", response_model=SourcePause, responses=refusals(404))
async def pause(name: Name, mistnet: Mistnet, visitor: Operator, asked: PauseSource | None = None) -> dict[str, Any]:
    """Stop all calls to a source, on every machine, within about a second. Nothing is lost."""
    source = await known_source(mistnet, name)
    done = await switches.pause(mistnet, source, (asked or PauseSource()).reason, by=visitor.name)
    return {"source": source, "paused": True, "changed": done.changed}


@router.post("/sources/{name}/resume", response_model=SourcePause, responses=refusals(404))
async def resume(name: Name, mistnet: Mistnet, visitor: Operator) -> dict[str, Any]:
    """Let calls go on, and make the work due that waited for it."""
    source = await known_source(mistnet, name)
    done = await switches.resume(mistnet, source, by=visitor.name)
    return {"source": source, "paused": False, "changed": done.changed, "woken": done.woken}


@router.post("/sources/{name}/breaker/open", response_model=BreakerChange, responses=refusals(404))
async def open_breaker(
    name: Name, mistnet: Mistnet, visitor: Operator, asked: OpenBreaker | None = None
) -> dict[str, Any]:
    """No calls for a while, on every machine; then one call tries whether the source is well."""
    source, wanted = await known_source(mistnet, name), asked or OpenBreaker()
    span = timedelta(minutes=wanted.minutes)
    done = await switches.open_breaker(mistnet, source, span, wanted.reason, by=visitor.name)
    return {"source": source, "breaker": (await status_of_source(mistnet, source)).breaker, "changed": done.changed}


@router.post("/sources/{name}/breaker/close", response_model=BreakerChange, responses=refusals(404))
async def close_breaker(name: Name, mistnet: Mistnet, visitor: Operator) -> dict[str, Any]:
    """Let calls go on at once and count failures from nought. A pause stays."""
    source = await known_source(mistnet, name)
    done = await switches.close_breaker(mistnet, source, by=visitor.name)
    breaker = (await status_of_source(mistnet, source)).breaker
    return {"source": source, "breaker": breaker, "changed": done.changed, "woken": done.woken}


@router.delete("/sources/{name}/cache", response_model=Forgotten, responses=refusals(404))
async def forget(name: Name, mistnet: Mistnet, visitor: Operator) -> dict[str, Any]:
    """Forget the answers that are kept of a source: what it told is asked for anew."""
    source = await known_source(mistnet, name)
    return {"source": source, "forgotten": await switches.forget_answers(mistnet, source, by=visitor.name)}


@router.patch("/sources/{name}", response_model=SourceDocument, responses=refusals(404))
async def set_limits(name: Name, asked: SourceLimits, mistnet: Mistnet, visitor: Admin) -> object:
    """Set the rate and the budget of a source for all machines; they go before each machine's settings."""
    source, named = await known_source(mistnet, name), asked.model_fields_set
    given = {"day": asked.day_credits, "month": asked.month_credits}
    lifted = [word for word, cap in given.items() if cap is None and f"{word}_credits" in named]
    caps = Caps(day=asked.day_credits, month=asked.month_credits, lifted=lifted)
    await switches.set_limits(mistnet, source, rate=asked.rate, caps=caps, by=visitor.name)
    return await status_of_source(mistnet, source)


@router.get("/spend", response_model=Spend, dependencies=READS)
async def spend(
    mistnet: Mistnet,
    by: By = By.DAY,
    since: Annotated[WrittenMoment | None, Query(description="From then on. Default: the last 30 days.")] = None,
    until: Annotated[WrittenMoment | None, Query(description="Before then.")] = None,
) -> dict[str, Any]:
    """What calls have cost: days in their order, all else with the dearest first."""
    begin = since or mistnet.database.clock.now() - _SPAN
    rows = await CallLedger(mistnet.database).spent(by, since=begin, until=until)
    return {"by": by, "since": begin, "until": until, "items": rows}
