"""Sources and what they cost: how each stands, its kill switch, its limits, and the ledger of calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field

from mistnet.api.auth import ADMINISTERS, OPERATES, READS
from mistnet.api.errors import NotFound, refusals
from mistnet.api.fields import Document, Given, Id, Integral, Moment, Reason, WrittenMoment
from mistnet.api.parts import Mistnet
from mistnet.desk.standings import KNOWN, configured, standings, state_of
from mistnet.domain.sources import SourceName
from mistnet.store.ledger import By, Ledger

router = APIRouter(prefix="/api", tags=["sources"])

_SPAN: Final = timedelta(days=30)
Name = Annotated[str, Path(max_length=50, description="The source, such as x.")]
_MOST_CREDITS: Final = 10**15
Credits = Annotated[int, Field(ge=0, le=_MOST_CREDITS), Integral]


class KeyDocument(Document):
    """One key, by a label that does not give it away."""

    label: str
    configured_here: bool
    rate_per_minute: float
    rate_is: str
    paused_at: Moment | None
    pause_reason: str | None
    balance: int | None
    balance_at: Moment | None


class SourceDocument(Document):
    name: str
    state: str
    why: str | None
    until: Moment | None
    failure_streak: int
    last_success_at: Moment | None
    last_failure_at: Moment | None
    last_failure: str | None
    day_credits: int
    day_cap: int | None
    month_credits: int
    month_cap: int | None
    keys: list[KeyDocument]


class Sources(Document):
    items: list[SourceDocument]


class PauseSource(Given):
    reason: Reason = "paused by API"


class SourcePause(Document):
    """`changed`: whether it was otherwise before. `woken`: how many jobs that waited for it are due now."""

    source: str
    paused: bool
    changed: bool
    woken: int = 0


class SourceLimits(Given):
    """What is left out stays as it is. A cap of null is taken off: the settings' own counts again."""

    rate: Annotated[float, Field(ge=0.01, le=10_000_000, description="Calls a minute, for each key.")] | None = None
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
    return {"items": await standings(mistnet)}


@router.post("/sources/{name}/pause", response_model=SourcePause, dependencies=OPERATES, responses=refusals(404))
async def pause(name: Name, mistnet: Mistnet, asked: PauseSource | None = None) -> dict[str, Any]:
    """Stop all calls to a source, on every machine, within about a second. Nothing is lost."""
    source = _known(name)
    before = await state_of(mistnet, source)
    reason = (asked or PauseSource()).reason
    await mistnet.harvest.book.pause(source, reason, now=mistnet.database.clock.now())
    return {"source": source, "paused": True, "changed": before.paused_at is None}


@router.post("/sources/{name}/resume", response_model=SourcePause, dependencies=OPERATES, responses=refusals(404))
async def resume(name: Name, mistnet: Mistnet) -> dict[str, Any]:
    """Let calls go on, and make the work due that waited for it."""
    source = _known(name)
    before = await state_of(mistnet, source)
    woken = await mistnet.harvest.book.resume(source, now=mistnet.database.clock.now())
    return {"source": source, "paused": False, "changed": before.paused_at is not None, "woken": woken}


@router.patch("/sources/{name}", response_model=SourceDocument, dependencies=ADMINISTERS, responses=refusals(404))
async def set_limits(name: Name, asked: SourceLimits, mistnet: Mistnet) -> object:
    """Set the rate and the budget of a source for all machines; they go before each machine's settings."""
    source, book = _known(name), mistnet.harvest.book
    if asked.rate is not None:
        await book.set_rate(source, asked.rate, configured(mistnet, source)[0])
    named = asked.model_fields_set
    await book.set_caps(source, day=asked.day_credits, month=asked.month_credits)
    await book.lift_caps(
        source,
        day="day_credits" in named and asked.day_credits is None,
        month="month_credits" in named and asked.month_credits is None,
    )
    if named & {"day_credits", "month_credits"}:
        await book.wake_for_budget(source, now=mistnet.database.clock.now())
    return next(each for each in await standings(mistnet) if each.name == source)


@router.get("/spend", response_model=Spend, dependencies=READS)
async def spend(
    mistnet: Mistnet,
    by: By = By.DAY,
    since: Annotated[WrittenMoment | None, Query(description="From then on. Default: the last 30 days.")] = None,
    until: Annotated[WrittenMoment | None, Query(description="Before then.")] = None,
) -> dict[str, Any]:
    """What calls have cost: days in their order, all else with the dearest first."""
    begin = since or mistnet.database.clock.now() - _SPAN
    rows = await Ledger(mistnet.database).spent(by, since=begin, until=until)
    return {"by": by, "since": begin, "until": until, "items": rows}


def _known(name: str) -> SourceName:
    if name not in KNOWN:
        raise NotFound(f"source {name!r}; known sources: {', '.join(KNOWN)}")
    return SourceName(name)
