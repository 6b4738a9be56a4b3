"""Commands for alerts: list and accept them, and test that people are told."""

from typing import Annotated, Final

import typer

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.output import Grid, at, document
from mistnet.kit.text import LARGEST_ID
from mistnet.operations.alerts.store import AlertStore

_BY: Final = "command line"


@shared_options
async def list_alerts(invocation: Invocation) -> None:
    """Show all open alerts, the worst first, accepted ones too."""
    async with open_database(invocation.settings) as database:
        alerts = await AlertStore(database).list_open()
    grid = Grid(
        columns=("id", "", "rule", "since (UTC)", "accepted (UTC)", "what and what to do"),
        rows=[
            (
                each.id,
                each.severity,
                each.rule,
                each.opened_at,
                f"{at(each.accepted_at)} by {each.accepted_by}" if each.accepted_at else None,
                each.message,
            )
            for each in alerts
        ],
        empty="no alert is open",
    )
    invocation.out.show(document(alerts=alerts), grid)


@shared_options
async def accept_alert(
    invocation: Invocation,
    alert_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="The alert's id.")],
) -> None:
    """Accept an open alert: it no longer needs attention, until it is over or its severity changes."""
    async with open_database(invocation.settings) as database:
        done = await AlertStore(database).accept(alert_id, by=_BY, now=database.clock.now())
    invocation.out.show(document(alert=done), f"alert {done.id} is accepted: {done.rule} of {done.subject}")


@shared_options
async def test_alerts(invocation: Invocation) -> int:
    """Send a test alert to every receiver of alerts, now. Exit code 1 if one does not take it, or there is none."""
    async with open_app(invocation.settings, checked=False) as app:
        results = await app.outgoing.send_test_alert()
    grid = Grid(
        columns=("receiver", "", "problem"),
        rows=[(name, "failed" if problem else "took it", problem) for name, problem in results.items()],
        empty='alerts have no receiver: set `alert_urls`, or a webhook with channel = "alerts"',
    )
    receivers = [{"receiver": name, "problem": problem} for name, problem in results.items()]
    invocation.out.show(document(receivers=receivers), grid)
    return 0 if results and not any(results.values()) else 1
