"""Alerts, open and past, and where each is dealt with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Form
from fastapi.responses import Response

from mistnet.operations.alerts.model import ACCOUNT_RULES, AlertRule
from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.overview import OpenAlert
from mistnet.web.fields import BeforeId, NumberPath
from mistnet.web.pages.render import OperatorPage, ReaderPage, redirect_to

router = APIRouter(include_in_schema=False)
_PAST: Final = 30
_PLACES: Final[Mapping[str, str]] = {
    AlertRule.SOURCE_PAUSED: "/sources",
    AlertRule.BREAKER_OPEN: "/sources",
    AlertRule.RATE_LIMITED: "/sources",
    AlertRule.BUDGET_80: "/sources",
    AlertRule.BUDGET_100: "/sources",
    AlertRule.DUE_WORK: "/jobs?state=pending",
    AlertRule.NO_WORKERS: "/jobs?state=pending",
}


def alert_place(alert: AlertRow | OpenAlert) -> str | None:
    """The page that shows what an alert is about."""
    return f"/accounts/{alert.subject}" if alert.rule in ACCOUNT_RULES else _PLACES.get(alert.rule)


@router.get("/alerts")
async def alerts(page: ReaderPage, before: BeforeId = None) -> Response:
    store = page.app.watch.alerts
    past = await store.page(is_open=False, after=before, limit=_PAST)
    return page.render(
        "alerts.html",
        open=sorted(await store.list_open(), key=lambda each: each.accepted_at is not None),
        past=past.items,
        before=before,
        more=past.next,
        places=alert_place,
        account_rules=ACCOUNT_RULES,
    )


@router.post("/alerts/{alert_id:id}/accept")
async def accept_alert(
    page: OperatorPage, alert_id: NumberPath, back: Annotated[str, Form(max_length=20)] = ""
) -> Response:
    await page.app.watch.alerts.accept(alert_id, by=page.caller.name, now=page.now)
    return redirect_to("/alerts" if back == "/alerts" else "/", "alert-accepted")
