"""What needs an operator, what others were told of, and what happens by itself."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query

from mistnet.api.auth import READS, Operator
from mistnet.api.errors import refusals
from mistnet.api.fields import Document, Flag, Id, Moment, NumberPath
from mistnet.api.paging import Listing, Pages
from mistnet.api.parts import Mistnet
from mistnet.schedule import standing
from mistnet.store.alerts import AlertRow
from mistnet.store.leaders import StoreLeaders
from mistnet.store.schedule import StoreSchedule

router = APIRouter(prefix="/api", tags=["watching"], dependencies=READS)

_TICKS: Final = 20


class AlertDocument(Document):
    id: Id
    rule: str
    subject: str
    severity: str
    message: str
    opened_at: Moment
    last_seen_at: Moment
    closed_at: Moment | None
    accepted_at: Moment | None
    accepted_by: str | None


class EventDocument(Document):
    id: Id
    channel: str
    kind: str
    subject: str
    created_at: Moment
    payload: Any


class TickDocument(Document):
    """`missed`: for how many slots before it this one stands too."""

    tick_at: Moment
    made_at: Moment
    holder: str
    accounts: int
    jobs: int
    missed: int


class GroupDocument(Document):
    """Accounts that are looked at together, when that was done last and will be next.

    `unknown` are handles the group names and nobody tracks.
    """

    name: str
    rhythm: str
    unknown: list[str]
    next_at: Moment | None
    ticks: list[TickDocument]


class LeaderDocument(Document):
    """Who acts for all processes, or did last."""

    name: str
    holder: str
    since: Moment
    lease_until: Moment
    leads: bool


class ScheduleDocument(Document):
    enabled: bool
    groups: list[GroupDocument]
    leaders: list[LeaderDocument]


@router.get("/alerts", response_model=Listing[AlertDocument])
async def list_alerts(
    mistnet: Mistnet,
    pages: Pages,
    only_open: Annotated[Flag, Query(alias="open", description="Only those that are not over.")] = "false",
) -> dict[str, Any]:
    """What needs an operator, or did; the latest first."""
    rows = await mistnet.watch.alerts.recent(open_only=only_open == "true", before_id=pages.place, limit=pages.one_more)
    return pages.listing(rows, lambda row: row.id)


@router.post("/alerts/{alert_id:id}/accept", response_model=AlertDocument, responses=refusals(404))
async def accept_alert(alert_id: NumberPath, visitor: Operator, mistnet: Mistnet) -> AlertRow:
    """Accept an open alert: it is not shown as needing somebody until it is over or gets worse."""
    return await mistnet.watch.alerts.accept(alert_id, by=visitor.name, now=mistnet.database.clock.now())


@router.get("/events", response_model=Listing[EventDocument])
async def list_events(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """What others were told of, or will be; the latest first."""
    rows = await mistnet.watch.outbox.recent(limit=pages.one_more, before_id=pages.place)
    page = pages.listing(rows, lambda row: row.id)
    shown = [
        {**{name: getattr(each, name) for name in each.__struct_fields__}, "payload": msgspec.json.decode(each.payload)}
        for each in page["items"]
    ]
    return {**page, "items": shown}


@router.get("/schedule", response_model=ScheduleDocument)
async def show_schedule(mistnet: Mistnet) -> dict[str, Any]:
    """Groups with their rhythm and last ticks, and who leads. Groups are those of this process's settings."""
    store, now = StoreSchedule(mistnet.database, mistnet.job_writer), mistnet.database.clock.now()
    standings = (await standing(mistnet.settings, mistnet.database, mistnet.job_writer)).groups
    groups = [
        {
            "name": group.name,
            "rhythm": group.rhythm,
            "unknown": group.unknown,
            "next_at": group.next_at,
            "ticks": await store.ticks(group.name, limit=_TICKS),
        }
        for group in standings
    ]
    leaders = [
        {**{name: getattr(each, name) for name in each.__struct_fields__}, "leads": each.leads_at(now)}
        for each in await StoreLeaders(mistnet.database).all()
    ]
    return {"enabled": mistnet.settings.scheduler_enabled, "groups": groups, "leaders": leaders}
